"""Offered load over time: a sequence of spells, each with a rate, repeated or held at the end.

Tuple n (from 0) is due when the integral of the rate reaches n + 1: exactly R tuples leave in every second at rate R,
evenly spread, however often it is asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.errors import BadInputError
from penstock.base.files import CsvTable, quoted
from penstock.base.tolerance import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


LEAST_SECONDS, MOST_SECONDS = 1e-6, 1e9
"""Min and max seconds of a spell."""
LEAST_RATE, MOST_RATE = 1e-6, 1e12
"""Min and max tuples/s of a spell whose rate is not 0: one in eleven days, and more than can be counted."""

FEWEST_STEPS = 4
"""Fewer rows than this say nothing about how they are spaced."""


@dataclass(frozen=True)
class Load:
    """Spells of (seconds, tuples/s). After the last spell they start again, or its rate is held."""

    spells: tuple[tuple[float, float], ...]
    repeats: bool = False

    def __post_init__(self) -> None:
        if not self.spells:
            raise BadInputError("load: expected at least one spell of seconds and tuples/s")
        for seconds, rate in self.spells:
            if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
                raise BadInputError(
                    f"load: expected spells of {LEAST_SECONDS:g} to {MOST_SECONDS:g} seconds, found {seconds:g}"
                )
            if rate != 0 and not LEAST_RATE <= rate <= MOST_RATE:
                raise BadInputError(f"load: expected 0, or {LEAST_RATE:g} to {MOST_RATE:g} tuples/s, found {rate:g}")
        if not any(rate > 0 for _, rate in self.spells):
            raise BadInputError("load: expected at least one spell with a rate above 0")

    @classmethod
    def constant(cls, rate: float) -> Load:
        return cls(((1.0, rate),))

    @classmethod
    def on_off(cls, rate: float, on_seconds: float, off_seconds: float) -> Load:
        return cls(((on_seconds, rate), (off_seconds, 0.0)), repeats=True)

    @property
    def is_steady(self) -> bool:
        """The same rate all the time."""
        return len({rate for _, rate in self.spells}) == 1

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
        """Return the number of tuples due within `seconds` of the start."""
        return math.floor(self.expected(seconds) + TOLERANCE)

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
            rounds = np.floor((wanted - TOLERANCE) / self._counts[-1])
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
        starts = np.searchsorted(self._counts[1:], counts - TOLERANCE, side="left")
        left_count, left_time = self._counts[starts], self._edges[starts]
        rates = np.array([rate for _, rate in self.spells])[starts]
        when: NDArray[np.float64] = left_time + (counts - left_count) / rates
        return when

    def document(self) -> dict[str, Any]:
        return {"spells": [list(spell) for spell in self.spells], "repeats": self.repeats}

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> Load:
        return cls(tuple((seconds, rate) for seconds, rate in document["spells"]), document["repeats"])


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


def find_gap(times: Sequence[float]) -> int | None:
    """Return the first row that comes late in a trace of evenly spaced rows: a collector was down, and the rate
    meanwhile is not known. Rows count as evenly spaced if three quarters of the steps are within a tenth of the median;
    late is half a step or more. A trace with a spacing of its own has no gaps."""
    steps = np.diff(np.asarray(times, dtype=float))
    if len(steps) < FEWEST_STEPS:
        return None
    usual = float(np.median(steps))
    if (np.abs(steps - usual) <= 0.1 * usual).mean() < 0.75:
        return None
    late = np.flatnonzero(steps >= 1.5 * usual)
    return int(late[0]) + 1 if len(late) else None


def read_trace(path: Path) -> Load:
    """A CSV file with the columns `time` (seconds, rising) and `rate` (tuples/s from then on), without gaps."""
    table = CsvTable(path)
    for column in ("time", "rate"):
        if column not in table.header:
            columns = quoted(", ".join(table.header)) or "nothing"
            raise BadInputError(f"{path}: expected the columns time and rate, found {columns}")
    rows: list[tuple[float, float]] = []
    numbers: list[int] = []
    for line, row in table.rows():
        time, rate = (_figure(row[column], column, path, line) for column in ("time", "rate"))
        if rate < 0:
            raise BadInputError(f"{path}: line {line}: rate: expected at least 0, found {rate:g}")
        if rows and time <= rows[-1][0]:
            raise BadInputError(f"{path}: line {line}: times must rise, found {time:g} after {rows[-1][0]:g}")
        rows.append((time, rate))
        numbers.append(line)
    if (gap := find_gap([time for time, _ in rows])) is not None:
        missing = f"a gap from {rows[gap - 1][0]:g} to {rows[gap][0]:g} s in rows that are evenly spaced"
        raise BadInputError(f"{path}: line {numbers[gap]}: {missing}; add the missing rows")
    try:
        return load_of_trace(rows)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from error


def _figure(cell: str, column: str, path: Path, line: int) -> float:
    if not cell:
        raise BadInputError(f"{path}: line {line}: {column} is missing")
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInputError(f"{path}: line {line}: {column}: expected a number, found '{quoted(cell)}'")
    return value
