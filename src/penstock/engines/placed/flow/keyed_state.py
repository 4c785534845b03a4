"""A keyed aggregation with its state in key groups: rows in, groups out once an epoch, state written down by group.

Windows are stretches of event time (that of the row's field `time`, or when its source tuple was due) or of processing
time (when the row came here). The watermark is the latest moment seen when the last epoch ended, less what rows may be
late, or, of processing time, that moment itself; a window is over once the watermark has passed its end, and rows that
come for it later are counted and dropped.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from pyroaring import BitMap

from penstock.dataflow.aggregate import Emit, WindowTime, ranking_count, top_count
from penstock.engines.placed.flow.layout import KEY_GROUPS, group_of
from penstock.runtime.dead_letters import StoppedError
from penstock.runtime.row_values import hash_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.dataflow.aggregate import Aggregate
    from penstock.runtime.batch import Batch


# State of an aggregation's group: small values that take rows in, accumulate, and can be serialised.
#
# Each is a function of the values so far, whatever order they came in, but for first and last.


class Accumulator(Protocol):
    def take(self, values: Any) -> None:
        """Take in values of one group, in their order: a Series of pandas, or a frame if the function has two
        fields."""

    def result(self) -> Any: ...

    def dump(self) -> Any:
        """What JSON can say, and `load` understands."""

    def load(self, kept: Any) -> None: ...


class Count:
    """Rows; of a field, those that are not null."""

    def __init__(self) -> None:
        self.n = 0

    def take(self, values: pd.Series) -> None:
        self.n += int(values.notna().sum())

    def result(self) -> Any:
        return self.n

    def dump(self) -> Any:
        return self.n

    def load(self, kept: Any) -> None:
        self.n = kept


class _Kept:
    """One value so far; null until there is one."""

    def __init__(self) -> None:
        self.value: Any = None

    def take(self, values: pd.Series) -> None:
        values = values.dropna()
        if len(values):
            taken = self.of(values)
            self.value = taken if self.value is None else self.join(self.value, taken)

    def of(self, values: pd.Series) -> Any:
        raise NotImplementedError

    def join(self, before: Any, taken: Any) -> Any:
        raise NotImplementedError

    def result(self) -> Any:
        return self.value

    def dump(self) -> Any:
        return self.value

    def load(self, kept: Any) -> None:
        self.value = kept


class Sum(_Kept):
    def of(self, values: pd.Series) -> Any:
        return plain(values.sum())

    def join(self, before: Any, taken: Any) -> Any:
        return before + taken


class Least(_Kept):
    def of(self, values: pd.Series) -> Any:
        return plain(values.min())

    def join(self, before: Any, taken: Any) -> Any:
        return min(before, taken)


class Greatest(_Kept):
    def of(self, values: pd.Series) -> Any:
        return plain(values.max())

    def join(self, before: Any, taken: Any) -> Any:
        return max(before, taken)


class First(_Kept):
    def of(self, values: pd.Series) -> Any:
        return plain(values.iloc[0])

    def join(self, before: Any, taken: Any) -> Any:
        return before


class Last(_Kept):
    def of(self, values: pd.Series) -> Any:
        return plain(values.iloc[-1])

    def join(self, before: Any, taken: Any) -> Any:
        return taken


class Spread:
    """Mean and standard deviation. Two stretches add up without losing digits (Chan, Golub, LeVeque 1979):
    `M2 = M2_a + M2_b + d^2 * n_a * n_b / (n_a + n_b)` with `d = mean_b - mean_a`."""

    def __init__(self) -> None:
        self.n, self.mean, self.m2 = 0, 0.0, 0.0

    def take(self, values: pd.Series) -> None:
        numbers = values.dropna().to_numpy(float)
        if not len(numbers):
            return
        n, mean = len(numbers), float(numbers.mean())
        m2 = float(((numbers - mean) ** 2).sum())
        total, apart = self.n + n, mean - self.mean
        self.m2 += m2 + apart * apart * self.n * n / total
        self.mean += apart * n / total
        self.n = total

    def dump(self) -> Any:
        return [self.n, self.mean, self.m2]

    def load(self, kept: Any) -> None:
        self.n, self.mean, self.m2 = kept

    def result(self) -> Any:
        raise NotImplementedError


class Mean(Spread):
    def result(self) -> Any:
        return self.mean if self.n else None


class Deviation(Spread):
    """Of a sample: `sqrt(M2 / (n - 1))`; of one value there is none, as Spark has it."""

    def result(self) -> Any:
        return math.sqrt(self.m2 / (self.n - 1)) if self.n > 1 else None


class Distinct:
    """Hashes of 32 bits in a roaring bitmap. Of n values, `n^2 / 2^33` pairs share a hash: the count is corrected by
    that, `-2^32 * ln(1 - m / 2^32)` for m hashes."""

    def __init__(self) -> None:
        self.hashes = BitMap()

    def take(self, values: pd.Series) -> None:
        present = values.dropna()
        if len(present):
            hashed = pd.util.hash_array(present.to_numpy(), categorize=False)
            self.hashes.update((hashed >> np.uint64(32)).astype(np.uint32))

    def result(self) -> Any:
        return round(-(2.0**32) * math.log1p(-len(self.hashes) / 2.0**32))

    def dump(self) -> Any:
        self.hashes.run_optimize()
        return base64.b64encode(self.hashes.serialize()).decode()

    def load(self, kept: Any) -> None:
        self.hashes = BitMap.deserialize(base64.b64decode(kept))


class Top:
    """The `count` greatest values, the greatest first."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.values: list[Any] = []

    def take(self, values: pd.Series) -> None:
        values = values.dropna()
        if len(values) > self._count:
            values = values.sort_values(ascending=False).iloc[: self._count]
        self.values = sorted((*self.values, *map(plain, values)), reverse=True)[: self._count]

    def result(self) -> Any:
        return list(self.values)

    def dump(self) -> Any:
        return self.values

    def load(self, kept: Any) -> None:
        self.values = list(kept)


