"""What an aggregation keeps of a group: small values that take rows in, add up, and can be written down.

Each is a function of the values so far, whatever order they came in, but for first and last.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from pyroaring import BitMap

from penstock.dataflow.aggregate import top_count

if TYPE_CHECKING:
    from collections.abc import Callable


class Accumulator(Protocol):
    def take(self, values: pd.Series) -> None:
        """Some values of one group, in their order."""

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
    count = top_count(function)
    return ACCUMULATORS[function]() if count is None else Top(count)


def plain(value: Any) -> Any:
    """Python's own value for one of numpy's or pandas'."""
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime()
    return value.item() if isinstance(value, np.generic) else value
