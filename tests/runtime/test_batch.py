"""Batches and what stands beside their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.batch import UNTRACED, Batch, Marks, joined_by_schema, mixed

if TYPE_CHECKING:
    from collections.abc import Sequence


def batch(ids: Sequence[int], path: Sequence[int] | None = None) -> Batch:
    marks = Marks(
        np.array(ids, np.int64), np.array(ids, np.float64) / 10, None if path is None else np.array(path, np.int64)
    )
    return Batch(pa.RecordBatch.from_pydict({"x": pa.array(ids, pa.int64())}), marks)


def test_slices_and_parts_keep_rows_and_marks_together() -> None:
    whole = batch([3, 1, 4, 1, 5], [0, 0, 0, 7, 0])
    for part in (
        whole.slice(1, 4),
        whole.take(np.array([1, 2, 3])),
        whole.take(np.array([False, True, True, True, False])),
    ):
        assert part.rows.column("x").to_pylist() == [1, 4, 1]
        assert part.ids is not None
        assert part.path is not None
        assert part.ids.tolist() == [1, 4, 1]
        assert part.path.tolist() == [0, 0, 7]
    joined = Batch.concat([whole.slice(0, 2), batch([9]), whole.slice(2, 5)])
    assert joined.rows.column("x").to_pylist() == [3, 1, 9, 4, 1, 5]
    assert joined.path is not None
    assert joined.path.tolist() == [0, 0, 0, 0, 7, 0]


def test_paths_are_the_same_whether_mixed_in_python_or_in_64_bits() -> None:
    # ((path + 1) * 1000003 + step * 8191 + 7) mod 2^62, in numbers of any size
    for path in (0, 12345, (1 << 62) - 1):
        for step in (1, -1, -1000):
            by_hand = ((path + 1) * 1_000_003 + step * 8_191 + 7) % (1 << 62)
            assert mixed(np.array([path]), step).tolist() == [by_hand]


def test_the_only_way_between_two_leaves_no_trace() -> None:
    assert batch([1, 2]).along(0).path is None
    path = batch([1, 2]).along(3).path
    assert path is not None
    assert path.tolist() == mixed(np.zeros(2, np.int64), 3).tolist()


def test_children_descend_from_their_parents() -> None:
    marks = batch([10, 11, 12]).marks
    kept = marks.of_children(np.array([0, 2]))
    assert kept.ids is not None
    assert kept.ids.tolist() == [10, 12]
    assert kept.path is None, "one row of each: nothing to tell apart"
    several = marks.of_children(np.array([1, 0, 1, UNTRACED, UNTRACED]))
    assert several.ids is not None
    assert several.path is not None
    assert several.due is not None
    assert several.ids.tolist() == [11, 10, 11, UNTRACED, UNTRACED]
    zero = np.zeros(1, np.int64)
    assert several.path.tolist() == [mixed(zero, -1)[0], 0, mixed(zero, -2)[0], 0, 0]
    assert several.due.tolist() == [1.1, 1.0, 1.1, 1.0, 1.0], "what cannot be traced is due as early as any"


@given(st.lists(st.integers(0, 9), max_size=40))
def test_no_two_children_share_id_and_path(parents: list[int]) -> None:
    made = batch(range(10)).marks.of_children(np.array(parents, np.int64))
    assert made.ids is not None
    path = np.zeros(len(parents), np.int64) if made.path is None else made.path
    assert made.ids.tolist() == parents
    assert len(set(zip(made.ids.tolist(), path.tolist(), strict=True))) == len(parents)


def test_untracked_stays_untracked() -> None:
    plain = Batch(pa.RecordBatch.from_pydict({"x": [1, 2, 3]}))
    assert plain.along(2).slice(0, 2).take(np.array([1])).marks == Marks()
    assert plain.marks.of_children(np.array([0, 0])) == Marks()


def test_batches_of_other_columns_are_not_joined() -> None:
    other = Batch(pa.RecordBatch.from_pydict({"y": [1.0]}), batch([7]).marks)
    joined = joined_by_schema([batch([1]), batch([2, 3]), other, batch([4])])
    assert [part.rows.to_pydict() for part in joined] == [{"x": [1, 2, 3]}, {"y": [1.0]}, {"x": [4]}]
    assert joined_by_schema([]) == []


def test_batches_of_which_other_things_are_known_are_not_joined() -> None:
    plain = Batch(batch([8]).rows)
    without_due = Batch(batch([9]).rows, Marks(np.array([9])))
    joined = joined_by_schema([batch([1]), batch([2], [7]), plain, plain, without_due])
    assert [len(part) for part in joined] == [2, 2, 1]
    assert [(part.ids is None, part.due is None) for part in joined] == [(False, False), (True, True), (False, True)]
