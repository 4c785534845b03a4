"""Charts of runs (rates, backlog, latency over time) and of simulations. Needs matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from penstock.pictures.canvas import ALARM, FAINT_INK, INK, number
from penstock.pictures.sheet import fitted
from penstock.report.result import RunResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from penstock.dataflow.load import Load
    from penstock.report.report import Moment
    from penstock.report.result import PlacedResult
    from penstock.report.simulated_result import PipelineResult, SimulatedResult


WIDTH, HEIGHT = 8.4, 6.6
OFFERED_COLOUR, RATE_COLOUR, PREDICTED_COLOUR = "#AA3377", "#4477AA", "#EE7733"
BACKLOG_COLOUR, LATENCY_COLOUR = "#228833", "#4477AA"
"""Of Paul Tol's "bright" scheme, as in the charts of models; lines differ in their stroke too."""
GRID = "#e6e6e2"
SMOOTH_SECONDS = 2.0
"""Min seconds of whole batches for a sustained rate: single batches show timing more than rate."""


def run_charts(result: RunResult | PlacedResult) -> Figure:
    figure = Figure(figsize=(WIDTH, HEIGHT))
    FigureCanvasAgg(figure)
    report = result.report
    room = WIDTH - 0.6
    title = f"{result.pipeline} on {result.slots} slot{'s' if result.slots != 1 else ''}"
    load = offered_load(result)
    offered = "" if load is None else f"offered {number(report.offered_rate)}/s, "
    past = "first batch" if isinstance(result, RunResult) and result.flat_out else "warm-up"
    summary = (
        f"{offered}sustained {number(report.sustained_rate)}/s ({report.verdict}) "
        f"over {report.seconds:.0f} s past the {past}"
    )
    figure.text(
        0.3 / WIDTH, 1 - 0.28 / HEIGHT, fitted(title, room, 14, bold=True), fontsize=14, weight="bold", va="center"
    )
    figure.text(0.3 / WIDTH, 1 - 0.55 / HEIGHT, fitted(summary, room, 9), fontsize=9, color=FAINT_INK, va="center")
    history = report.history
    # most sources of Spark's own do not say what waits in them
    knows_backlog = load is not None or any(moment.backlog for moment in history)
    panels = [("tuples/s", 1.6), *([("tuples waiting", 1.0)] if knows_backlog else []), ("latency, seconds", 1.2)]
    every_axes = figure.subplots(
        len(panels),
        sharex=True,
        gridspec_kw={
            "left": 0.95 / WIDTH,
            "right": 1 - 0.3 / WIDTH,
            "top": 1 - 1.05 / HEIGHT,
            "bottom": 0.55 / HEIGHT,
            "height_ratios": [height for _, height in panels],
            "hspace": 0.32,
        },
    )
    rates, latency = every_axes[0], every_axes[-1]
    _draw_rates(rates, history, load, result.predicted_rate)
    if knows_backlog:
        _draw_backlog(every_axes[1], history)
    _draw_latency(latency, history)
    latency.set_xlabel("seconds since the load began", fontsize=8, labelpad=2)
    for axes, (label, _) in zip(every_axes, panels, strict=True):
        _finish(axes, label)
    latency.set_xlim(0, max(moment.seconds for moment in history) * 1.01)
    return figure


def smoothed(history: tuple[Moment, ...]) -> tuple[list[float], list[float]]:
    """Return times and rates of batches grouped until they last `SMOOTH_SECONDS`.

    A moment has the rate since the one before it, so the tuples of a stretch are the sum of rate times time over it.
    """
    times, rates = [], []
    before = begin = 0.0
    tuples = 0.0
    for moment in history:
        tuples += moment.rate * (moment.seconds - before)
        before = moment.seconds
        if before - begin >= SMOOTH_SECONDS or moment is history[-1]:
            if before > begin:
                times.append(before)
                rates.append(tuples / (before - begin))
            begin, tuples = before, 0.0
    return times, rates


def offered_steps(load: Load, end: float) -> tuple[list[float], list[float]]:
    """The load as steps up to `end`."""
    times, rates = [0.0], []
    while times[-1] < end:
        for seconds, rate in load.spells:
            times.append(times[-1] + seconds)
            rates.append(rate)
        if not load.repeats:
            times[-1] = max(times[-1], end)
    return times, [*rates, rates[-1]]


def offered_load(result: RunResult | PlacedResult) -> Load | None:
    """Return the offered load; None if the source is the user's own, without a rate."""
    return None if isinstance(result, RunResult) and result.own_source else result.load


