"""Small charts of models, side by side: rate above, CPU and memory below, over threads. Needs matplotlib."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from penstock.pictures.canvas import FAINT_INK, INK, number
from penstock.pictures.sheet import fitted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from penstock.modelling.model import Model

MOST_COLUMNS = 4
CHART_WIDTH, CHART_HEIGHT = 3.5, 3.6
TOP, BOTTOM = 0.75, 0.1
"""Inches for the title and the legend, and below the last row."""
RATE_COLOUR, CPU_COLOUR, MEMORY_COLOUR = "#4477AA", "#228833", "#AA3377"
"""Colours of Paul Tol's "bright" scheme; colour-blind readers can tell them apart, and markers differ too."""
PEAK_COLOUR = "#EE7733"
GRID = "#e6e6e2"
BEYOND = 1.15
"""Part by which the chart continues after the last point, in which a model is flat."""


def model_charts(models: Sequence[Model]) -> Figure:
    columns = _columns(len(models))
    rows = math.ceil(len(models) / columns)
    width, height = max(7.2, columns * CHART_WIDTH), rows * CHART_HEIGHT + TOP + BOTTOM
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    figure.text(
        0.3 / width, 1 - 0.28 / height, "What one slot can do, by its threads", fontsize=14, weight="bold", va="center"
    )
    _draw_legend(figure, width, height)
    chart_width = width / columns
    for place, model in enumerate(models):
        left = place % columns * chart_width
        top = height - TOP - place // columns * CHART_HEIGHT
        _draw_model(figure, model, left, top, chart_width)
    return figure


def _columns(models: int) -> int:
    """Return the number of columns that leaves the fewest empty cells; of several the largest."""
    most = min(models, max(MOST_COLUMNS, math.ceil(math.sqrt(models))))
    fewest = max(1, most - 1) if models > most else most
    return min(range(fewest, most + 1), key=lambda columns: (-models % columns, -columns))


def _draw_legend(figure: Figure, width: float, height: float) -> None:
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=4, linewidth=1.4, label=label)
        for colour, marker, label in (
            (RATE_COLOUR, "o", "peak rate"),
            (CPU_COLOUR, "s", "CPU"),
            (MEMORY_COLOUR, "^", "memory"),
        )
    ]
    peak = Line2D([], [], linestyle="none", marker="o", markersize=9, label="highest rate")
    peak.set(markerfacecolor="none", markeredgecolor=PEAK_COLOUR)
    flat = Line2D([], [], color=FAINT_INK, linewidth=1.2, linestyle=":", label="beyond what was measured")
    figure.legend(
        handles=[*handles, peak, flat],
        loc="center left",
        bbox_to_anchor=(0.2 / width, 1 - 0.56 / height),
        ncols=5,
        frameon=False,
        fontsize=8.5,
        handlelength=2.2,
        columnspacing=1.5,
    )


def _draw_model(figure: Figure, model: Model, left: float, top: float, width: float) -> None:
    """Two panels with one x axis; `left` and `top` are inches from the left and the bottom of the page."""
    page_width, page_height = figure.get_size_inches()

    def panel(upper: float, lower: float, sharing: Axes | None = None) -> Axes:
        height = (lower - upper) / page_height
        box = ((left + 0.68) / page_width, (top - lower) / page_height, (width - 0.88) / page_width, height)
        return figure.add_axes(box, sharex=sharing)

    def text(down: float, words: str, size: float, weight: str, colour: str) -> None:
        x, y = (left + 0.68) / page_width, (top - down) / page_height
        figure.text(x, y, words, fontsize=size, weight=weight, color=colour, va="center_baseline")

    room = width - 0.88
    text(0.20, fitted(model.name, room, 10, bold=True), 10, "bold", INK)
    text(0.38, fitted(_peak(model), room, 8), 8, "normal", FAINT_INK)
    last = model.points[-1].threads
    end = max(last * BEYOND, last + 0.5)
    rates = panel(0.52, 2.02)
    _draw_rates(rates, model, end)
    shares = panel(2.14, 3.08, sharing=rates)
    _draw_shares(shares, model, end)
    for axes in (rates, shares):
        axes.yaxis.set_label_coords(-0.43 / room, 0.5)


def _peak(model: Model) -> str:
    threads = f"{model.peak_threads} thread" + ("" if model.peak_threads == 1 else "s")
    return f"highest: {number(model.peak_rate)}/s with {threads}"


def _draw_rates(axes: Axes, model: Model, end: float) -> None:
    points = model.points
    _draw_curve(
        axes,
        [point.threads for point in points],
        [point.rate for point in points],
        [point.rate_spread for point in points],
        RATE_COLOUR,
        "o",
        end,
    )
    axes.plot(
        [model.peak_threads] * 2, [0, model.peak_rate], color=PEAK_COLOUR, linewidth=0.8, linestyle="--", zorder=1
    )
    axes.plot(
        model.peak_threads,
        model.peak_rate,
        marker="o",
        markersize=9,
        markerfacecolor="none",
        markeredgecolor=PEAK_COLOUR,
        clip_on=False,
        zorder=4,
    )
    highest = max(point.rate + (point.rate_spread or 0.0) for point in points)
    axes.set_ylim(0, 1.15 * highest)
    axes.set_ylabel("tuples/s", fontsize=8)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: _short(rate)))
    axes.tick_params(labelbottom=False)


def _short(rate: float) -> str:
    """A rate beside the axis: "60k" where figures would run into the label."""
    if rate >= 1e6:
        return f"{rate / 1e6:g}M"
    return f"{rate / 1e3:g}k" if rate >= 1e4 else number(rate)


def _draw_shares(axes: Axes, model: Model, end: float) -> None:
    points = model.points
    threads = [point.threads for point in points]
    cpu, memory = [point.cpu for point in points], [point.memory for point in points]
    axes.axhline(1.0, color=FAINT_INK, linewidth=0.8, zorder=1)
    _draw_curve(axes, threads, cpu, [point.cpu_spread for point in points], CPU_COLOUR, "s", end)
    _draw_curve(axes, threads, memory, [point.memory_spread for point in points], MEMORY_COLOUR, "^", end)
    axes.set_xlim(0, end)
    highest = max(
        max(point.cpu + (point.cpu_spread or 0), point.memory + (point.memory_spread or 0)) for point in points
    )
    axes.set_ylim(0, 1.1 * max(1.0, highest))
    axes.set_ylabel("of a slot", fontsize=8)
    axes.set_xlabel("threads", fontsize=8, labelpad=2)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _draw_curve(
    axes: Axes,
    threads: Sequence[int],
    values: Sequence[float],
    spreads: Sequence[float | None],
    colour: str,
    marker: str,
    end: float,
) -> None:
    """Draw from 0 at 0 threads through the measured points, then flat; dotted beyond measurements."""
    axes.plot([0, threads[0]], [0, values[0]], color=colour, linewidth=1.2, linestyle=":", zorder=2)
    axes.plot([threads[-1], end], [values[-1]] * 2, color=colour, linewidth=1.2, linestyle=":", zorder=2)
    axes.plot(threads, values, color=colour, linewidth=1.4, marker=marker, markersize=4, zorder=3)
    known = [(x, y, spread) for x, y, spread in zip(threads, values, spreads, strict=True) if spread]
    if known:
        xs, ys, errors = zip(*known, strict=True)
        axes.errorbar(xs, ys, yerr=errors, fmt="none", ecolor=colour, elinewidth=1.0, capsize=3, zorder=3)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7.5, length=3)
