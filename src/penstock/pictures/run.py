"""A run as a picture: rates, backlog and latency over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.pictures.canvas import check_ending, own_settings, save

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.report.placed_result import PlacedResult
    from penstock.report.result import RunResult


def draw_run(result: RunResult | PlacedResult, path: Path) -> None:
    check_ending(path)
    if not result.report.history:
        raise BadInputError(f"{path}: nothing to draw: no batch was finished")
    from penstock.pictures.drawing.run_charts import run_charts  # noqa: PLC0415 - loads matplotlib

    with own_settings():
        save(run_charts(result), path)
