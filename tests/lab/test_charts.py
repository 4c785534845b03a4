"""Charts as values and as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.errors import BadInputError
from penstock.pictures.chart import Chart, Panel, Series, Style, coloured_names
from penstock.pictures.drawings import draw_chart

SERIES = (
    Series("ours", (1.0, None, 3.0), low=(0.5, None, 2.0), high=(1.5, None, 4.0)),
    Series("added", (1.0, 1.0, 0.0), Style.STACKED, beside="ours"),
    Series("theirs", (2.0, 2.0, 2.0)),
    Series("published", (2.5, None, 2.5), Style.PUBLISHED, beside="theirs"),
)
BARS = Panel("bars", "x", "y", SERIES, ("a", "b", "a name that is long enough to be turned"))
LINES = Panel(
    "lines",
    "x",
    "y",
    (Series("ours", (1.0, 10.0), Style.LINE, x=(1.0, 100.0)), Series("p", (5.0,), Style.POINTS, x=(7.0,))),
    log_x=True,
    log_y=True,
)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_chart_is_drawn_the_same_every_time(tmp_path: Path, ending: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"chart.{ending}"
    draw_chart(Chart("chart", "A title", (BARS, LINES, BARS), "a note", columns=2), path)
    first = path.read_bytes()
    draw_chart(Chart("chart", "A title", (BARS, LINES, BARS), "a note", columns=2), path)
    assert path.read_bytes() == first
    if ending == "svg":
        assert all(word in first.decode() for word in ("A title", "a note", "theirs", "published"))


def test_what_belongs_to_another_series_has_no_colour_of_its_own() -> None:
    assert coloured_names([BARS, LINES]) == ["ours", "theirs", "p"]


def test_values_and_places_must_match() -> None:
    with pytest.raises(BadInputError, match="series 's': 2 values but 1 of x"):
        Series("s", (1.0, 2.0), Style.LINE, x=(1.0,))
    with pytest.raises(BadInputError, match="series 's' has 1 values for 2 categories"):
        Panel("p", "", "", (Series("s", (1.0,)),), ("a", "b"))
