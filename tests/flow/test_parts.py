"""Dealing, pacing, accumulators, keyed state and the audit: pure parts of the placed engine."""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from penstock.dataflow.aggregate import Aggregate, Emit
from penstock.dataflow.pipeline import Grouping, Kind, Operator, Pipeline, Stream
from penstock.engines.placed.flow.audit import audit, ways_of
from penstock.engines.placed.flow.bundle import AIM_SECONDS, FEWEST_ROWS, Window
from penstock.engines.placed.flow.keyed_state import ACCUMULATORS, KeyedState, accumulator
from penstock.engines.placed.flow.layout import ranges
from penstock.engines.placed.flow.routing import Dealer, ReceivingBundle, Route
from penstock.runtime.account import IdBitmaps
from penstock.runtime.batch import Batch, Marks, mixed
from penstock.runtime.dead_letters import StoppedError

# Dealing.


def batch(n: int, first: int = 0, **columns: Any) -> Batch:
    made = {"k": np.arange(first, first + n) % 7, **columns}
    rows = pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in made.items()})
    return Batch(rows, Marks(np.arange(first, first + n), np.zeros(n)))


def route(grouping: Grouping, *targets: ReceivingBundle, key: tuple[str, ...] = ("k",), path: int = 0) -> Route:
    return Route(0, "a", path, (0.0, 1.0), grouping, key, targets)


def dealt(dealer: Dealer, *batches: Batch) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for one in batches:
        for target, part in dealer.deal(one):
            assert part.ids is not None
            found.setdefault(target, []).extend(part.ids.tolist())
    return found


ONE, TWO = ReceivingBundle("x", 1, 10.0, local=False), ReceivingBundle("y", 3, 90.0, local=True)


@pytest.mark.parametrize(
    ("grouping", "shares"),
    [
        (Grouping.SHUFFLE, {0: 250, 1: 750}),  # by threads, 1 to 3
        (Grouping.SLOT_AWARE, {0: 100, 1: 900}),  # by what they support, 10 to 90
        (Grouping.LOCAL_OR_SHUFFLE, {1: 1000}),  # y is on the sender's slot
        (Grouping.GLOBAL, {0: 1000}),
    ],
)
def test_shares_are_those_of_prediction_and_simulation(grouping: Grouping, shares: dict[int, int]) -> None:
    dealer = Dealer(route(grouping, ONE, TWO))
    found = dealt(dealer, *(batch(10, first) for first in range(0, 1000, 10)))
    assert sorted(i for ids in found.values() for i in ids) == list(range(1000))
    assert {target: len(ids) for target, ids in found.items()} == pytest.approx(shares, abs=1)


def test_all_gives_every_thread_a_copy_on_a_path_of_its_own() -> None:
    parts = list(Dealer(route(Grouping.ALL, ONE, TWO)).deal(batch(5)))
    assert [target for target, _ in parts] == [0, 1, 1, 1]
    assert len({int(part.path[0]) for _, part in parts if part.path is not None}) == 4


@given(st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=1, max_size=50))
def test_equal_keys_meet_and_partial_keys_have_two_places(keys: list[str | None]) -> None:
    rows = batch(len(keys), k=keys)
    for grouping, places in ((Grouping.FIELDS, 1), (Grouping.PARTIAL_KEY, 2)):
        dealer = Dealer(route(grouping, ONE, TWO, ReceivingBundle("z", 2, 1.0, local=False)))
        where: dict[Any, set[int]] = {}
        for _ in range(2):
            for target, part in dealer.deal(rows):
                for key in part.rows.column("k").to_pylist():
                    where.setdefault(key, set()).add(target)
        assert all(len(targets) <= places for targets in where.values())


def test_a_number_has_one_hash_whatever_its_type() -> None:
    targets = [ReceivingBundle(str(n), 1, 1.0, local=False) for n in range(8)]
    for values in ([1, -3, 2**40], [1.0, -3.0, float(2**40)]):
        found = dealt(Dealer(route(Grouping.FIELDS, *targets)), batch(3, k=values))
        assert found == dealt(Dealer(route(Grouping.FIELDS, *targets)), batch(3, k=[1, -3, 2**40]))


def test_direct_goes_where_the_row_says_and_complains_if_it_says_nothing() -> None:
    dealer = Dealer(route(Grouping.DIRECT, ONE, TWO))
    assert dealt(dealer, batch(4, thread=[0, 1, 3, 4])) == {0: [0, 3], 1: [1, 2]}
    with pytest.raises(StoppedError, match="expected column 'thread'"):
        dealt(dealer, batch(1))
    with pytest.raises(StoppedError, match="found -1"):
        dealt(dealer, batch(1, thread=[-1]))


def test_streams_whose_weights_add_up_divide_what_is_sent() -> None:
    quarter = Route(0, "a", 0, (0.0, 0.25), Grouping.GLOBAL, (), (ONE,))
    rest = Route(1, "a", 0, (0.25, 1.0), Grouping.GLOBAL, (), (ONE,))
    first, second = (dealt(Dealer(one), batch(4000))[0] for one in (quarter, rest))
    assert sorted(first + second) == list(range(4000))
    assert len(first) == pytest.approx(1000, rel=0.15)


