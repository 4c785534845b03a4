"""Panels of bars, lines and points, side by side, with one legend. Needs matplotlib."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from penstock.pictures.canvas import FAINT_INK, INK
from penstock.pictures.chart import Chart, Panel, Series, Style, coloured_names
from penstock.pictures.sheet import text_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

COLOURS = ("#4477AA", "#CC6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#888888", "#332288", "#EE7733", "#44AA99")
MARKERS = ("o", "s", "^", "v", "D", "P", "X", "<", ">", "h")
GRID = "#e6e6e2"
WIDEST = 9.6
PANEL_HEIGHT = 2.5
HEAD, FOOT = 0.82, 0.12
LEFT, RIGHT = 0.65, 0.15
GROUP = 0.8
"""Width of a group of bars, of the room a category has."""
MARKS = 20
"""Number of points of a line that get a marker, about: more of them hide it."""
STEEP = 35.0
"""Degrees by which long names of categories are turned."""


def chart_figure(chart: Chart) -> Figure:
    columns = max(1, min(chart.columns, len(chart.panels)))
    rows = math.ceil(len(chart.panels) / columns)
    names = coloured_names(chart.panels)
    room = (WIDEST - columns * (LEFT + RIGHT)) / columns
    tilted = [_is_crowded(panel, room) for panel in chart.panels]
    foot = 0.95 if any(tilted) else 0.5
    legend = _legend(chart.panels, names)
    legend = legend if len(legend) > 1 else []
    legend_rows = _legend_rows(legend)
    head = HEAD - 0.2 + 0.2 * legend_rows + (0.2 if chart.note else 0.0)
    height = head + rows * (PANEL_HEIGHT + foot + 0.35) + FOOT
    figure = Figure(figsize=(WIDEST, height))
    FigureCanvasAgg(figure)
    for position, panel in enumerate(chart.panels):
        row, column = divmod(position, columns)
        left = column * WIDEST / columns + LEFT
        top = head + 0.35 + row * (PANEL_HEIGHT + foot + 0.35)
        axes = figure.add_axes((left / WIDEST, 1 - (top + PANEL_HEIGHT) / height, room / WIDEST, PANEL_HEIGHT / height))
        _draw_panel(axes, panel, names, tilted=tilted[position])
    _draw_head(figure, chart, height, legend, legend_rows)
    return figure


def _is_crowded(panel: Panel, room: float) -> bool:
    return any(text_width(name, 8) > 0.92 * room / len(panel.categories) for name in panel.categories)


def _draw_panel(axes: Axes, panel: Panel, names: Sequence[str], *, tilted: bool) -> None:
    bars = [series.name for series in panel.series if series.style is Style.BARS]
    heights: dict[str, list[float]] = {}
    for series in panel.series:
        _draw_series(axes, series, panel, names, bars, heights)
    if panel.categories:
        axes.set_xticks(range(len(panel.categories)), panel.categories, rotation=STEEP if tilted else 0)
        if tilted:
            for label in axes.get_xticklabels():
                label.set_horizontalalignment("right")
        axes.set_xlim(-0.5, len(panel.categories) - 0.5)
    if panel.log_x:
        axes.set_xscale("log")
        _plain_logarithms(axes.xaxis)
    if panel.log_y:
        axes.set_yscale("log")
        _plain_logarithms(axes.yaxis)
    elif not panel.diagonal:
        low, high = axes.get_ylim()
        axes.set_ylim(min(0.0, low), high + 0.04 * (high - min(0.0, low)))
    if panel.diagonal:
        top = 1.05 * max(axes.get_xlim()[1], axes.get_ylim()[1])
        axes.plot([0, top], [0, top], color=FAINT_INK, linewidth=0.8, linestyle=":", zorder=1)
        axes.set_xlim(0, top)
        axes.set_ylim(0, top)
    axes.set_title(panel.title, fontsize=9.5, loc="left", color=INK)
    axes.set_xlabel(panel.x_label, fontsize=8.5)
    axes.set_ylabel(panel.y_label, fontsize=8.5)
    axes.tick_params(labelsize=8, length=3)
    axes.grid(axis="both" if not panel.categories else "y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _plain_logarithms(axis: Axis) -> None:
    """Numbers as they are, at 1, 2 and 5 of every decade."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def _draw_series(
    axes: Axes,
    series: Series,
    panel: Panel,
    names: Sequence[str],
    bars: list[str],
    heights: dict[str, list[float]],
) -> None:
    colour, marker = _look(series, names)
    places = _places(series, panel, bars)
    known = [(x, y) for x, y in zip(places, series.y, strict=True) if y is not None]
    if series.style in {Style.BARS, Style.STACKED}:
        width = 0.92 * GROUP / max(1, len(bars))
        base = (
            heights.get(series.beside or "", [0.0] * len(series.y))
            if series.style is Style.STACKED
            else [0.0] * len(series.y)
        )
        values = [0.0 if y is None else y for y in series.y]
        hatch = "////" if series.style is Style.STACKED else None
        axes.bar(
            places,
            values,
            width,
            bottom=base,
            color="white" if hatch else colour,
            edgecolor=colour,
            hatch=hatch,
            linewidth=0.8,
            zorder=2,
        )
        heights[series.name] = [low + value for low, value in zip(base, values, strict=True)]
    elif series.style is Style.LINE:
        every = max(1, len(known) // MARKS)
        axes.plot(*_columns(known), color=colour, marker=marker, markersize=4, markevery=every, linewidth=1.4, zorder=3)
    elif series.style is Style.POINTS:
        axes.scatter(
            *_columns(known), color=colour, marker=marker, s=24, linewidths=0, alpha=0.85, zorder=3, clip_on=False
        )
    else:
        axes.scatter(
            *_columns(known),
            facecolors="white",
            edgecolors=colour if series.beside else INK,
            marker="D",
            s=26,
            linewidths=1.1,
            zorder=4,
        )
    if series.low and series.high:
        for x, low, high in zip(places, series.low, series.high, strict=True):
            if low is not None and high is not None:
                axes.plot([x, x], [low, high], color=INK, linewidth=0.9, zorder=3)


def _places(series: Series, panel: Panel, bars: list[str]) -> list[float]:
    """Return positions of the values along x: at their numbers, or at their category, beside the bars of others."""
    if series.x:
        return list(series.x)
    owner = series.beside or series.name
    shift = 0.0
    if owner in bars:
        shift = GROUP * ((bars.index(owner) + 0.5) / len(bars) - 0.5)
    return [position + shift for position in range(len(panel.categories))]


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [y for _, y in pairs]


def _look(series: Series, names: Sequence[str]) -> tuple[str, str]:
    owner = series.beside if series.beside in names else series.name
    number = names.index(owner) if owner in names else 0
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]


