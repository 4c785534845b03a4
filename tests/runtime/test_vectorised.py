"""Which row came from which, for what people do with frames and tables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.dataflow.logic import Logic, Per
from penstock.runtime.account import Account
from penstock.runtime.batch import Batch, Marks
from penstock.runtime.dead_letters import DEAD_LETTERS, StoppedError
from penstock.runtime.frame_calls import are_same_rows
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.runtime.steps import Read, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SCHEMA = pa.schema([("x", pa.float64()), ("k", pa.string())])


def batch(low: int, high: int) -> Batch:
    """Row i has id 100 + i and x = i; k goes a, b, a, b."""
    numbers = np.arange(low, high)
    rows = pa.RecordBatch.from_arrays(
        [pa.array(numbers * 1.0), pa.array(["ab"[number % 2] for number in numbers])], schema=SCHEMA
    )
    return Batch(rows, Marks(numbers + 100, numbers.astype(np.float64)))


def run(logic: Logic, *batches: Batch, threads: int = 1) -> tuple[dict[str, Batch], Account]:
    steps = [Step("op", logic, threads, schema=SCHEMA, leaves=True, delivers=True)]
    segment = Segment(steps, SegmentOptions(audit=True, emit_dead_letters=True))
    found: dict[str, list[Batch]] = {}
    for operator, made in segment.process(batches):
        found.setdefault(operator, []).append(made)
    account = segment.take_account()
    segment.close()
    return {operator: Batch.concat(made) for operator, made in found.items()}, account


def change_in_place(frame: pd.DataFrame) -> pd.DataFrame:
    frame.loc[frame.x > 2, "x"] = -1.0
    frame["k"] = "c"
    return frame


OTHERS = pd.DataFrame({"x": [7.0, 8.0], "k": ["b", "a"]})

FRAMES: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], list[int]]] = {
    "map": (lambda f: f.assign(x=f.x + 1), [100, 101, 102, 103]),
    "in place": (change_in_place, [100, 101, 102, 103]),
    "filter": (lambda f: f[f.k == "a"], [100, 102]),
    "query": (lambda f: f.query("x >= 2"), [102, 103]),
    "sort": (lambda f: f.sort_values("x", ascending=False), [103, 102, 101, 100]),
    "head of sorted": (lambda f: f.nlargest(2, "x"), [103, 102]),
    "explode": (lambda f: f.assign(k=[["p", "q"]] * len(f)).explode("k"), [100, 100, 101, 101, 102, 102, 103, 103]),
    "twice": (lambda f: pd.concat([f, f]), [100, 101, 102, 103, 100, 101, 102, 103]),
    "index as a column": (lambda f: f[f.x > 0].reset_index(), [101, 102, 103]),
    "index lost, as many rows": (
        lambda f: pd.DataFrame({"x": f.x.to_numpy(), "k": f.k.to_numpy()}),
        [100, 101, 102, 103],
    ),
    "left merge": (
        lambda f: f[["x"]].merge(pd.DataFrame({"x": [0.0, 3.0], "k": "m"}), how="left"),
        [100, 101, 102, 103],
    ),
    "index lost, one column left as it was": (
        lambda f: pd.DataFrame({"x": f.x.to_numpy(), "k": "new"}),
        [100, 101, 102, 103],
    ),
    "index lost, nothing left that tells rows apart": (
        lambda f: pd.DataFrame({"x": f.x.to_numpy() + 1, "k": f.k.to_numpy()}),
        [-1, -1, -1, -1],
    ),
    "some replaced by others": (lambda f: pd.concat([f[f.x > 1], OTHERS], ignore_index=True), [-1, -1, -1, -1]),
    "sorted, index lost": (lambda f: f.sort_values("x", ascending=False, ignore_index=True), [-1, -1, -1, -1]),
    "merged, another order": (lambda f: OTHERS[["k"]].merge(f, on="k"), [-1, -1, -1, -1]),
    "index lost, fewer rows": (lambda f: f[f.x > 0].reset_index(drop=True), [-1, -1, -1]),
    "grouped": (lambda f: f.groupby("k", as_index=False).x.sum(), [-1, -1]),
    "nothing": (lambda f: f[f.x < 0], []),
    "labels of one's own": (lambda f: f.set_index(f.x.rename("__penstock_row__") + 100), [-1, -1, -1, -1]),
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("per", [Per.PANDAS, Per.MAP_IN_PANDAS])
def test_frames(name: str, per: Per) -> None:
    function, expected = FRAMES[name]
    over_frames = lambda frames: map(function, frames)  # noqa: E731 - as short as what it stands for
    given = batch(0, 4)
    found, account = run(Logic(function if per is Per.PANDAS else over_frames, per), given)
    ids = found["op"].ids if "op" in found else np.zeros(0)
    assert ids is not None
    assert ids.tolist() == expected
    assert DEAD_LETTERS not in found
    assert account.ids is not None
    assert set(account.ids.accounted()) == {100, 101, 102, 103}, "whatever is untraced is accounted for"
    assert account.ids.duplicated == 0
    count = account.operators["op"]
    assert count.filtered == (0 if -1 in expected else 4 - len(set(expected)))
    assert count.untraced == (4 if -1 in expected else 0)
    assert given.rows.column("x").to_pylist() == [0.0, 1.0, 2.0, 3.0], "what code changes in place is its own"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda table: table, [100, 101, 102, 103]),
        (lambda table: table.to_batches()[0], [100, 101, 102, 103]),
        (lambda table: pa.concat_tables([table.slice(0, 2), table.slice(2, 2)]), [100, 101, 102, 103]),
        (lambda table: table.set_column(0, "x", pc.add(table["x"], 1.0)), [100, 101, 102, 103]),
        (lambda table: pa.table({"x": table["x"], "k": pc.utf8_upper(table["k"])}), [100, 101, 102, 103]),
        (lambda table: pa.Table.from_pylist(table.to_pylist(), SCHEMA), [100, 101, 102, 103]),
        (lambda table: table.sort_by([("x", "descending")]), [-1, -1, -1, -1]),
        (lambda table: pa.concat_tables([table.filter(pc.field("x") > 1), table.slice(0, 2)]), [-1, -1, -1, -1]),
        (lambda table: pa.table({"x": pc.add(table["x"], 1.0), "k": pc.utf8_upper(table["k"])}), [-1, -1, -1, -1]),
        (lambda table: table.slice(0, 2), [-1, -1]),
        (lambda table: table.slice(0, 0), []),
    ],
)
def test_tables(function: Callable[[pa.Table], Any], expected: list[int]) -> None:
    found, account = run(Logic(function, Per.ARROW), batch(0, 4))
    ids = found["op"].ids if "op" in found else np.zeros(0)
    assert ids is not None
    assert ids.tolist() == expected
    assert account.ids is not None
    assert set(account.ids.accounted()) == {100, 101, 102, 103}


def test_a_column_left_out_is_named_without_trying_halves() -> None:
    calls = []

    def forgets(frame: pd.DataFrame) -> pd.DataFrame:
        calls.append(len(frame))
        return frame[["x"]]

    found, account = run(Logic(forgets, Per.PANDAS), batch(0, 64))
    assert calls == [64]
    assert account.operators["op"].dead == 64
    letter = found[DEAD_LETTERS].rows.to_pylist()[0]
    assert letter["field"] == "k"
    assert letter["error"] == "MissingColumnError: the result has no column 'k', only x"


@pytest.mark.parametrize("made", [None, 3, [1, 2], "text"])
def test_what_is_no_frame_is_a_dead_letter(made: Any) -> None:
    for per in (Per.PANDAS, Per.ARROW):
        _, account = run(Logic(lambda _, made=made: made, per), batch(0, 3))
        assert account.operators["op"].dead == 3
        assert "expected a " in account.errors[0][2]


def test_code_over_frames_is_called_once_per_stream() -> None:
    loaded = []

    def with_model(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        loaded.append("model")
        yield from frames

    given = [batch(low, low + 10) for low in range(0, 100, 10)]
    found, _ = run(Logic(with_model, Per.MAP_IN_PANDAS), *given)
    assert loaded == ["model"]
    assert found["op"].ids is not None
    assert found["op"].ids.tolist() == list(range(100, 200))


@pytest.mark.parametrize("threads", [1, 3])
def test_what_code_over_frames_holds_back_comes_out_in_the_end(threads: int) -> None:
    def sums(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"x": [sum(frame.x.sum() for frame in frames)], "k": ["sum"]})

    found, account = run(Logic(sums, Per.MAP_IN_PANDAS), batch(0, 50), batch(50, 100), threads=threads)
    assert sum(found["op"].rows.column("x").to_pylist()) == 4950
    assert found["op"].ids is not None
    assert set(found["op"].ids.tolist()) == {-1}
    assert account.ids is not None
    assert len(account.ids.accounted()) == 100


def test_code_that_lags_a_frame_behind_has_no_wrong_ids() -> None:
    def lags(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        last = None
        for frame in frames:
            if last is not None:
                yield last.reset_index(drop=True)
            last = frame
        if last is not None:
            yield last.reset_index(drop=True)

    found, _ = run(Logic(lags, Per.MAP_IN_PANDAS), batch(0, 5), batch(5, 10), batch(10, 15))
    assert found["op"].rows.column("x").to_pylist() == list(range(15))
    assert found["op"].ids is not None
    assert found["op"].ids.tolist() == [-1] * 15


def keep(left: list[Batch], _operator: str, made: Batch) -> None:
    left.append(made)


def test_what_code_over_frames_held_back_goes_through_the_rest() -> None:
    def holds(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from list(frames)

    def add(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "x": row["x"] + 1}

    for threads in (1, 2):
        steps = [
            Step("holds", Logic(holds, Per.MAP_IN_PANDAS), 1, (Read(),), SCHEMA),
            Step("add", Logic(add), threads, (Read(0),), SCHEMA),
            Step("again", Logic(holds, Per.MAP_IN_PANDAS), 1, (Read(1),), SCHEMA),
            Step("sink", reads=(Read(2),), leaves=True),
        ]
        left: list[Batch] = []
        segment = Segment(steps, emit=partial(keep, left))
        for epoch in range(2):
            segment.feed(batch(10 * epoch, 10 * epoch + 10))
            segment.flush()
            assert sorted(Batch.concat(left).rows.column("x").to_pylist()) == [
                number + 1.0 for number in range(10 * epoch + 10)
            ]
        segment.close()


def test_code_over_frames_that_raises_loses_only_what_offends() -> None:
    def picky(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            if (frame.x == 7).any():
                raise ValueError("seven")
            yield frame

    found, account = run(Logic(picky, Per.MAP_IN_PANDAS), batch(0, 20), batch(20, 30))
    assert found["op"].ids is not None
    assert found["op"].ids.tolist() == [number for number in range(100, 130) if number != 107]
    assert account.errors == [("op", 107, "ValueError: seven")]


def test_code_over_frames_that_raises_in_the_end_stops_the_run() -> None:
    def bad_end(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from frames
        raise OSError("disk full")

    with pytest.raises(StoppedError, match="operator 'op', at the end of its frames: OSError: disk full"):
        run(Logic(bad_end, Per.MAP_IN_PANDAS), batch(0, 3))


@pytest.mark.parametrize(
    ("bad", "most_calls"),
    [
        (range(1000), 50),  # it always raises: not two calls for every row
        ([500], 30),
        ([0, 999], 50),
        (range(100, 130), 130),  # many in succession among good ones
        (range(0, 1000, 10), 1000),
    ],
)
def test_code_that_raises_is_called_as_often_as_it_takes_to_find_the_rows(bad: Sequence[int], most_calls: int) -> None:
    calls = []

    def picky(frame: pd.DataFrame) -> pd.DataFrame:
        calls.append(len(frame))
        if frame.x.isin(bad).any():
            raise ValueError(f"bad: {frame.x.tolist()}")
        return frame

    found, account = run(Logic(picky, Per.PANDAS), batch(0, 1000))
    assert len(calls) <= most_calls
    assert account.operators["op"].dead == len(bad)
    kept = found["op"].rows.column("x").to_pylist() if "op" in found else []
    assert sorted(kept) == [number for number in range(1000) if number not in bad]
    assert sorted(found[DEAD_LETTERS].rows.column("id").to_pylist()) == [number + 100 for number in bad]


def test_a_column_of_another_kind_is_named_without_trying_halves() -> None:
    calls = []

    def numbers_for_text(frame: pd.DataFrame) -> pd.DataFrame:
        calls.append(len(frame))
        return frame.assign(k=1)

    found, account = run(Logic(numbers_for_text, Per.PANDAS), batch(0, 1000))
    assert calls == [1000]
    assert account.operators["op"].dead == 1000
    assert set(found[DEAD_LETTERS].rows.column("field").to_pylist()) == {"k"}


def table_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    ("given", "made", "same"),
    [
        (table_of(a=[1, 2, 3]), table_of(a=[1, 2, 3], b=[0, 0, 0]), True),
        (table_of(a=[3, 1, 2]), table_of(a=[3, 1, 2]), True),
        (table_of(a=["x", "y", None]), table_of(a=["x", "y", None]), True),
        (table_of(a=[1, 1, 2]), table_of(a=[1, 1, 2]), False),
        (table_of(a=[1, 1, 2], b=[1, 2, 2]), table_of(a=[1, 1, 2], b=[1, 2, 2]), True),
        (table_of(a=[1, 1, 2], b=[1, 2, 2]), table_of(a=[1, 1, 2], b=[2, 1, 2]), False),
        (table_of(a=[1, 2, 3]), table_of(b=[1, 2, 3]), False),
        (table_of(a=[1, 2, 3]), table_of(a=[1.0, 2.0, 3.0]), False),
        (table_of(a=[[1], [2]]), table_of(a=[[1], [2]]), False),
        (table_of(a=[]), table_of(b=[]), True),
    ],
)
def test_rows_show_that_they_stand_where_they_stood(given: pa.RecordBatch, made: pa.RecordBatch, same: bool) -> None:
    assert are_same_rows(given, made) == same
    assert are_same_rows(given, given)
