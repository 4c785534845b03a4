"""A simulation as a picture: rates and backlog over time, the distribution of latency, CPU of slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.pictures.canvas import check_ending, own_settings, save

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.report.simulated_result import SimulatedResult


def draw_simulation(result: SimulatedResult, path: Path) -> None:
    check_ending(path)
    if not any(pipeline.report.history for pipeline in result.pipelines):
        raise BadInputError(f"{path}: nothing to draw: nothing happened in the time simulated")
    from penstock.pictures.drawing.simulation_charts import simulation_charts  # noqa: PLC0415 - loads matplotlib

    with own_settings():
        save(simulation_charts(result), path)