# Pacing.


def test_a_window_follows_what_the_receiver_takes() -> None:
    """At 100 rows/s the aim of 0.1 s is 10 rows, and never fewer than the fewest; at a million, 100,000."""
    for rate, expected in ((100.0, FEWEST_ROWS), (10_000.0, 1000), (1_000_000.0, 100_000)):
        window = Window()
        for _ in range(50):
            window.took(window.rows, window.rows / rate)
        assert expected / 2 <= window.rows <= max(FEWEST_ROWS, expected)
    assert AIM_SECONDS == 0.1


# Accumulators.

numbers = st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=30)


@given(numbers, numbers)
def test_accumulators_say_what_all_values_at_once_would(first: list[float | None], second: list[float | None]) -> None:
    known = [value for value in first + second if value is not None]
    expected = {
        "count": len(known),
        "sum": math.fsum(known) if known else None,
        "avg": statistics.fmean(known) if known else None,
        "min": min(known, default=None),
        "max": max(known, default=None),
        "first": known[0] if known else None,
        "last": known[-1] if known else None,
        "stddev": statistics.stdev(known) if len(known) > 1 else None,
        "approx_count_distinct": len(set(known)),
    }
    assert expected.keys() == ACCUMULATORS.keys()
    for name, make in ACCUMULATORS.items():
        before = make()
        before.take(pd.Series(first, dtype=float))
        after = make()
        after.load(before.dump())
        after.take(pd.Series(second, dtype=float))
        if expected[name] is None:
            assert after.result() is None
        else:
            assert after.result() == pytest.approx(expected[name], rel=1e-9, abs=1e-6)


# Keyed state.


def words(*rows: tuple[str, float, float]) -> Batch:
    """(word, amount, due)."""
    table = pa.RecordBatch.from_pydict({"w": [row[0] for row in rows], "x": [row[1] for row in rows]})
    return Batch(table, Marks(np.arange(len(rows)), np.array([row[2] for row in rows])))


PLAIN = Aggregate(key="w", outputs={"n": "count", "total": "sum(x)"}, fields="w string, x double")


def test_groups_are_sent_when_they_changed() -> None:
    state = KeyedState(PLAIN)
    state.take(words(("a", 1, 1), ("b", 2, 2), ("a", 3, 3)))
    rows, due = state.end_epoch()
    assert sorted((row["w"], row["n"], row["total"]) for row in rows) == [("a", 2, 4.0), ("b", 1, 2.0)]
    assert sorted(due) == [2.0, 3.0]
    assert state.end_epoch() == ([], [])
    state.take(words(("a", 5, 4)))
    assert state.end_epoch()[0] == [{"w": "a", "n": 3, "total": 9.0}]


def test_windows_close_once_and_late_rows_are_counted() -> None:
    """Windows of 10 s every 5 s, 2 s for the late: a row at 7 is in [0, 10) and [5, 15)."""
    windowed = Aggregate(
        key="w", outputs={"n": "count"}, fields="w string, x double", window_seconds=10, slide_seconds=5,
        late_seconds=2, emit=Emit.CLOSED,
    )  # fmt: skip
    state = KeyedState(windowed)
    state.take(words(("a", 1, 7)))
    assert state.end_epoch()[0] == []
    state.take(words(("a", 1, 12.5), ("a", 1, 9)))
    # the watermark is 12.5 - 2 = 10.5: [0, 10) is over, with the rows at 7 and 9
    assert state.end_epoch()[0] == [{"w": "a", "window_start": 0.0, "window_end": 10.0, "n": 2}]
    state.take(words(("a", 1, 4), ("a", 1, 6)))
    assert state.late == 1, "4 is in [-5, 5) and [0, 10), both over; 6 is in [5, 15) still"
    state.take(words(("a", 1, 30)))
    assert state.end_epoch()[0] == [
        {"w": "a", "window_start": 5.0, "window_end": 15.0, "n": 4},
        {"w": "a", "window_start": 10.0, "window_end": 20.0, "n": 1},
    ]


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=8), max_size=6), st.integers(1, 5))
def test_state_is_taken_over_by_other_bundles_group_by_group(epochs: list[list[str]], bundles: int) -> None:
    whole, written = KeyedState(PLAIN), dict[int, Any]()
    for epoch in epochs:
        whole.take(words(*((word, 1.0, 1.0) for word in epoch)))
        whole.end_epoch()
        written |= whole.dump_touched()
    counts: dict[str, int] = {}
    for first, end in ranges([1] * bundles):
        part = KeyedState(PLAIN, (first, end))
        part.load({group: said for group, said in written.items() if first <= group < end})
        for entries in part._groups.values():
            for key, entry in entries.items():
                counts[key[0]] = entry.values[0].result()
    assert counts == {word: sum(epoch.count(word) for epoch in epochs) for epoch in epochs for word in epoch}


