"""`penstock.connect(...)`: a client of a controller, with the verbs as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.service.client import Client


def connect(url: str | None = None, token: str | None = None, *, folder: str | Path | None = None) -> Client:
    """A controller by its address and token; without, the one `penstock.up()` started on this machine."""
    from penstock.service import client  # noqa: PLC0415 - needs the extra `control`

    return client.connect(url, token, folder)
