"""Charts as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pictures.canvas import check_ending, own_settings, save

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.pictures.chart import Chart


def draw_chart(chart: Chart, path: Path) -> None:
    """Draw to `path`; the format is that of the ending."""
    check_ending(path)
    from penstock.pictures.drawing.chart_panels import chart_figure  # noqa: PLC0415 - needs matplotlib, an optional extra

    with own_settings():
        save(chart_figure(chart), path)
