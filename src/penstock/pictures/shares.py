"""A division of a cluster as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pictures.canvas import check_ending, own_settings, save

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.sharing.share import Sharing


def draw_shares(sharing: Sharing, path: Path) -> None:
    """Draw minimum, share and desired of every pipeline to `path`; the format is that of the ending."""
    check_ending(path)
    from penstock.pictures.drawing.share_chart import share_chart  # noqa: PLC0415 - needs matplotlib, an optional extra

    with own_settings():
        save(share_chart(sharing), path)
