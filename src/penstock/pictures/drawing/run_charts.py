"""Rates, backlog and latency of a run over time, one above the other. Needs matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from penstock.pictures.canvas import FAINT_INK, INK, number
from penstock.pictures.drawing.sheet import fitted
from penstock.report.result import RunResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from penstock.dataflow.load import Load
    from penstock.report.placed_result import PlacedResult
    from penstock.report.report import Moment

WIDTH, HEIGHT = 8.4, 6.6
OFFERED_COLOUR, RATE_COLOUR, PREDICTED_COLOUR = "#AA3377", "#4477AA", "#EE7733"
BACKLOG_COLOUR, LATENCY_COLOUR = "#228833", "#4477AA"
"""Of Paul Tol's "bright" scheme, as in the charts of models; lines differ in their stroke too."""
GRID = "#e6e6e2"
SMOOTH_SECONDS = 2.0
"""The sustained rate is that of whole batches over at least so long: single batches say more about timing than rate."""


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
    """Times and rates of batches taken together until they last `SMOOTH_SECONDS`.

    A moment says the rate since the one before it, so the tuples of a stretch are the sum of rate times time over it.
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
    """None: the source is the user's own, and nobody asked it for a rate."""
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
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=3,
        frameon=False,
        fontsize=8.5,
        borderaxespad=0.2,
        labelcolor=INK,
    )


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
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, frameon=False, fontsize=8.5, borderaxespad=0.2)


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
