"""A sheet of paper measured in inches, y downwards: boxes, lines and text. Needs matplotlib.

Boxes and lines are kept until the end and drawn as one collection per kind, so a hundred thousand of them are no
trouble.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

from penstock.base.errors import printable
from penstock.pictures.canvas import INK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.pictures.plan_page import Box

POINTS_PER_INCH = 72.0
HATCH_INK = "#4d4d4d"


Align = Literal["left", "center", "right"]


class _Text(NamedTuple):
    x: float
    y: float
    text: str
    size: float
    colour: str
    weight: str
    align: Align


class Sheet:
    """Later layers cover earlier ones; text covers everything."""

    def __init__(self) -> None:
        self._boxes: dict[tuple[int, str, str, float], list[tuple[float, float, float, float, str]]] = {}
        self._lines: dict[tuple[int, str, float], list[tuple[tuple[float, float], tuple[float, float]]]] = {}
        self._texts: list[_Text] = []

    def box(
        self, box: Box, fill: str, *, edge: str = "none", line: float = 0.0, hatch: str = "", layer: int = 1
    ) -> None:
        # Hatches take the colour of the edge, so a hatched box without an edge still needs one, of no width.
        kind = (layer, hatch, HATCH_INK if hatch else edge, line)
        self._boxes.setdefault(kind, []).append((*box, fill))

    def line(self, x: float, y: float, to_x: float, to_y: float, colour: str, width: float, layer: int = 3) -> None:
        self._lines.setdefault((layer, colour, width), []).append(((x, y), (to_x, to_y)))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        *,
        colour: str = INK,
        bold: bool = False,
        align: Align = "left",
    ) -> None:
        self._texts.append(_Text(x, y, text, size, colour, "bold" if bold else "normal", align))

    def figure(self, width: float, height: float) -> Figure:
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        for (layer, hatch, edge, line), rows in self._boxes.items():
            axes.add_collection(
                PolyCollection(
                    _corners([row[:4] for row in rows]),
                    facecolors=[row[4] for row in rows],
                    edgecolors=edge,
                    linewidths=line,
                    hatch=hatch or None,
                    zorder=layer,
                ),
                autolim=False,
            )
        for (layer, colour, line), ends in self._lines.items():
            axes.add_collection(LineCollection(ends, colors=colour, linewidths=line, zorder=layer), autolim=False)
        for x, y, text, size, colour, weight, align in self._texts:
            axes.text(
                x,
                y,
                text,
                fontsize=size,
                color=colour,
                fontweight=weight,
                ha=align,
                va="center_baseline",
                zorder=10,
            )
        return figure


def _corners(boxes: list[tuple[float, float, float, float]]) -> Any:
    """Four corners of each box. Any: the stubs of matplotlib do not know that one array is the fast way."""
    x, y, width, height = np.array(boxes, dtype=float).T
    right, bottom = x + width, y + height
    return np.stack([np.stack([x, right, right, x], 1), np.stack([y, y, bottom, bottom], 1)], axis=2)


@lru_cache(maxsize=20_000)
def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Inches."""
    font = FontProperties(size=100, weight="bold" if bold else "normal")
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width) * size / 100 / POINTS_PER_INCH


def fitted(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """Return `text`, cut with an ellipsis if it is wider than `width`; nothing if not even a letter fits."""
    text = printable(text)
    if text_width(text, size, bold=bold) <= width:
        return text
    fits, too_long = 0, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if text_width(text[:middle] + "…", size, bold=bold) <= width:
            fits = middle
        else:
            too_long = middle
    return text[:fits] + "…" if fits else ""


def first_fitting(variants: Iterable[str], width: float, size: float, *, bold: bool = False) -> str:
    """Return the first of `variants` that is not wider than `width`; the last, cut, if there is none."""
    variant = ""
    for variant in variants:
        if text_width(variant, size, bold=bold) <= width:
            return variant
    return fitted(variant, width, size, bold=bold)
