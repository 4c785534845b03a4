"""Many threads, random delays, errors and hanging calls: every row comes out once, is filtered, or is a dead letter.

PENSTOCK_STRESS_SEEDS=200 python -m pytest tests/runtime/test_segment_stress.py
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from segment_builders import NUMBERS, numbers, values

from penstock.base.clock import pause
from penstock.dataflow.logic import Logic, Per
from penstock.runtime.dead_letters import DEAD_LETTERS
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.runtime.steps import Read, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import pyarrow as pa

    from penstock.runtime.batch import Batch

SEEDS = range(int(os.environ.get("PENSTOCK_STRESS_SEEDS", "8")))
ROWS = 3000
LIMIT_SECONDS = 0.25


class FateError(BaseException):
    """No `Exception`, as libraries in other languages raise."""


@dataclass(frozen=True)
class Fates:
    """What becomes of every row at one operator, by its number; drawn once, so that any thread finds the same."""

    raises: frozenset[int]
    vanishes: frozenset[int]
    hangs: frozenset[int]
    delays: tuple[float, ...]
    released: threading.Event

    def meet(self, number: int) -> bool:
        """Return whether the row stays."""
        pause(self.delays[number % len(self.delays)])
        if number in self.hangs:
            self.released.wait()
        if number in self.raises:
            raise FateError(number)
        return number not in self.vanishes

    def by_row(self, row: dict[str, Any]) -> dict[str, Any] | None:
        return dict(row) if self.meet(row["n"]) else None

    def by_generator(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self.meet(row["n"]):
            yield row

    def by_pandas(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[[self.meet(number) for number in frame.n]]

    def by_frames(self, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return map(self.by_pandas, frames)

    def by_arrow(self, table: pa.Table) -> pa.Table:
        """Rows that vanish would leave the others without their ids."""
        for number in table["n"].to_pylist():
            self.meet(number)
        return table


def drawn(random: np.random.Generator, position: int) -> tuple[Step, Fates]:
    """An operator of any kind, with 1 to 64 threads. Hundreds of rows raise or vanish, a few of code per row hang."""
    form = str(random.choice(["row", "row", "generator", "pandas", "frames", "arrow"]))
    is_per_row = form in ("row", "generator")
    threads = int(random.choice([1, 2, 5, 16, 64] if is_per_row else [1, 2, 4]))
    some = random.permutation(ROWS)
    delays = random.choice([0.0, 0.0, 0.0, 0.0, 0.0005, 0.002], 97) if is_per_row else np.zeros(1)
    hangs = some[:3] if is_per_row else some[:0]
    raises = some[10:110] if is_per_row else some[10:14]
    fates = Fates(
        frozenset(raises.tolist()),
        frozenset(some[200:500].tolist() if form != "arrow" else ()),
        frozenset(hangs.tolist()),
        tuple(delays.tolist()),
        threading.Event(),
    )
    code = {
        "row": Logic(fates.by_row, timeout_seconds=LIMIT_SECONDS),
        "generator": Logic(fates.by_generator, timeout_seconds=LIMIT_SECONDS),
        "pandas": Logic(fates.by_pandas, Per.PANDAS),
        "frames": Logic(fates.by_frames, Per.MAP_IN_PANDAS),
        "arrow": Logic(fates.by_arrow, Per.ARROW),
    }[form]
    return Step(f"{form} {position} of {threads}", code, threads, (Read(position - 1),), NUMBERS), fates


def batches(random: np.random.Generator) -> list[Batch]:
    edges = [0, *sorted(random.choice(np.arange(1, ROWS), 12, replace=False).tolist()), ROWS]
    return [numbers(low, high) for low, high in pairwise(edges)]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_row_is_lost_and_none_is_doubled(seed: int) -> None:
    random = np.random.default_rng(seed)
    made = [drawn(random, position) for position in range(int(random.integers(1, 4)))]
    steps = [step for step, _ in made]
    steps.append(Step("sink", reads=(Read(len(steps) - 1),), leaves=True, delivers=True))
    fed = seed % 2 == 1
    left: list[tuple[str, Batch]] = []
    options = SegmentOptions(audit=True, emit_dead_letters=True, queue_rows=int(random.choice([1, 50, 5000])))
    segment = Segment(steps, options, (lambda operator, batch: left.append((operator, batch))) if fed else None)
    try:
        if fed:
            for batch in batches(random):
                segment.feed(batch)
            segment.flush()
        else:
            left += segment.process(batches(random))
        account = segment.take_account()
    finally:
        for _, fates in made:
            fates.released.set()
        segment.close()

    out = Counter(number for name, batch in left if name == "sink" for number in values([batch]))
    dead = Counter(
        number for name, batch in left if name == DEAD_LETTERS for number in values([batch], "id") if number >= 0
    )
    assert account.ids is not None
    filtered = set(account.ids.filtered)
    assert max(out.values()) == 1
    assert max(dead.values(), default=1) == 1
    assert not set(out) & set(dead)
    assert not filtered & (set(out) | set(dead))
    assert set(out) | set(dead) | filtered == set(range(ROWS))
    # each as it was drawn at the first operator that it did not pass, unless its call took too long on a busy machine
    late = {number for operator, number, error in account.errors if "took longer" in error and number is not None}
    alive, expected_dead, expected_filtered = set(range(ROWS)), set[int](), set[int]()
    for _, fates in made:
        expected_dead |= alive & (fates.raises | fates.hangs)
        alive -= expected_dead
        expected_filtered |= alive & fates.vanishes
        alive -= expected_filtered
    if account.dead == len(expected_dead):
        assert set(dead) == expected_dead
        assert filtered == expected_filtered
    else:
        assert late, "more dead letters than drawn, and no call took too long"
        assert set(dead) >= expected_dead - filtered
