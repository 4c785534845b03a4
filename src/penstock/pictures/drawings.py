"""A plan as a picture: racks, nodes and slots, who sits where, and how full each slot will be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.pictures.canvas import check_ending, own_settings, save

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.modelling.model import Model
    from penstock.pictures.chart import Chart
    from penstock.planning.plan import Plan
    from penstock.planning.sharing.share import Sharing
    from penstock.report.result import PlacedResult, RunResult
    from penstock.report.simulated_result import SimulatedResult


def draw_plan(plan: Plan, path: Path) -> None:
    """Draw `plan` to `path`; the format is that of the ending."""
    check_ending(path)
    from penstock.pictures.plan_page import plan_page  # noqa: PLC0415 - needs matplotlib, an optional extra

    with own_settings():
        save(plan_page(plan), path)


def draw_chart(chart: Chart, path: Path) -> None:
    """Draw to `path`; the format is that of the ending."""
    check_ending(path)
    from penstock.pictures.chart_panels import chart_figure  # noqa: PLC0415 - needs matplotlib, an optional extra

    with own_settings():
        save(chart_figure(chart), path)


def draw_models(models: Sequence[Model], path: Path) -> None:
    """Draw `models` side by side to `path`; the format is that of the ending."""
    check_ending(path)
    if not models:
        raise BadInputError(f"{path}: nothing to draw: no models")
    from penstock.pictures.model_charts import model_charts  # noqa: PLC0415 - needs matplotlib, an optional extra

    with own_settings():
        save(model_charts(models), path)


def draw_run(result: RunResult | PlacedResult, path: Path) -> None:
    check_ending(path)
    if not result.report.history:
        raise BadInputError(f"{path}: nothing to draw: no batch was finished")
    from penstock.pictures.run_charts import run_charts  # noqa: PLC0415 - loads matplotlib

    with own_settings():
        save(run_charts(result), path)


def draw_shares(sharing: Sharing, path: Path) -> None:
    """Draw minimum, share and desired of every pipeline to `path`; the format is that of the ending."""
    check_ending(path)
    from penstock.pictures.share_chart import share_chart  # noqa: PLC0415 - needs matplotlib, an optional extra

    with own_settings():
        save(share_chart(sharing), path)


def draw_simulation(result: SimulatedResult, path: Path) -> None:
    check_ending(path)
    if not any(pipeline.report.history for pipeline in result.pipelines):
        raise BadInputError(f"{path}: nothing to draw: nothing happened in the time simulated")
    from penstock.pictures.run_charts import simulation_charts  # noqa: PLC0415 - loads matplotlib

    with own_settings():
        save(simulation_charts(result), path)