def _legend(panels: Sequence[Panel], names: Sequence[str]) -> list[tuple[str, Artist]]:
    shown: dict[str, Artist] = {}
    for series in (drawn for panel in panels for drawn in panel.series):
        if series.name in shown:
            continue
        colour, marker = _look(series, names)
        if series.style is Style.BARS:
            shown[series.name] = Patch(facecolor=colour)
        elif series.style is Style.STACKED:
            shown[series.name] = Patch(facecolor="white", edgecolor=colour, hatch="////")
        elif series.style is Style.LINE:
            shown[series.name] = Line2D([], [], color=colour, marker=marker, markersize=4, linewidth=1.4)
        elif series.style is Style.POINTS:
            shown[series.name] = Line2D([], [], color=colour, marker=marker, markersize=5, linewidth=0)
        else:
            edge = colour if series.beside else INK
            shown[series.name] = Line2D(
                [], [], color=edge, marker="D", markerfacecolor="white", markersize=5, linewidth=0
            )
    return list(shown.items())


def _legend_columns(legend: Sequence[tuple[str, Artist]]) -> int:
    widest = max((text_width(name, 8.5) for name, _ in legend), default=1.0) + 0.6
    return max(1, min(len(legend), int((WIDEST - 0.2) / widest)))


def _legend_rows(legend: Sequence[tuple[str, Artist]]) -> int:
    return math.ceil(len(legend) / _legend_columns(legend)) if legend else 0


def _draw_head(
    figure: Figure, chart: Chart, height: float, legend: Sequence[tuple[str, Artist]], legend_rows: int
) -> None:
    figure.text(0.15 / WIDEST, 1 - 0.24 / height, chart.title, fontsize=12, weight="bold", va="center")
    under = 0.4
    if chart.note:
        figure.text(0.15 / WIDEST, 1 - 0.48 / height, chart.note, fontsize=8.5, color=FAINT_INK, va="center")
        under = 0.6
    if legend:
        figure.legend(
            handles=[handle for _, handle in legend],
            labels=[name for name, _ in legend],
            loc="upper left",
            bbox_to_anchor=(0.05 / WIDEST, 1 - under / height),
            ncols=_legend_columns(legend),
            frameon=False,
            fontsize=8.5,
            borderaxespad=0.1,
            labelspacing=0.3,
        )