def _draw_rates(axes: Axes, history: tuple[Moment, ...], load: Load | None, predicted_rate: float | None) -> None:
    times, rates = smoothed(history)
    highest = max(rates, default=0.0)
    offered_times, offered = ([], []) if load is None else offered_steps(load, history[-1].seconds)
    if offered and min(offered) <= 10 * highest:
        axes.step(
            offered_times, offered, where="post", color=OFFERED_COLOUR, linewidth=1.4, linestyle="--", label="offered"
        )
        highest = max(highest, *offered)
    axes.step([0.0, *times], [*rates[:1], *rates], where="pre", color=RATE_COLOUR, linewidth=1.6, label="sustained")
    if predicted_rate is not None:
        label = f"predicted, at most {number(predicted_rate)}"
        if predicted_rate <= 3 * highest:
            highest = max(highest, predicted_rate)
            axes.axhline(predicted_rate, color=PREDICTED_COLOUR, linewidth=1.2, linestyle=":", label=label)
        else:
            axes.plot([], [], color=PREDICTED_COLOUR, linewidth=1.2, linestyle=":", label=f"{label} (off the chart)")
    axes.set_ylim(0, 1.12 * highest or 1.0)
    _legend(axes)


def _draw_backlog(axes: Axes, history: tuple[Moment, ...]) -> None:
    times = [moment.seconds for moment in history]
    waiting = [moment.backlog for moment in history]
    axes.fill_between(times, waiting, color=BACKLOG_COLOUR, alpha=0.25, linewidth=0)
    axes.plot(times, waiting, color=BACKLOG_COLOUR, linewidth=1.4, marker=_marker(times))
    axes.set_ylim(0, 1.12 * max(waiting) or 1.0)


def _draw_latency(axes: Axes, history: tuple[Moment, ...]) -> None:
    known = [moment for moment in history if moment.p50 is not None and moment.p95 is not None]
    times = [moment.seconds for moment in known]
    p95 = [moment.p95 or 0.0 for moment in known]
    axes.plot(
        times,
        p95,
        color=LATENCY_COLOUR,
        linewidth=1.0,
        linestyle="--",
        marker=_marker(times),
        label="p95 of each batch",
    )
    p50 = [moment.p50 or 0.0 for moment in known]
    axes.plot(times, p50, color=LATENCY_COLOUR, linewidth=1.6, marker=_marker(times), label="p50")
    axes.set_ylim(0, 1.12 * max(p95, default=0.0) or 1.0)
    _legend(axes)


def _finish(axes: Axes, label: str) -> None:
    axes.set_ylabel(label, fontsize=8)
    axes.yaxis.set_label_coords(-0.65 / (WIDTH - 1.25), 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7.5, length=3)


def _marker(times: Sequence[float]) -> str | None:
    """A run of one batch has no line to draw: its points are shown."""
    return "o" if len(times) < 4 else None


# Four charts of a simulation: rates and backlog over time, latency as a distribution, CPU of slots or nodes. Needs
# matplotlib.
#
# One pipeline is drawn beside its prediction, and its measurement if there was a run; several are drawn beside each
# other, up to the number of colours.


SIMULATION_WIDTH, SIMULATION_HEIGHT = 10.6, 7.0
COLOURS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")
"""Paul Tol's "bright" scheme."""
STROKES = ("-", "--", "-.", ":")
MEASURED_COLOUR = "#228833"
MOST_BARS = 24
"""Slots or nodes with a pair of bars each; more of them are drawn as two lines, from the busiest down."""
FEWEST_BARS = 5
"""Min pairs of bars that a chart has room for."""
LEVEL_NAMES = 6
MARKED = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def simulation_charts(result: SimulatedResult) -> Figure:
    figure = Figure(figsize=(SIMULATION_WIDTH, SIMULATION_HEIGHT))
    FigureCanvasAgg(figure)
    _draw_head(figure, result)
    grid = figure.subplots(
        2,
        2,
        gridspec_kw={
            "left": 0.85 / SIMULATION_WIDTH,
            "right": 1 - 0.3 / SIMULATION_WIDTH,
            "top": 1 - 1.15 / SIMULATION_HEIGHT,
            "bottom": 0.6 / SIMULATION_HEIGHT,
            "hspace": 0.42,
            "wspace": 0.24,
        },
    )
    (rates, latency), (backlog, cpu) = grid
    if len(result.pipelines) == 1:
        _draw_rate(rates, result.first, result)
        _draw_simulated_latency(latency, result.first)
        _draw_slots(cpu, result.first)
    else:
        _draw_parts(rates, result)
        _draw_latencies(latency, result)
        _draw_nodes(cpu, result)
    _draw_simulated_backlog(backlog, result)
    for axes in (rates, backlog):
        axes.set_xlabel("simulated seconds", fontsize=8, labelpad=2)
        axes.set_xlim(0, result.seconds)
        if result.warm_up > 0:
            axes.axvspan(0, result.warm_up, color="#f1f1ee", linewidth=0, zorder=0)
    for axes in grid.flat:
        _finish_simulation_axes(axes)
    return figure


