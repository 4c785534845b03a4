"""Charts as values, independent of how they are drawn.

A chart is a row of panels, a panel holds series over named categories or over numbers. Making one needs no matplotlib;
`penstock.pictures.drawings.draw_chart` draws it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Style(StrEnum):
    """The way a series is drawn. Bars and stacked bars need categories."""

    BARS = "bars"
    STACKED = "stacked"
    """Bars on top of those of the series before."""
    LINE = "line"
    POINTS = "points"
    PUBLISHED = "published"
    """Hollow diamonds: published values, in the colour of `beside` if that is given."""


@dataclass(frozen=True)
class Series:
    """Values in the order of the panel's categories (`x` empty), or at the numbers `x`. None is a gap."""

    name: str
    y: tuple[float | None, ...]
    style: Style = Style.BARS
    x: tuple[float, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    """Ends of a thin line through each value: a spread."""
    beside: str | None = None
    """The series it belongs to: drawn in its place and with its colour."""

    def __post_init__(self) -> None:
        for what, given in (("x", self.x), ("low", self.low), ("high", self.high)):
            if given and len(given) != len(self.y):
                raise BadInputError(f"series '{self.name}': {len(self.y)} values but {len(given)} of {what}")


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    categories: tuple[str, ...] = ()
    diagonal: bool = False
    """A line where x equals y."""
    log_x: bool = False
    log_y: bool = False

    def __post_init__(self) -> None:
        for series in self.series:
            if not series.x and len(series.y) != len(self.categories):
                raise BadInputError(
                    f"panel '{self.title}': series '{series.name}' has {len(series.y)} values "
                    f"for {len(self.categories)} categories"
                )


@dataclass(frozen=True)
class Chart:
    """`name` is the stem of its file."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    note: str = ""
    columns: int = 3
    """Panels side by side."""


def coloured_names(panels: Sequence[Panel]) -> list[str]:
    """Series with a colour of their own, in the order of appearance: the same name has the same in all panels."""
    return list(dict.fromkeys(series.name for panel in panels for series in panel.series if series.beside is None))


def spans_decades(series: Sequence[Series]) -> bool:
    """Whether the largest value is more than ten times the smallest, and a logarithmic axis shows both."""
    values = [value for row in series for value in row.y if value is not None]
    return bool(values) and min(values) > 0 and max(values) > 10 * min(values)