Ranked = tuple[int, str]


class Ranking:
    """The `count` values with the greatest numbers, the greatest first and then by name, as JSON."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.ranked: list[Ranked] = []

    def take(self, values: Any) -> None:
        if isinstance(values, pd.Series):
            pairs = [pair for text in values.dropna() for pair in _pairs_of(text)]
        else:
            pairs = [(int(number), str(name)) for number, name in values.dropna().itertuples(index=False)]
        self.ranked = sorted([*self.ranked, *pairs], key=lambda pair: (-pair[0], pair[1]))[: self._count]

    def result(self) -> Any:
        return json.dumps(
            [{"count": number, "value": name} for number, name in self.ranked],
            separators=(",", ":"),
            ensure_ascii=False,
        )

    def dump(self) -> Any:
        return [list(pair) for pair in self.ranked]

    def load(self, kept: Any) -> None:
        self.ranked = [(number, name) for number, name in kept]


def _pairs_of(text: str) -> list[Ranked]:
    """Return the pairs of a ranking in JSON. Text that is no ranking has none, as in Spark."""
    try:
        return [(int(pair["count"]), str(pair["value"])) for pair in json.loads(text)]
    except (ValueError, TypeError, KeyError):
        return []


ACCUMULATORS: dict[str, Callable[[], Accumulator]] = {
    "count": Count,
    "sum": Sum,
    "avg": Mean,
    "min": Least,
    "max": Greatest,
    "first": First,
    "last": Last,
    "stddev": Deviation,
    "approx_count_distinct": Distinct,
}
"""By the name of the function an aggregate declares."""


def accumulator(function: str) -> Accumulator:
    """What keeps the value of a function of a group."""
    if (ranked := ranking_count(function)) is not None:
        return Ranking(ranked)
    count = top_count(function)
    return ACCUMULATORS[function]() if count is None else Top(count)


def plain(value: Any) -> Any:
    """Python's own value for one of numpy's or pandas'."""
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime()
    return value.item() if isinstance(value, np.generic) else value


