"""Numbers to send through segments, and what came out of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.clock import now, pause
from penstock.dataflow.logic import Logic, Per
from penstock.runtime.batch import Batch, Marks
from penstock.runtime.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd

NUMBERS = pa.schema([("n", pa.int64())])


def numbers(low: int, high: int, *, tracked: bool = True) -> Batch:
    rows = pa.RecordBatch.from_arrays([pa.array(np.arange(low, high))], schema=NUMBERS)
    if not tracked:
        return Batch(rows)
    return Batch(rows, Marks(np.arange(low, high), np.full(high - low, now())))


def collected(segment: Segment, batches: Iterable[Batch]) -> dict[str, list[Batch]]:
    out: dict[str, list[Batch]] = {}
    for operator, batch in segment.process(batches):
        out.setdefault(operator, []).append(batch)
    return out


def values(batches: Sequence[Batch], column: str = "n") -> list[Any]:
    return [value for batch in batches for value in batch.rows.column(column).to_pylist()]


def with_ids(batches: Sequence[Batch]) -> Counter[tuple[int, int]]:
    """How often which id came with which number."""
    out: Counter[tuple[int, int]] = Counter()
    for batch in batches:
        assert batch.ids is not None
        out.update(zip(batch.ids.tolist(), batch.rows.column("n").to_pylist(), strict=True))
    return out


# Code in every form that does the same: multiples of 5 raise, of 3 vanish, of 4 become three rows, others one.


class FiveError(Exception):
    pass


def expected_of(n: int) -> list[int] | None:
    """None: a dead letter."""
    if n % 5 == 0:
        return None
    return [] if n % 3 == 0 else [n + 1, n + 2, n + 3] if n % 4 == 0 else [n + 1]


def by_row(row: dict[str, Any]) -> dict[str, Any] | list[dict[str, Any]] | None:
    made = expected_of(row["n"])
    if made is None:
        raise FiveError(f"{row['n']} is a multiple of 5")
    return None if not made else {"n": made[0]} if len(made) == 1 else [{"n": n} for n in made]


def by_generator(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for n in expected_of(row["n"]) or ():
        yield {"n": n}
    if row["n"] % 5 == 0:
        raise FiveError


def by_pandas(frame: pd.DataFrame) -> pd.DataFrame:
    made = frame.n.map(expected_of)
    if made.isna().any():
        raise FiveError
    return frame.assign(n=made).explode("n").dropna()


def by_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield by_pandas(frame)


FORMS = {
    "row": Logic(by_row),
    "generator": Logic(by_generator),
    "pandas": Logic(by_pandas, Per.PANDAS),
    "frames": Logic(by_frames, Per.MAP_IN_PANDAS),
}


def waits(row: dict[str, Any]) -> dict[str, Any]:
    pause(0.005)
    return row
