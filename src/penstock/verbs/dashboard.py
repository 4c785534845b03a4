"""`penstock.dashboard()`: a link that opens the page of the controller, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.files import read_text

if TYPE_CHECKING:
    from pathlib import Path


def dashboard(*, read_only: bool = False, folder: str | Path | None = None) -> str:
    """The code in the link logs one browser in and is then used up; it is good for ten minutes. It stands behind the
    `#`, which browsers keep to themselves. With `read_only` whoever opens it may look and change nothing."""
    from penstock.service.client import Client  # noqa: PLC0415 - needs the extra `control`
    from penstock.service.local import find_controller  # noqa: PLC0415

    controller = find_controller(folder)
    token = read_text(controller.read_token_file if read_only else controller.token_file).strip()
    with Client(controller.url, token) as client:
        return f"{controller.url}/#code={client.login_code()}"