Key = tuple[Any, ...]
"""The key's values, and the start of the window where there are windows."""

_GROUP, _START, _DUE, _ROWS = "penstock group", "penstock window", "penstock due", "penstock rows"
FOLD_ROWS = 8192
_TIME = "penstock time"
"""Which window a row falls into."""


@dataclass
class _Entry:
    values: list[Accumulator]
    due: float


@dataclass
class KeyedState:
    aggregate: Aggregate
    groups: tuple[int, int] = (0, KEY_GROUPS)
    """Those it answers for: from, to before."""
    watermark: float = -math.inf
    late: int = 0
    """Rows that came too late, since it was last asked."""
    _groups: dict[int, dict[Key, _Entry]] = field(default_factory=dict)
    _changed: dict[int, set[Key]] = field(default_factory=dict)
    _touched: set[int] = field(default_factory=set)
    """Groups whose state is not what was last written down."""
    _latest: float = -math.inf
    _waiting: list[pd.DataFrame] = field(default_factory=list)
    """Rows that are not in their groups yet; they are before anybody looks at those."""
    _rows_waiting: int = 0

    def take(self, batch: Batch, moment: float = 0.0) -> None:
        """Rows that came at `moment`, in seconds since the epoch."""
        frame = self._frame(batch, moment)
        if not len(frame):
            return
        self._latest = max(self._latest, float(frame[_TIME].max()))
        if self.aggregate.window_seconds is not None:
            frame = self._in_windows(frame)
            if not len(frame):
                return
        outside = (frame[_GROUP] < self.groups[0]) | (frame[_GROUP] >= self.groups[1])
        if outside.any():
            raise StoppedError(
                f"keys {', '.join(self.aggregate.keys)}: rows of other groups came here; do the columns sent have the "
                "types of the aggregate's fields?"
            )
        self._waiting.append(frame)
        self._rows_waiting += len(frame)
        if self._rows_waiting >= FOLD_ROWS:
            self._fold()

    def _fold(self) -> None:
        """What waits, taken into its groups: many rows at once cost little more than a few."""
        if not self._waiting:
            return
        frame = self._waiting[0] if len(self._waiting) == 1 else pd.concat(self._waiting, ignore_index=True)
        self._waiting, self._rows_waiting = [], 0
        calls = list(self.aggregate.calls().values())
        by = [_GROUP, *self.aggregate.keys, *([_START] if self.aggregate.window_seconds is not None else [])]
        for values_of_key, rows in frame.groupby(by, sort=False, dropna=False):
            group, key = int(values_of_key[0]), tuple(_key(value) for value in values_of_key[1:])
            entries = self._groups.setdefault(group, {})
            entry = entries.get(key)
            if entry is None:
                entry = entries[key] = _Entry([accumulator(function) for function, _ in calls], -math.inf)
            for value, (_, names) in zip(entry.values, calls, strict=True):
                value.take(rows[list(names)] if len(names) > 1 else rows[names[0] if names else _ROWS])
            entry.due = max(entry.due, float(rows[_DUE].max()))
            self._changed.setdefault(group, set()).add(key)
            self._touched.add(group)

    def _frame(self, batch: Batch, moment: float) -> pd.DataFrame:
        names = list(self.aggregate.columns)
        frame = batch.rows.select(names).to_pandas()
        frame[_GROUP] = group_of(hash_rows(batch.rows, self.aggregate.keys))
        frame[_DUE] = batch.due if batch.due is not None else np.zeros(len(batch))
        frame[_ROWS] = 1
        frame[_TIME] = self._time(frame, moment)
        if self.aggregate.time is None:
            return frame
        # a row without a time falls into no window
        timed = frame[frame[_TIME].notna()]
        self.late += len(frame) - len(timed)
        return timed

    def _time(self, frame: pd.DataFrame, moment: float) -> Any:
        if self.aggregate.window_time is WindowTime.PROCESSING:
            return moment
        if self.aggregate.time is None:
            return frame[_DUE]
        column = frame[self.aggregate.time]
        if pd.api.types.is_numeric_dtype(column):
            return column.astype(float)
        return (pd.to_datetime(column, utc=True) - pd.Timestamp(0, tz="UTC")).dt.total_seconds()

    def _in_windows(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A copy of every row for each window it falls into; those of windows that are over are late.

        Windows start at whole multiples of the slide; t falls into those with `start <= t < start + length`.
        """
        length = self.aggregate.window_seconds or 0.0
        slide = self.aggregate.slide_seconds or length
        times = frame[_TIME].to_numpy(float)
        newest = np.floor(times / slide) * slide
        parts = []
        for back in range(math.ceil(length / slide)):
            start = newest - back * slide
            within = (times < start + length) & (start + length > self.watermark)
            parts.append(frame[within].assign(**{_START: start[within]}))
        self.late += int((newest + length <= self.watermark).sum())
        return pd.concat(parts, ignore_index=True)

    def end_epoch(self, moment: float = 0.0) -> tuple[list[dict[str, Any]], list[float]]:
        """Rows to send on, and when each was due; windows that are over at `moment` are forgotten."""
        self._fold()
        rows: list[dict[str, Any]] = []
        due: list[float] = []
        if self.aggregate.emit is Emit.UPDATES:
            for group, keys in self._changed.items():
                for key in keys:
                    rows.append(self._row(key, self._groups[group][key]))
                    due.append(self._groups[group][key].due)
        self._changed = {}
        if self.aggregate.window_seconds is not None:
            by_clock = self.aggregate.window_time is WindowTime.PROCESSING
            reached = moment if by_clock else self._latest - self.aggregate.late_seconds
            self.watermark = max(self.watermark, reached)
            for group, entries in self._groups.items():
                for key in [key for key in entries if key[-1] + self.aggregate.window_seconds <= self.watermark]:
                    entry = entries.pop(key)
                    self._touched.add(group)
                    if self.aggregate.emit is Emit.CLOSED:
                        rows.append(self._row(key, entry))
                        due.append(entry.due)
        return rows, due

    def _row(self, key: Key, entry: _Entry) -> dict[str, Any]:
        row = dict(zip(self.aggregate.keys, key, strict=False))
        if self.aggregate.window_seconds is not None:
            row |= {"window_start": key[-1], "window_end": key[-1] + self.aggregate.window_seconds}
        return row | {name: value.result() for name, value in zip(self.aggregate.outputs, entry.values, strict=True)}

    # Written down.

    def dump_touched(self) -> dict[int, Any]:
        """The groups that changed since the last time, whole."""
        self._fold()
        touched, self._touched = self._touched, set()
        return {
            group: {
                "watermark": None if self.watermark == -math.inf else self.watermark,
                "entries": [
                    [list(key), entry.due, [value.dump() for value in entry.values]]
                    for key, entry in self._groups.get(group, {}).items()
                ],
            }
            for group in sorted(touched)
        }

    def load(self, groups: Mapping[int, Any]) -> None:
        functions = [function for function, _ in self.aggregate.calls().values()]
        for group, kept in groups.items():
            entries = self._groups[group] = {}
            if kept["watermark"] is not None:
                self.watermark = max(self.watermark, kept["watermark"])
                self._latest = max(self._latest, self.watermark + self.aggregate.late_seconds)
            for key, due, dumped in kept["entries"]:
                values = [accumulator(function) for function in functions]
                for value, kept_value in zip(values, dumped, strict=True):
                    value.load(kept_value)
                entries[tuple(key)] = _Entry(values, due)

    def __len__(self) -> int:
        self._fold()
        return sum(len(entries) for entries in self._groups.values())


def _key(value: Any) -> Any:
    """A missing value is None, so that it equals itself."""
    return None if value is None or (isinstance(value, float) and math.isnan(value)) else plain(value)
