"""What goes through a segment, whatever its threads, queues and pieces: exactly what a plain loop gives."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_builders import FORMS, NUMBERS, FiveError, collected, expected_of, numbers, values, waits, with_ids

from effort import tries
from penstock.base.clock import pause
from penstock.dataflow.logic import Logic, Per
from penstock.runtime.batch import Batch
from penstock.runtime.dead_letters import DEAD_LETTERS
from penstock.runtime.schemas import as_seen
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.runtime.steps import Read, Step, shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pandas as pd


def plain_loop(ids: Iterable[int], depth: int) -> tuple[Counter[tuple[int, int]], Counter[int], Counter[int]]:
    """What comes out of `depth` operators one after the other: (id, number), ids that died, ids that were filtered."""
    alive = [(number, number) for number in ids]
    dead: Counter[int] = Counter()
    filtered: Counter[int] = Counter()
    for _ in range(depth):
        made = []
        for number, n in alive:
            rows = expected_of(n)
            if rows is None:
                dead[number] += 1
            elif not rows:
                filtered[number] += 1
            else:
                made += [(number, row) for row in rows]
        alive = made
    return Counter(alive), dead, filtered


@tries(2)
@given(
    forms=st.lists(st.tuples(st.sampled_from(sorted(FORMS)), st.integers(1, 3)), min_size=1, max_size=3),
    sizes=st.lists(st.integers(0, 60), max_size=5),
    queue_rows=st.integers(1, 40),
)
def test_any_chain_with_any_threads_gives_what_a_plain_loop_gives(
    forms: list[tuple[str, int]], sizes: list[int], queue_rows: int
) -> None:
    steps = [
        Step(f"{form} {at}", FORMS[form], threads, (Read(at - 1),), NUMBERS) for at, (form, threads) in enumerate(forms)
    ]
    steps.append(Step("sink", reads=(Read(len(forms) - 1),), leaves=True, delivers=True))
    edges = np.cumsum([0, *sizes])
    segment = Segment(steps, SegmentOptions(audit=True, emit_dead_letters=True, queue_rows=queue_rows))
    found = collected(segment, [numbers(int(low), int(high)) for low, high in pairwise(edges)])
    account = segment.take_account()
    segment.close()
    alive, dead, filtered = plain_loop(range(int(edges[-1])), len(forms))
    assert with_ids(found.get("sink", [])) == alive
    letters = [number for batch in found.get(DEAD_LETTERS, []) for number in batch.rows["id"].to_pylist()]
    assert Counter(letters) == dead
    assert account.rows_in == edges[-1]
    assert account.dead == dead.total()
    assert sum(count.filtered for count in account.operators.values()) == filtered.total()
    assert account.ids is not None
    assert set(account.ids.accounted()) == set(range(int(edges[-1])))
    assert set(account.ids.filtered) == set(filtered)
    assert set(account.ids.dead) == set(dead)
    assert account.ids.duplicated == 0, "children of one tuple have paths of their own"


@st.composite
def graphs(draw: st.DrawFn) -> list[Step]:
    """Up to five operators that read what enters or what earlier ones made, each stream with a number of its own."""
    steps: list[Step] = []
    for position in range(draw(st.integers(1, 5))):
        senders = draw(st.lists(st.integers(-1, position - 1), min_size=1, max_size=3, unique=True))
        reads = tuple(Read(sender, 10 * position + number + 1) for number, sender in enumerate(senders))
        form, threads = draw(st.sampled_from(sorted(FORMS))), draw(st.integers(1, 2))
        steps.append(Step(f"{form} {position}", FORMS[form], threads, reads, NUMBERS, leaves=True, delivers=True))
    return steps


@tries(2)
@given(graphs(), st.integers(0, 30), st.integers(1, 20))
def test_any_graph_gives_what_a_plain_loop_gives(steps: list[Step], size: int, queue_rows: int) -> None:
    sent: list[list[tuple[int, int]]] = []
    for step in steps:
        received = [
            item
            for read in step.reads
            for item in ([(n, n) for n in range(size)] if read.position < 0 else sent[read.position])
        ]
        sent.append([(number, made) for number, n in received for made in expected_of(n) or ()])
    segment = Segment(steps, SegmentOptions(audit=True, queue_rows=queue_rows))
    found = collected(segment, [numbers(0, size)])
    account = segment.take_account()
    segment.close()
    for step, expected in zip(steps, sent, strict=True):
        assert with_ids(found.get(step.operator, [])) == Counter(expected)
        count = account.operators.get(step.operator)
        assert (0 if count is None else count.rows_out) == len(expected)
    assert account.ids is not None
    assert account.ids.duplicated == 0, "streams and children have paths of their own"
    if any(read.position < 0 for step in steps for read in step.reads):
        assert set(account.ids.accounted()) == set(range(size))


@tries(0.75)
@given(
    hangs=st.sets(st.integers(0, 40), max_size=3),
    per=st.sampled_from([Per.ROW, Per.PANDAS, Per.MAP_IN_PANDAS]),
    threads=st.integers(1, 3),
)
def test_whatever_hangs_the_rest_comes_through(hangs: set[int], per: Per, threads: int) -> None:
    go = threading.Event()

    def on_row(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] in hangs:
            go.wait()
        return row

    def on_frame(frame: pd.DataFrame) -> pd.DataFrame:
        if frame.n.isin(hangs).any():
            go.wait()
        return frame

    def on_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return map(on_frame, frames)

    functions: dict[Per, Callable[..., Any]] = {Per.ROW: on_row, Per.PANDAS: on_frame, Per.MAP_IN_PANDAS: on_frames}
    steps = [
        Step("hangs", Logic(functions[per], per, timeout_seconds=0.2), threads),
        Step("sink", reads=(Read(0),), leaves=True),
    ]
    segment = Segment(steps, SegmentOptions(audit=True))
    try:
        found = collected(segment, [numbers(0, 20), numbers(20, 40)])
    finally:
        go.set()
    account = segment.take_account()
    segment.close()
    dead = {number for number in hangs if number < 40}
    assert account.ids is not None
    assert set(account.ids.dead) == dead
    assert with_ids(found["sink"]) == Counter((n, n) for n in range(40) if n not in dead)


def test_branches_meet_again_on_paths_of_their_own() -> None:
    """a -> b, a -> c, both -> sink: every tuple comes twice, once per path, and nobody sees what another changed."""

    def add(amount: int) -> Logic:
        def change_in_place(row: dict[str, Any]) -> dict[str, Any]:
            row["n"] += amount
            return row

        return Logic(change_in_place)

    for threads in (1, 2):
        steps = [
            Step("a", add(0), 1, (Read(),), NUMBERS),
            Step("b", add(100), threads, (Read(0, 1),), NUMBERS),
            Step("c", add(200), threads, (Read(0, 2),), NUMBERS),
            Step("sink", reads=(Read(1), Read(2)), leaves=True, delivers=True),
        ]
        segment = Segment(steps, SegmentOptions(audit=True))
        found = collected(segment, [numbers(0, 50)])
        account = segment.take_account()
        segment.close()
        assert sorted(values(found["sink"])) == sorted([*range(100, 150), *range(200, 250)])
        assert account.ids is not None
        assert account.ids.duplicated == 0
        assert [len(ids) for ids in account.ids.delivered.values()] == [50, 50]
        assert len(account.latency["sink"]) == 100


def test_senders_of_one_sink_need_not_have_the_same_columns() -> None:
    renamed = pa.schema([("m", pa.int64())])
    steps = [
        Step("a", Logic(lambda row: {"n": row["n"]}), 1, (Read(),), NUMBERS),
        Step("b", Logic(lambda row: {"m": row["n"]}), 1, (Read(0, 1),), renamed),
        Step("sink", reads=(Read(0), Read(1)), leaves=True, delivers=True),
    ]
    segment = Segment(steps, SegmentOptions())
    found = collected(segment, [numbers(0, 50)])["sink"]
    segment.close()
    for column in ("n", "m"):
        mine = [batch for batch in found if batch.rows.schema.names == [column]]
        assert sorted(values(mine, column)) == list(range(50))


def test_weighted_streams_divide_what_their_sender_sends() -> None:
    halves = shares([0.25, 0.75])
    steps = [
        Step("source"),
        Step("few", reads=(Read(0, 1, halves[0]),), leaves=True),
        Step("many", reads=(Read(0, 2, halves[1]),), leaves=True),
        Step("all", reads=(Read(0, 3),), leaves=True),
    ]
    for tracked in (True, False):
        segment = Segment(steps)
        found = collected(segment, [numbers(low, low + 100, tracked=tracked) for low in range(0, 4000, 100)])
        segment.close()
        few, many = values(found["few"]), values(found["many"])
        assert sorted(few + many) == list(range(4000))
        assert sorted(values(found["all"])) == list(range(4000))
        # 4000 rows, a quarter: 1000 with a standard deviation of sqrt(4000 * 0.25 * 0.75) = 27
        assert 850 < len(few) < 1150


def test_what_takes_no_stream_is_accounted_for() -> None:
    steps = [Step("source"), Step("some", reads=(Read(0, 0, (0.0, 0.5)),), leaves=True, delivers=True)]
    segment = Segment(steps, SegmentOptions(audit=True))
    found = collected(segment, [numbers(0, 1000)])
    account = segment.take_account()
    segment.close()
    assert account.operators["source"].filtered == 1000 - len(values(found["some"])) > 0
    assert account.ids is not None
    assert len(account.ids.accounted()) == 1000


def test_an_operator_works_while_the_one_before_it_still_waits() -> None:
    """The first does not finish its last row before the second has seen one: one after the other would never end."""
    seen = threading.Event()

    def first(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 99 and not seen.wait(20):
            raise TimeoutError("nothing was handed on")
        return row

    def second(row: dict[str, Any]) -> dict[str, Any]:
        seen.set()
        return row

    steps = [
        Step("first", Logic(first), 2, (Read(),)),
        Step("second", Logic(second), 2, (Read(0),)),
        Step("sink", reads=(Read(1),), leaves=True),
    ]
    segment = Segment(steps)
    assert sorted(values(collected(segment, [numbers(0, 100)])["sink"])) == list(range(100))
    segment.close()


def test_what_leaves_is_handed_out_while_input_is_still_read() -> None:
    segment = Segment([Step("a", Logic(waits), 2, leaves=True)], SegmentOptions(queue_rows=20))
    read = []

    def given() -> Iterator[Batch]:
        for low in range(0, 1000, 10):
            read.append(low)
            yield numbers(low, low + 10)

    going = segment.process(given())
    next(going)
    assert len(read) < 100
    assert sum(len(batch) for _, batch in going) < 1000, "some have left before"
    segment.close()


def test_queues_are_bounded() -> None:
    """A fast operator before one that is stuck: what it made must wait in it, not pile up."""
    go = threading.Event()
    made: list[int] = []

    def fast(row: dict[str, Any]) -> dict[str, Any]:
        made.append(row["n"])
        return row

    def stuck(row: dict[str, Any]) -> dict[str, Any]:
        go.wait()
        return row

    left: list[Batch] = []
    steps = [Step("fast", Logic(fast), 2), Step("stuck", Logic(stuck), 2, (Read(0),), leaves=True)]
    segment = Segment(steps, SegmentOptions(queue_rows=10), emit=lambda _operator, batch: left.append(batch))

    def feed() -> None:
        for low in range(0, 1000, 5):
            segment.feed(numbers(low, low + 5))

    feeding = threading.Thread(target=feed)
    feeding.start()
    feeding.join(0.5)
    assert feeding.is_alive(), "feeding waits for room"
    # 10 rows and the last piece beyond in each queue, and what four threads hold
    assert len(made) < 200
    go.set()
    feeding.join()
    segment.flush()
    segment.close()
    assert sorted(values(left)) == list(range(1000))


def test_fed_and_flushed_in_the_form_of_the_placed_engine() -> None:
    left: list[Batch] = []
    steps = [Step("twice", Logic(lambda row: {"n": 2 * row["n"]}), 3, (Read(-1), Read(-2, 1)), leaves=True)]
    segment = Segment(steps, SegmentOptions(queue_rows=8), emit=lambda _operator, batch: left.append(batch))
    for low in range(0, 100, 10):
        segment.feed(numbers(low, low + 10))
        segment.feed(numbers(low, low + 10), entrance=-2)
    segment.flush()
    assert sorted(values(left)) == sorted(2 * n for n in [*range(100), *range(100)])
    segment.close()


def test_what_code_opened_stays_with_its_thread_whoever_feeds() -> None:
    used: set[bool] = set()
    left: list[Batch] = []

    def use(row: dict[str, Any], opened_by: int) -> dict[str, Any]:
        used.add(opened_by == threading.get_ident())
        return row

    steps = [Step("db", Logic(use, open=threading.get_ident), leaves=True)]
    segment = Segment(steps, emit=lambda _operator, batch: left.append(batch))
    for low in (0, 10):
        feeding = threading.Thread(target=segment.feed, args=(numbers(low, low + 10),))
        feeding.start()
        feeding.join()
    segment.flush()
    segment.close()
    assert sorted(values(left)) == list(range(20))
    assert used == {True}


HANDED_OVER: dict[str, tuple[Callable[[dict[str, Any]], Any], list[Any], list[int]]] = {
    "more fields than its schema has": (lambda row: {"n": row["n"], "k": 7}, [["n"]] * 3, []),
    "fewer": (lambda row: {"n": row["n"]} if row["n"] else {"m": 1, "n": 0}, [["n"]] * 3, []),
    "some of many, and others": (lambda row: [{"n": 1}, {"n": 2, "k": 1}] if row["n"] else row, [["n"]] * 5, []),
    "none of them": (lambda row: {"k": 1} if row["n"] == 1 else row, [["n"]] * 2, [1]),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", HANDED_OVER)
def test_the_next_operator_gets_the_fields_of_the_schema_whatever_the_threads(name: str, threads: int) -> None:
    function, expected, dead = HANDED_OVER[name]
    seen: list[list[str]] = []

    def second(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(sorted(row))
        return row

    steps = [
        Step("a", Logic(function), threads, (Read(),), NUMBERS),
        Step("b", Logic(second), threads, (Read(0),), NUMBERS, leaves=True),
    ]
    segment = Segment(steps)
    collected(segment, [numbers(0, 3)])
    account = segment.take_account()
    segment.close()
    assert seen == expected
    assert [number for _, number, _ in account.errors] == dead
    assert account.operators["a"].dead == len(dead)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_field_that_no_sample_had_is_a_dead_letter_whatever_the_threads(threads: int) -> None:
    steps = [
        Step("a", Logic(lambda row: {**row, "k": 7} if row["n"] == 1 else row), threads, (Read(),), as_seen(NUMBERS)),
        Step("b", Logic(lambda row: row), threads, (Read(0),), as_seen(NUMBERS), leaves=True),
    ]
    segment = Segment(steps)
    assert sorted(values(collected(segment, [numbers(0, 3)])["b"])) == [0, 2]
    account = segment.take_account()
    segment.close()
    [(operator, number, error)] = account.errors
    assert (operator, number) == ("a", 1)
    assert error.startswith("field 'k': no sample had it")


def test_a_field_that_is_missing_is_none_for_the_next_operator() -> None:
    both = pa.schema([("n", pa.int64()), ("k", pa.int64())])
    for threads in (1, 2):
        steps = [
            Step("a", Logic(lambda row: {"n": row["n"]}), threads, (Read(),), both),
            Step("b", Logic(lambda row: {"n": row["n"], "k": 1 if row["k"] is None else 0}), threads, (Read(0),), both),
            Step("sink", reads=(Read(1),), leaves=True),
        ]
        segment = Segment(steps)
        assert values(collected(segment, [numbers(0, 2)])["sink"], "k") == [1, 1]
        segment.close()


def test_rows_of_code_that_waits_become_dicts_and_columns_many_at_a_time() -> None:
    """64 rows that wait, 16 threads: a thread has a row or two at a time, but what leaves comes in pieces for all."""

    def wait(row: dict[str, Any]) -> dict[str, Any]:
        pause(0.01)
        return row

    leaving: list[int] = []
    segment = Segment(
        [Step("wait", Logic(wait), threads=16, schema=NUMBERS, leaves=True)],
        emit=lambda _, batch: leaving.append(len(batch)),
    )
    try:
        segment.feed(numbers(0, 64))
        segment.flush()
        account = segment.take_account()
    finally:
        segment.close()
    assert sum(leaving) == 64
    assert len(leaving) <= 16
    counted = account.operators["wait"]
    assert (counted.rows_in, counted.rows_out, counted.calls) == (64, 64, 64)
    # 64 waits of 10 ms, whichever threads they were in
    assert counted.busy_seconds >= 0.64


def test_a_slow_row_does_not_keep_what_its_neighbours_made() -> None:
    """One row of sixteen hangs until the others have left, which its piece alone would never let them."""
    others_left = threading.Event()

    def wait(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 3:
            assert others_left.wait(20)
        return row

    leaving: list[int] = []

    def emit(_operator: str, batch: Batch) -> None:
        leaving.extend(batch.rows.column("n").to_pylist())
        if len(leaving) == 15:
            others_left.set()

    segment = Segment([Step("wait", Logic(wait), threads=16, schema=NUMBERS, leaves=True)], emit=emit)
    try:
        segment.feed(numbers(0, 16))
        segment.flush()
    finally:
        segment.close()
    assert sorted(leaving) == list(range(16))
    assert leaving[-1] == 3


def test_rows_that_hang_leave_the_rest_of_their_piece_to_others() -> None:
    """Two of forty rows, which four threads share, take longer than they may; one raises, one makes nothing."""

    def code(row: dict[str, Any]) -> dict[str, Any] | None:
        if row["n"] in {5, 17}:
            pause(0.6)
        if row["n"] == 11:
            raise FiveError("eleven")
        return None if row["n"] == 12 else row

    segment = Segment(
        [Step("code", Logic(code, timeout_seconds=0.1), threads=4, schema=NUMBERS, leaves=True)],
        SegmentOptions(audit=True, emit_dead_letters=True),
    )
    try:
        out = collected(segment, [numbers(0, 40)])
        account = segment.take_account()
    finally:
        segment.close()
    assert sorted(values(out["code"])) == sorted(set(range(40)) - {5, 11, 12, 17})
    assert sorted(values(out[DEAD_LETTERS], "id")) == [5, 11, 17]
    counted = account.operators["code"]
    assert (counted.rows_in, counted.rows_out, counted.calls, counted.dead, counted.filtered) == (40, 36, 40, 3, 1)


def test_the_load_and_a_source_of_ones_own_may_meet_before_several_threads() -> None:
    """Of the one it is known when rows were due, of the other not."""
    steps = [
        Step("op", Logic(waits), 2, (Read(-1), Read(-2))),
        Step("sink", reads=(Read(0),), leaves=True, delivers=True),
    ]
    segment = Segment(steps, SegmentOptions(audit=True))
    batches = [(-1 - at % 2, numbers(at * 5, at * 5 + 5, tracked=at % 2 == 0)) for at in range(8)]
    left = [batch for _, batch in segment.process_entrances(batches)]
    account = segment.take_account()
    segment.close()
    assert sorted(values(left)) == list(range(40))
    assert all((batch.ids is None) == (batch.due is None) for batch in left)
    assert len(account.latency["sink"]) == 20
