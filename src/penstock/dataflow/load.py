"""How fast sources emit over time: a row of spells, each with a rate, repeated or held at the end.

Tuple n (from 0) is due when the integral of the rate reaches n + 1: exactly R tuples leave in every second at rate R,
evenly spread, whoever asks and however often.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import BadInputError
from penstock.files import read_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Load:
    """Spells of (seconds, tuples/s). After the last spell they start again, or its rate is held."""

    spells: tuple[tuple[float, float], ...]
    repeats: bool = False

    def __post_init__(self) -> None:
        if not self.spells:
            raise BadInputError("load: expected at least one spell of seconds and tuples/s")
        for seconds, rate in self.spells:
            if not (math.isfinite(seconds) and seconds > 0):
                raise BadInputError(f"load: expected seconds above 0, found {seconds:g}")
            if not (math.isfinite(rate) and rate >= 0):
                raise BadInputError(f"load: expected tuples/s of at least 0, found {rate:g}")
        if not any(rate > 0 for _, rate in self.spells):
            raise BadInputError("load: expected at least one spell with a rate above 0")

    @classmethod
    def constant(cls, rate: float) -> Load:
        return cls(((1.0, rate),))

    @classmethod
    def on_off(cls, rate: float, on_seconds: float, off_seconds: float) -> Load:
        return cls(((on_seconds, rate), (off_seconds, 0.0)), repeats=True)

    @cached_property
    def _edges(self) -> NDArray[np.float64]:
        return np.concatenate(([0.0], np.cumsum([seconds for seconds, _ in self.spells])))

    @cached_property
    def _counts(self) -> NDArray[np.float64]:
        """Tuples due (not rounded) at every edge of the spells."""
        return np.concatenate(([0.0], np.cumsum([seconds * rate for seconds, rate in self.spells])))

    @property
    def mean_rate(self) -> float:
        """Over one round of the spells; of a load that is held at the end, its last rate."""
        return float(self._counts[-1] / self._edges[-1]) if self.repeats else self.spells[-1][1]

    @property
    def peak_rate(self) -> float:
        """The highest of all spells."""
        return max(rate for _, rate in self.spells)

    def rate_between(self, first: float, last: float) -> float:
        """Tuples/s on average from `first` to `last`, in seconds from the start."""
        if last <= first or len(self.spells) == 1:
            return self.mean_rate
        return (self.due(last) - self.due(first)) / (last - first)

    def due(self, seconds: float) -> int:
        """How many tuples are due within `seconds` of the start."""
        return math.floor(self.expected(seconds) + 1e-9)

    def expected(self, seconds: float) -> float:
        """The integral of the rate from the start: tuples due within `seconds`, not rounded."""
        if seconds <= 0:
            return 0.0
        rounds, rest = divmod(seconds, float(self._edges[-1])) if self.repeats else (0.0, seconds)
        if rest >= self._edges[-1]:
            return float(self._counts[-1]) + (rest - float(self._edges[-1])) * self.spells[-1][1]
        within = float(np.interp(rest, self._edges, self._counts))
        return rounds * float(self._counts[-1]) + within

    def due_seconds(self, first: int, last: int) -> NDArray[np.float64]:
        """When tuples `first` to `last` (exclusive) are due, in seconds from the start."""
        return self.reached(np.arange(first + 1, last + 1, dtype=float))

    def reached(self, wanted: NDArray[np.float64]) -> NDArray[np.float64]:
        """When the integral of the rate reaches each of `wanted`, all above 0: the inverse of `expected`."""
        if self.repeats:
            rounds = np.floor((wanted - 1e-9) / self._counts[-1])
            within = self._when(wanted - rounds * self._counts[-1])
            within += rounds * self._edges[-1]
            return within
        held = self.spells[-1][1]
        late = wanted > self._counts[-1]
        if late.any() and held == 0:
            raise BadInputError("load: it ends with a rate of 0 before that tuple is due")
        when = self._when(np.minimum(wanted, self._counts[-1]))
        if held:
            when += np.where(late, (wanted - self._counts[-1]) / held, 0.0)
        return when

    def _when(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """The inverse of the running count; a spell without tuples has no say in it."""
        starts = np.searchsorted(self._counts[1:], counts - 1e-9, side="left")
        left_count, left_time = self._counts[starts], self._edges[starts]
        rates = np.array([rate for _, rate in self.spells])[starts]
        when: NDArray[np.float64] = left_time + (counts - left_count) / rates
        return when

    def document(self) -> dict[str, Any]:
        return {"spells": [list(spell) for spell in self.spells], "repeats": self.repeats}


def parse_load(text: str) -> Load:
    """`100` (constant), `steps:60x100,60x200` (seconds x tuples/s, the last is held), `on-off:100,5,2` (tuples/s,
    seconds on, seconds off), or `trace:FILE.csv` (columns time and rate)."""
    kind, colon, rest = text.partition(":")
    try:
        if not colon:
            return Load.constant(float(kind))
        if kind == "steps":
            return Load(tuple(_spell(part) for part in rest.split(",")))
        if kind == "on-off":
            rate, on_seconds, off_seconds = (float(part) for part in rest.split(","))
            return Load.on_off(rate, on_seconds, off_seconds)
        if kind == "trace":
            return read_trace(Path(rest))
    except ValueError as error:
        raise BadInputError(f"load '{text}': {error}") from error
    raise BadInputError(
        f"load '{text}': expected a rate, steps:SECONDSxRATE,..., on-off:RATE,ON,OFF, or trace:FILE.csv"
    )


def _spell(text: str) -> tuple[float, float]:
    seconds, cross, rate = text.partition("x")
    if not cross:
        raise ValueError(f"expected SECONDSxRATE, found '{text}'")
    return float(seconds), float(rate)


def load_of_trace(rows: Sequence[tuple[float, float]]) -> Load:
    """A trace of (time in seconds, tuples/s from then on), times rising; the last rate is held for the mean gap."""
    times = [time for time, _ in rows]
    if len(rows) < 2:
        raise BadInputError("trace: expected at least two rows of time and tuples/s")
    for before, after in pairwise(times):
        if not after > before:
            raise BadInputError(f"trace: times must rise, found {after:g} after {before:g}")
    gaps = [after - before for before, after in pairwise(times)]
    gaps.append(sum(gaps) / len(gaps))
    return Load(tuple((gap, rate) for gap, (_, rate) in zip(gaps, rows, strict=True)))


def read_trace(path: Path) -> Load:
    """A CSV file with the columns `time` (seconds, rising) and `rate` (tuples/s from then on)."""
    lines = csv.reader(read_text(path).splitlines())
    header = [name.strip() for name in next(lines, [])]
    for column in ("time", "rate"):
        if column not in header:
            raise BadInputError(f"{path}: expected the columns time and rate, found {', '.join(header) or 'nothing'}")
    rows: list[tuple[float, float]] = []
    for cells in lines:
        if not any(cell.strip() for cell in cells):
            continue
        row = dict(zip(header, (cell.strip() for cell in cells), strict=False))
        time, rate = (_figure(row.get(column), column, path, lines.line_num) for column in ("time", "rate"))
        if rate < 0:
            raise BadInputError(f"{path}: line {lines.line_num}: rate: expected at least 0, found {rate:g}")
        if rows and time <= rows[-1][0]:
            raise BadInputError(f"{path}: line {lines.line_num}: times must rise, found {time:g} after {rows[-1][0]:g}")
        rows.append((time, rate))
    try:
        return load_of_trace(rows)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from error


def _figure(cell: str | None, column: str, path: Path, line: int) -> float:
    if not cell:
        raise BadInputError(f"{path}: line {line}: {column} is missing")
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInputError(f"{path}: line {line}: {column}: expected a number, found '{cell}'")
    return value