def _draw_head(figure: Figure, result: SimulatedResult) -> None:
    room = SIMULATION_WIDTH - 0.6
    if len(result.pipelines) == 1:
        report = result.report
        title = f"{result.first.pipeline} simulated {result.first.mode} on {len(report.slots)} slots"
        verdict = "stable" if report.stable else "falls behind"
        summary = (
            f"offered {number(report.offered_rate)}/s, sustained {number(report.sustained_rate)}/s ({verdict}) over "
            f"{report.seconds:.0f} s past the warm-up"
        )
        if result.first.bottleneck is not None:
            summary += f"; the bottleneck is {result.first.bottleneck}"
    else:
        behind = [pipeline.pipeline for pipeline in result.pipelines if not pipeline.report.stable]
        title = f"{len(result.pipelines)} pipelines simulated, nodes: {len(result.nodes):,}"
        summary = f"{len(behind)} fall behind: {', '.join(behind)}" if behind else "all are stable"
        if result.fairness:
            summary += f"; fairness degree {result.fairness[-1][1]:.3f}"
    figure.text(
        0.3 / SIMULATION_WIDTH,
        1 - 0.3 / SIMULATION_HEIGHT,
        fitted(title, room, 14, bold=True),
        fontsize=14,
        weight="bold",
        va="center",
    )
    colour = FAINT_INK if result.stable else ALARM
    figure.text(
        0.3 / SIMULATION_WIDTH,
        1 - 0.58 / SIMULATION_HEIGHT,
        fitted(summary, room, 9),
        fontsize=9,
        color=colour,
        va="center",
    )


def _draw_rate(axes: Axes, pipeline: PipelineResult, result: SimulatedResult) -> None:
    history = pipeline.report.history
    times = [0.0, *(moment.seconds for moment in history)]
    rates = [moment.rate for moment in history]
    offered_times, offered = offered_steps(pipeline.load, result.seconds)
    axes.step(
        offered_times, offered, where="post", color=OFFERED_COLOUR, linewidth=1.3, linestyle="--", label="offered"
    )
    axes.step(times, [*rates[:1], *rates], where="pre", color=RATE_COLOUR, linewidth=1.6, label="simulated")
    highest = max(*offered, *rates)
    if pipeline.predicted_rate is not None:
        label = f"predicted, at most {number(pipeline.predicted_rate)}"
        if pipeline.predicted_rate <= 3 * highest:
            highest = max(highest, pipeline.predicted_rate)
            axes.axhline(pipeline.predicted_rate, color=PREDICTED_COLOUR, linewidth=1.2, linestyle=":", label=label)
        else:
            axes.plot([], [], color=PREDICTED_COLOUR, linewidth=1.2, linestyle=":", label=f"{label} (off the chart)")
    if pipeline.measured is not None:
        axes.axhline(
            pipeline.measured.sustained_rate,
            color=MEASURED_COLOUR,
            linewidth=1.2,
            linestyle="-.",
            label=f"measured {number(pipeline.measured.sustained_rate)}",
        )
        highest = max(highest, pipeline.measured.sustained_rate)
    axes.set_ylim(0, 1.12 * highest or 1.0)
    axes.set_ylabel("tuples/s", fontsize=8)
    _legend(axes)


def _draw_parts(axes: Axes, result: SimulatedResult) -> None:
    """Draw, for several pipelines, the kept part of the load offered to each."""
    highest = 1.0
    for position, pipeline in enumerate(result.pipelines[: len(COLOURS)]):
        report = pipeline.report
        parts = [moment.rate / report.offered_rate if report.offered_rate else 0.0 for moment in report.history]
        highest = max([highest, *parts])
        axes.step(
            [0.0, *(moment.seconds for moment in report.history)],
            [*parts[:1], *parts],
            where="pre",
            color=COLOURS[position],
            linestyle=STROKES[position % len(STROKES)],
            linewidth=1.5,
            label=fitted(pipeline.pipeline, 1.0, 8),
        )
    axes.set_ylim(0, 1.12 * highest)
    axes.set_ylabel("done, part of what is offered", fontsize=8)
    _legend(axes)


def _draw_simulated_backlog(axes: Axes, result: SimulatedResult) -> None:
    highest = 0
    alone = len(result.pipelines) == 1
    for position, pipeline in enumerate(result.pipelines[: len(COLOURS)]):
        times = [moment.seconds for moment in pipeline.report.history]
        waiting = [moment.backlog for moment in pipeline.report.history]
        highest = max([highest, *waiting])
        if alone:
            axes.fill_between(times, waiting, color=COLOURS[0], alpha=0.2, linewidth=0)
        axes.plot(times, waiting, color=COLOURS[position], linestyle=STROKES[position % len(STROKES)], linewidth=1.5)
    axes.set_ylim(0, max(1.12 * highest, 5.0))
    axes.set_ylabel("tuples due and not done", fontsize=8)
    axes.set_title("backlog", fontsize=8.5, loc="left", color=INK, pad=4)


