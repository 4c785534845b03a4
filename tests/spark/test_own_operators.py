"""What Spark's own operators take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.profiling import spark_operators as own_operators
from penstock.profiling.replay import ReplayFiles, TimedReplay, motion_of
from penstock.profiling.samples import OperatorSample
from penstock.profiling.spark_operators import BatchCost, cost_by, cost_of, files_taken, measure_sparks_own
from penstock.spark.region_function import DUE_COLUMN

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # pyspark's own

NO_SESSION: Any = None
"""Parquet is written without one."""


def test_the_line_through_two_sizes() -> None:
    # medians 0.21 s for 10 rows and 1.2 s for 1,000: 1 ms a row, and 0.2 s for any batch
    cost = cost_of((10, [0.2, 0.21, 0.5]), (1000, [1.2, 1.1, 1.3]))
    assert (cost.batch_seconds, cost.row_seconds) == pytest.approx((0.2, 0.001))
    # larger batches that were faster say nothing of rows
    assert cost_of((10, [0.2]), (1000, [0.1])) == BatchCost(0.2, 0.0)
    assert cost.beyond(BatchCost(0.15, 0.0004)).row_seconds == pytest.approx(0.0006)
    assert cost.beyond(BatchCost(1.0, 1.0)).batch_seconds == 0
    # a stream without the operator that was slower than with it: a twentieth of the time is the operator's
    assert cost.beyond(BatchCost(1.0, 1.0)).row_seconds == pytest.approx(0.00005)
    # of how the machine was meanwhile the worse, and the pace of both
    seen = BatchCost(1.0, 1.0, 0.5, others=0.1, pace=1000.0).beyond(BatchCost(0.5, 0.5, 1.0, others=0.3, pace=2000.0))
    assert seen == BatchCost(0.5, 0.5, 0.5, others=0.3, pace=1500.0)


@pytest.mark.parametrize("held_up", [None, 6, 7, 9])
def test_a_batch_that_was_held_up_says_nothing_of_rows(held_up: int | None) -> None:
    # the engine 0.2 s, 10 us a row; one of the larger batches meets something else on the machine
    calls = []

    def batch(rows: int) -> float:
        calls.append(rows)
        return 0.2 + rows * 1e-5 + (5.0 if len(calls) - 1 == held_up else 0.0)

    cost = cost_by(batch)
    assert (cost.batch_seconds, cost.row_seconds) == pytest.approx((0.2, 1e-5))
    assert max(calls) > 30_000


def test_rows_of_all_inputs_count() -> None:
    # 10 us for a row of either input, as many of each in a batch
    cost = cost_by(lambda rows: 0.2 + 2 * rows * 1e-5, inputs=2)
    assert (cost.batch_seconds, cost.row_seconds) == pytest.approx((0.2, 1e-5))


def test_time_goes_on_from_one_repetition_to_the_next() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [start + timedelta(seconds=2 * n) for n in range(3)]
    rows = pa.table(
        {
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            DUE_COLUMN: [10.0, 11.0, 12.0],
            "word": ["a", "b", "c"],
        }
    )
    # three times two seconds apart: the next repetition begins six seconds later
    clock = iter([100.0, 110.0, 111.0])
    replay = TimedReplay(OperatorSample(rows), lambda: next(clock))
    table = replay.table(2, 5)
    assert [(at - start).total_seconds() for at in table["at"].to_pylist()] == [4, 6, 8, 10, 12]
    # whatever the sample says: what comes now was due since the last was made
    assert table[DUE_COLUMN].to_pylist() == [102, 104, 106, 108, 110]
    assert replay.table(7, 2)[DUE_COLUMN].to_pylist() == [110.5, 111]
    assert table["word"].to_pylist() == ["c", "a", "b", "c", "a"]
    assert table.schema.equals(rows.schema)


def test_windows_go_on_from_one_repetition_to_the_next() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    kind = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
    spans = [
        {"start": start + timedelta(seconds=10 * n), "end": start + timedelta(seconds=10 * n + 10)} for n in (0, 2)
    ]
    rows = pa.table({"span": pa.array([*spans, None], kind)})
    # from 0 to 30 s: windows of the next repetition begin at 30 s, as they would
    table = TimedReplay(OperatorSample(rows)).table(0, 6)
    begin = [span and (span["start"] - start).total_seconds() for span in table["span"].to_pylist()]
    assert begin == [0, 20, None, 30, 50, None]
    assert table.schema.equals(rows.schema)
    # a pair of times that Spark did not make a window of stays
    pair = pa.table({"way": pa.array([{"from": start}], pa.struct([("from", pa.timestamp("us", "UTC"))]))})
    assert TimedReplay(OperatorSample(pair)).table(1, 1) == pair


def test_files_of_rows_without_a_time_are_made_once(tmp_path: Path) -> None:
    files = ReplayFiles(NO_SESSION, OperatorSample(pa.table({"word": ["a", "b", "c"]})), tmp_path / "in")
    files.prepare(10, 2, batches=5)
    for _ in range(3):
        files.write(10, 2)
    shown = sorted((tmp_path / "in").glob("*/*"))
    assert [pq.read_table(file).num_rows for file in shown] == [5] * 6
    assert len({file.stat().st_ino for file in shown}) == 2


def test_files_of_rows_with_times_are_made_before_they_are_shown(tmp_path: Path) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = pa.array([start, start + timedelta(seconds=1)], pa.timestamp("us", "UTC"))
    files = ReplayFiles(NO_SESSION, OperatorSample(pa.table({"at": times})), tmp_path / "in")
    files.prepare(2, 1, batches=2)
    assert not list((tmp_path / "in").iterdir())
    for _ in range(3):  # one more than were made ahead
        files.write(2)
    shown = [pq.read_table(file)["at"].to_pylist() for file in sorted((tmp_path / "in").glob("*/*"))]
    assert [[(at - start).total_seconds() for at in batch] for batch in shown] == [[0, 1], [2, 3], [4, 5]]


def keyed(count: int, **columns: list[Any]) -> OperatorSample:
    return OperatorSample(pa.table({"order": list(range(count)), **columns}))


def test_keys_are_new_with_every_repetition() -> None:
    sample = keyed(256, user=[n % 7 for n in range(256)], price=[n % 10 for n in range(256)])
    table = TimedReplay(sample).table(0, 40_960)
    assert table["order"].to_pylist() == list(range(40_960))
    # what comes again in the sample comes again
    assert len(set(table["user"].to_pylist())) == 7
    assert TimedReplay(sample, new_keys=False).table(0, 512)["order"].to_pylist() == 2 * list(range(256))
    # of a few rows nobody can tell
    assert TimedReplay(keyed(20)).table(0, 40)["order"].to_pylist() == 2 * list(range(20))


def test_amounts_stay_about_as_large_as_they_are() -> None:
    amounts = [7919 * n % 1_000_003 for n in range(256)]
    moved = TimedReplay(OperatorSample(pa.table({"amount": amounts}))).table(256 * 100, 256)["amount"].to_pylist()
    assert moved == [amount + 100 for amount in amounts]
    # in milliseconds, the order of rows not quite that of time: the next repetition is later as a whole
    times = [1_700_000_000_000 + 20 * (n ^ 3) for n in range(256)]
    moved = TimedReplay(OperatorSample(pa.table({"at": times}))).table(256, 256)["at"].to_pylist()
    assert moved == [at + 20 * 256 for at in times]


def test_a_small_type_begins_again() -> None:
    numbers = pa.array(range(100), pa.int8())
    table = TimedReplay(OperatorSample(pa.table({"n": numbers}))).table(0, 300)
    assert table["n"].to_pylist() == 3 * list(range(100))
    wide = pa.array([2**63 - 1 - 3 * n * n for n in range(200)], pa.int64())
    assert TimedReplay(OperatorSample(pa.table({"n": wide}))).table(0, 400)["n"].to_pylist() == 2 * wide.to_pylist()


@pytest.mark.parametrize(
    ("values", "later"),
    [
        ([str(n) for n in range(200)], [str(n) for n in range(200, 400)]),
        ([f"{n:06d}" for n in range(200)], [f"{n:06d}" for n in range(200, 400)]),
        ([f"{n:09x}-a{n:05x}" for n in range(200)], [f"{n:09x}-000001" for n in range(200)]),  # ids keep their length
        ([f"user{n}" for n in range(200)], [f"user{n}-1" for n in range(200)]),
        ([f'{{"n": {n}}}' for n in range(200)], None),  # JSON stays what it is
        ([f"{n}.5" for n in range(200)], None),
        ([f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z" for n in range(200)], None),
        ([f"user{n % 150}" for n in range(200)], None),
        ([None, *(f"user{n}" for n in range(199))], None),
    ],
)
def test_text_that_is_a_key_is_another_in_the_next_repetition(values: list[Any], later: list[str] | None) -> None:
    replay = TimedReplay(OperatorSample(pa.table({"key": values})))
    assert replay.table(0, 200)["key"].to_pylist() == values
    assert replay.table(200, 200)["key"].to_pylist() == (values if later is None else later)
    assert replay.moves_on is (later is not None)


def test_keys_of_several_inputs_meet_in_every_repetition() -> None:
    # two lines for each of the first 128 orders: as many rows, in which orders come twice
    orders, lines = keyed(300), OperatorSample(pa.table({"order": [n // 2 for n in range(256)]}))
    motion = motion_of([orders, lines])
    both = [TimedReplay(sample, motion=motion) for sample in (orders, lines)]
    for first in (0, 256 * 50, 256 * 4000):
        left, right = (set(replay.table(first, 256)["order"].to_pylist()) for replay in both)
        assert len(left) == 256
        assert len(right) == 128
        assert right < left
    # columns that are not of one type are two things
    other = OperatorSample(pa.table({"order": [str(n) for n in range(256)]}))
    assert not motion_of([orders, other]).keys


def counted(frame: Any) -> Any:
    return frame.groupBy("word").count()


@pytest.mark.long("it compares times")
def test_a_grouping_costs_every_batch_more_than_nothing_does(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # of rows only that they cost something: ten thousands will do, not a million
    monkeypatch.setattr(own_operators, "MOST_ROWS", 40_000)
    sample = OperatorSample(pa.table({"word": ["a", "b", "c"] * 10}))
    nothing = measure_sparks_own(session, "nothing", lambda frame: frame, [sample], "append")
    grouping = measure_sparks_own(session, "words", counted, [sample], "update")
    # a shuffle and state for every batch
    assert grouping.batch_seconds > nothing.batch_seconds > 0
    assert grouping.row_seconds >= 0
    assert not session.streams.active


def test_trials_read_all_that_comes_to_an_operator(session: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": [1, 2], "kind": ["a", "b"], "amount": [1.0, None]}), tmp_path / "a.parquet")
    frame = session.read.parquet(str(tmp_path))

    def plan(made: Any) -> str:
        return str(made._jdf.queryExecution().executedPlan().toString())

    assert "ReadSchema: struct<key:bigint>" in plan(frame.where("key = 2").select("key"))
    whole = own_operators.read_whole(frame)
    chosen = plan(whole.where("key = 2").select("key"))
    assert "PushedFilters: []" in chosen
    assert "ReadSchema: struct<key:bigint,kind:string,amount:double>" in chosen
    assert whole.count() == 2
    # nothing done with two inputs, whose columns of one name differ
    other = session.createDataFrame([("x",)], "key string")
    both = own_operators.together(whole, other)
    assert both.count() == 3
    assert len(both.columns) == 4


def test_keys_are_new_where_there_is_state(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_operators, "MOST_ROWS", 20)
    monkeypatch.setattr(own_operators, "WARM_UP_BATCHES", 1)
    monkeypatch.setattr(own_operators, "COUNTED_BATCHES", 1)
    renewed: list[ReplayFiles] = []

    def note(files: ReplayFiles) -> None:
        renewed.append(files)

    monkeypatch.setattr(ReplayFiles, "renew_keys", note)
    chosen = measure_sparks_own(session, "chosen", lambda frame: frame.where("order > 3"), [keyed(10)], "append")
    assert not renewed
    assert chosen.selectivity == 0.6
    # how the machine was meanwhile
    assert chosen.pace is not None
    assert chosen.pace > 0
    assert 0 <= chosen.others <= 1
    once = measure_sparks_own(session, "once", lambda frame: frame.dropDuplicates(["order"]), [keyed(10)], "append")
    assert len(renewed) == 1
    assert once.selectivity is None


def test_rows_that_a_filter_leaves_out_are_seen(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark does not read what it knows a file has none of, and says that no row came in."""
    monkeypatch.setattr(own_operators, "MOST_ROWS", 100)
    monkeypatch.setattr(own_operators, "BATCH_TIMEOUT_SECONDS", 15.0)
    sample = OperatorSample(pa.table({"key": [1, 2, 3], "kind": ["a", "b", "c"]}))
    cost = measure_sparks_own(session, "chosen", lambda frame: frame.where("kind = 'd'"), [sample], "append")
    assert cost.batch_seconds > 0


def test_where_a_source_is() -> None:
    assert [files_taken(offset) for offset in (None, "null", '{"logOffset":0}', '{"logOffset":4}')] == [0, 0, 1, 5]
