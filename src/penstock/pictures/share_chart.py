"""One bar per pipeline, level by level: the desired amount, the share, and a mark at the minimum. Needs matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from penstock.pictures.canvas import ALARM, FAINT_INK, INK, number
from penstock.pictures.sheet import fitted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from penstock.planning.sharing.contract import Tenant
    from penstock.planning.sharing.share import Sharing

WIDTH = 9.0
ROW = 0.34
SHORTEST_ROW = 0.002
HEIGHT_OF_MANY = 10.0
MOST_NAMED = 60
"""Pipelines with a row of their own to read; more of them get thin rows and no names."""
LEFT, RIGHT, TOP, BOTTOM = 2.1, 1.5, 1.0, 0.6
"""Inches around the bars."""
DESIRED_COLOUR, SHARE_COLOUR = "#d9dee4", "#4477AA"
GRID = "#e6e6e2"
BAR = 0.72
"""Height of a bar as a part of its row."""


def share_chart(sharing: Sharing) -> Figure:
    ordered = [tenant for level in sharing.tenants.levels.values() for tenant in level]
    named = len(ordered) <= MOST_NAMED
    row = ROW if named else max(SHORTEST_ROW, HEIGHT_OF_MANY / len(ordered))
    height = TOP + BOTTOM + row * len(ordered)
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes(
        (LEFT / WIDTH, BOTTOM / height, (WIDTH - LEFT - RIGHT) / WIDTH, (height - TOP - BOTTOM) / height)
    )
    _draw_bars(axes, sharing, ordered)
    _draw_levels(axes, ordered)
    axes.set_ylim(len(ordered), 0)
    axes.set_xlim(0, 1.04 * max(max(tenant.desired, sharing.nodes[tenant.name]) for tenant in ordered))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("nodes", fontsize=9)
    axes.tick_params(labelsize=8, length=3)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if named:
        axes.set_yticks(
            [position + 0.5 for position in range(len(ordered))],
            [fitted(tenant.name, LEFT - 0.25, 8.5) for tenant in ordered],
            fontsize=8.5,
            color=INK,
        )
        _draw_figures(axes, sharing, ordered)
    else:
        axes.set_yticks([])
        axes.set_ylabel(f"{len(ordered):,} pipelines, highest priority first", fontsize=9)
    _draw_head(figure, sharing, height)
    return figure


def _draw_bars(axes: Axes, sharing: Sharing, ordered: list[Tenant]) -> None:
    gap = (1 - BAR) / 2 if len(ordered) <= MOST_NAMED else 0.0

    def bars(values: list[float], inset: float) -> list[list[tuple[float, float]]]:
        return [
            [(0, row + inset), (value, row + inset), (value, row + 1 - inset), (0, row + 1 - inset)]
            for row, value in enumerate(values)
        ]

    shares = [float(sharing.nodes[tenant.name]) for tenant in ordered]
    colours = [ALARM if tenant.name in sharing.waiting else SHARE_COLOUR for tenant in ordered]
    axes.add_collection(
        PolyCollection(bars([tenant.desired for tenant in ordered], gap), facecolors=DESIRED_COLOUR, zorder=2)
    )
    axes.add_collection(PolyCollection(bars(shares, gap * 1.9), facecolors=colours, zorder=3))
    axes.vlines(
        [tenant.minimum for tenant in ordered],
        [row + gap for row in range(len(ordered))],
        [row + 1 - gap for row in range(len(ordered))],
        colors=INK,
        linewidths=1.4 if gap else 0.5,
        zorder=4,
    )


def _draw_levels(axes: Axes, ordered: list[Tenant]) -> None:
    """Draw a line at the beginning of the next priority level, and its number at the right."""
    levels = [tenant.priority for tenant in ordered]
    starts = [row for row in range(len(levels)) if row == 0 or levels[row] != levels[row - 1]]
    many = len(ordered) > MOST_NAMED and len(starts) > MOST_NAMED // 2
    for row in starts:
        if row:
            axes.axhline(row, color=FAINT_INK, linewidth=0.6, linestyle=":", zorder=1)
        if not many:
            axes.text(
                1.2,
                row + (0.5 if len(ordered) <= MOST_NAMED else 0.0),
                f"level {levels[row]}",
                transform=axes.get_yaxis_transform(),
                fontsize=8.5,
                color=FAINT_INK,
                ha="right",
                va="center" if len(ordered) <= MOST_NAMED else "top",
            )


def _draw_figures(axes: Axes, sharing: Sharing, ordered: list[Tenant]) -> None:
    for row, tenant in enumerate(ordered):
        waits = tenant.name in sharing.waiting
        text = f"{number(sharing.nodes[tenant.name])} of {tenant.desired:,}"
        axes.text(
            1.01,
            row + 0.5,
            text,
            transform=axes.get_yaxis_transform(),
            fontsize=8,
            color=ALARM if waits else INK,
            va="center",
        )


def _draw_head(figure: Figure, sharing: Sharing, height: float) -> None:
    nodes = sharing.tenants.capacity
    measures = sharing.measures
    figure.text(
        0.2 / WIDTH,
        1 - 0.28 / height,
        f"{nodes:,} nodes shared by {sharing.shares.policy}",
        fontsize=13,
        weight="bold",
        va="center",
    )
    figure.text(
        0.2 / WIDTH,
        1 - 0.54 / height,
        f"{measures.minima_missed:,} minima missed, {number(measures.unused)} nodes unused though wanted, "
        f"Jain's index {measures.jain:.3f}, fairness degree {measures.fairness:.3f}",
        fontsize=9,
        color=FAINT_INK,
        va="center",
    )
    handles = [
        Patch(facecolor=DESIRED_COLOUR, label="desired"),
        Patch(facecolor=SHARE_COLOUR, label="share"),
        Patch(facecolor=ALARM, label="share of one that waits"),
        Line2D([], [], color=INK, linewidth=1.4, label="minimum"),
    ]
    figure.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(0.1 / WIDTH, 1 - 0.8 / height),
        ncols=4,
        frameon=False,
        fontsize=8.5,
    )