def test_rows_of_other_groups_are_refused() -> None:
    with pytest.raises(StoppedError, match="rows of other groups came here"):
        KeyedState(PLAIN, (0, 1)).take(words(*((word, 1.0, 1.0) for word in "abcdefgh")))


def test_the_greatest_values_are_kept_whatever_order_they_come_in() -> None:
    top = accumulator("top_3")
    top.take(pd.Series([5.0, None, 1.0, 9.0, 2.0]))
    again = accumulator("top_3")
    again.load(top.dump())
    again.take(pd.Series([7.0]))
    assert (top.result(), again.result()) == ([9.0, 5.0, 2.0], [9.0, 7.0, 5.0])


def ranked(*pairs: tuple[Any, Any]) -> pd.DataFrame:
    return pd.DataFrame({"count": [count for count, _ in pairs], "word": [word for _, word in pairs]}, dtype=object)


def test_a_ranking_is_by_number_and_then_by_name_whatever_order_it_comes_in() -> None:
    ranking = accumulator("ranking_3")
    ranking.take(ranked((2, "b"), (5, "c"), (None, "x"), (2, "a"), (1, "z"), (7, None)))
    assert ranking.result() == '[{"count":5,"value":"c"},{"count":2,"value":"a"},{"count":2,"value":"b"}]'
    again = accumulator("ranking_3")
    again.load(ranking.dump())
    again.take(ranked((9, "d")))
    assert json.loads(again.result())[0] == {"count": 9, "value": "d"}
    merged = accumulator("ranking_3")
    # text that is no ranking has no values
    merged.take(pd.Series([ranking.result(), again.result(), None, "[", "7", '[{"count": 3}]']))
    assert [pair["value"] for pair in json.loads(merged.result())] == ["d", "c", "c"]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abcdef")), max_size=30), st.integers(1, 4), st.integers(1, 5)
)
def test_merged_rankings_are_that_of_all(pairs: list[tuple[int, str]], parts: int, most: int) -> None:
    merged = accumulator(f"ranking_{most}")
    for part in range(parts):
        ranking = accumulator(f"ranking_{most}")
        ranking.take(ranked(*pairs[part::parts]))
        merged.take(pd.Series([ranking.result()]))
    first = sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[:most]
    assert json.loads(merged.result()) == [{"count": count, "value": word} for count, word in first]


def test_windows_of_a_field_of_time_and_of_the_clock() -> None:
    """Seconds 1 and 12 fall into windows of ten that start at 0 and 10; a row without a time is counted as late. By the
    clock both came at 31."""
    rows = pa.RecordBatch.from_pydict({"w": ["a", "a", "b"], "at": pa.array([1.0, 12.0, None], pa.float64())})
    came = Batch(rows, Marks(np.arange(3), np.full(3, 100.0)))
    event = Aggregate(key="w", outputs={"n": "count"}, fields="w string, at double", time="at", window_seconds=10)
    state = KeyedState(event)
    state.take(came, 31.0)
    made, _ = state.end_epoch(32.0)
    assert ({(row["w"], row["window_start"], row["n"]) for row in made}, state.late) == ({("a", 0, 1), ("a", 10, 1)}, 1)
    clock = Aggregate(
        key="w", outputs={"n": "count"}, fields="w string", window_time="processing", window_seconds=10, emit="closed"
    )
    state = KeyedState(clock)
    state.take(came, 31.0)
    assert state.end_epoch(39.0)[0] == []
    assert {(row["w"], row["window_start"], row["n"]) for row in state.end_epoch(40.0)[0]} == {
        ("a", 30, 2),
        ("b", 30, 1),
    }


# The audit.


def diamond() -> Pipeline:
    names = {"s": Kind.SOURCE, "a": Kind.OPERATOR, "b": Kind.OPERATOR, "k": Kind.SINK}
    streams = [Stream(sender=x, receiver=y) for x, y in (("s", "a"), ("s", "b"), ("a", "k"), ("b", "k"))]
    return Pipeline.of("diamond", [Operator(name=name, kind=kind) for name, kind in names.items()], streams)


def test_a_delivery_that_is_missing_on_one_of_two_ways_is_lost() -> None:
    """20 tuples, 2 ways each: 40 deliveries. 9 are missing on one way; every id was seen on the other."""
    pipeline = diamond()
    number = {id(stream): n for n, stream in enumerate(pipeline.streams, start=1)}
    ways = ways_of(pipeline, lambda stream: number[id(stream)])
    assert ways.ends is not None
    (upper, lower) = sorted(ways.ends["s"])
    assert {upper[1], lower[1]} == {
        int(mixed(mixed(np.array([0]), first), last)[0]) for first, last in ((1, 3), (2, 4))
    }
    ids = IdBitmaps({upper: BitMap64(range(20)), lower: BitMap64(range(9, 20))})
    assert audit(ids, {"s": 20}, ways, made_several=False).lost == 9
    assert audit(ids, {"s": 20}, ways, made_several=True).lost == 0, "then only whole tuples are looked for"
    ids.dead.update(range(5))
    assert audit(ids, {"s": 20}, ways, made_several=False).lost == 4