def _curve(latencies: NDArray[np.float64]) -> tuple[list[float], list[float]]:
    """Return the part of tuples that took at most a number of milliseconds, at no more points than a line can show."""
    parts = np.linspace(0, 1, min(len(latencies), 500))
    return (1000 * np.quantile(latencies, parts)).tolist(), parts.tolist()


def _draw_simulated_latency(axes: Axes, pipeline: PipelineResult) -> None:
    if not len(pipeline.latencies):
        axes.text(0.5, 0.5, "nothing was delivered", transform=axes.transAxes, ha="center", fontsize=9, color=ALARM)
        return
    milliseconds, parts = _curve(pipeline.latencies)
    axes.plot(milliseconds, parts, color=RATE_COLOUR, linewidth=1.6, label="simulated")
    for label, colour, marker, figures in (
        ("predicted p50, p95, p99", PREDICTED_COLOUR, "D", pipeline.predicted_latency_ms),
        ("measured", MEASURED_COLOUR, "o", pipeline.measured.latency_ms if pipeline.measured is not None else {}),
    ):
        known = [(figures[name], part) for name, part in MARKED.items() if figures.get(name) is not None]
        if known:
            axes.plot(*zip(*known, strict=True), marker, color=colour, markersize=4.5, linestyle="none", label=label)
    _finish_latency(axes)


def _draw_latencies(axes: Axes, result: SimulatedResult) -> None:
    for position, pipeline in enumerate(result.pipelines[: len(COLOURS)]):
        if len(pipeline.latencies):
            axes.plot(
                *_curve(pipeline.latencies),
                color=COLOURS[position],
                linestyle=STROKES[position % len(STROKES)],
                linewidth=1.5,
                label=fitted(pipeline.pipeline, 1.0, 8),
            )
    _finish_latency(axes)


def _finish_latency(axes: Axes) -> None:
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("latency, milliseconds", fontsize=8, labelpad=2)
    axes.set_ylabel("part of the tuples", fontsize=8)
    left, right = axes.dataLim.x0, axes.dataLim.x1
    if left > 0 and right > 50 * left:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    _legend(axes)


def _draw_slots(axes: Axes, pipeline: PipelineResult) -> None:
    rows = {str(slot): cpu for slot, (cpu, _) in pipeline.report.slots.items()}
    predicted = {str(slot): cpu for slot, (cpu, _) in pipeline.predicted_slots.items()}
    _draw_cpu(axes, rows, predicted, "slots")


def _draw_nodes(axes: Axes, result: SimulatedResult) -> None:
    rows = {name: cpu for name, (cpu, _) in result.nodes.items()}
    predicted: dict[str, float] = {}
    for pipeline in result.pipelines:
        for slot, (cpu, _) in pipeline.predicted_slots.items():
            predicted[slot.node] = predicted.get(slot.node, 0.0) + cpu
    _draw_cpu(axes, rows, predicted, "nodes")


def _draw_cpu(axes: Axes, simulated: dict[str, float], predicted: dict[str, float], what: str) -> None:
    names = list(simulated)
    if len(names) > MOST_BARS:
        names.sort(key=lambda name: -simulated[name])
    guessed = [predicted.get(name, 0.0) for name in names]
    seen = [simulated[name] for name in names]
    places = np.arange(len(names))
    if len(names) <= MOST_BARS:
        axes.bar(places - 0.2, guessed, 0.36, color=PREDICTED_COLOUR, label="predicted")
        axes.bar(places + 0.2, seen, 0.36, color=RATE_COLOUR, label="simulated")
        slanted = len(names) > LEVEL_NAMES
        axes.set_xticks(places, names, rotation=45 if slanted else 0, ha="right" if slanted else "center")
        spare = max(0.0, (FEWEST_BARS - len(names)) / 2)
        axes.set_xlim(-0.6 - spare, len(names) - 0.4 + spare)
    else:
        axes.plot(places, guessed, ".", color=PREDICTED_COLOUR, markersize=3, label="predicted")
        axes.plot(places, seen, color=RATE_COLOUR, linewidth=1.5, label="simulated")
        axes.set_xlabel(f"{len(names):,} {what}, the busiest first", fontsize=8, labelpad=2)
    axes.set_ylim(0, 1.12 * max([*guessed, *seen, 0.0]) or 1.0)
    axes.set_ylabel(f"CPU of {what}, cores", fontsize=8)
    _legend(axes)


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            ncols=4,
            frameon=False,
            fontsize=8,
            borderaxespad=0.2,
            labelcolor=INK,
            columnspacing=1.2,
            handlelength=1.8,
        )


def _finish_simulation_axes(axes: Axes) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7.5, length=3)
