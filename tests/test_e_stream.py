"""E-Stream's replicas: how many an operator gets as its rate moves, and what moves for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from effort import tries
from penstock.base.errors import BadInputError
from penstock.cluster.topology import CPU, MEMORY, Node
from penstock.modelling.library import ModelLibrary
from penstock.modelling.model import Model, Point
from penstock.planning.allocation.e_stream import EStream, capacity, fewest_replicas, replicas_for
from penstock.planning.registry import ALLOCATORS, PLACERS
from penstock.planning.replanning.online import plan_pass
from penstock.planning.replanning.snapshot import FleetSnapshot, OnlinePipeline, PassOutcome
from strategies import models

LOW, TARGET, HIGH = 0.6, 0.9, 1.0


def model(name: str, *points: tuple[int, float]) -> Model:
    return Model(name, tuple(Point(threads=n, rate=rate, cpu=min(1.0, 0.4 * n), memory=0.1) for n, rate in points))


TWO = model("two", (1, 100), (2, 180), (3, 180))
"""A slot peaks at 180/s with two threads."""
ONE = model("one", (1, 100))

# capacity(5) = 2 x 180 + I(1) = 460
CAPACITIES = [(0, 0), (1, 100), (2, 180), (3, 280), (4, 360), (5, 460)]


@pytest.mark.parametrize(("threads", "rate"), CAPACITIES)
def test_replicas_fill_slots_up_to_their_peak(threads: int, rate: float) -> None:
    assert capacity(TWO, threads) == rate


# 400 = 2 x 180 + 40, and T(40) = 1; 180 fills a slot; 460 = 2 x 180 + 100
@pytest.mark.parametrize(("rate", "threads"), [(1, 1), (100, 1), (101, 2), (180, 2), (181, 3), (400, 5), (461, 6)])
def test_the_fewest_replicas_for_a_rate(rate: float, threads: int) -> None:
    assert fewest_replicas(TWO, rate) == threads


# one replica does 100/s; above 100 % busy as many as make it at most 90 % busy, below 60 % the same
BAND = [
    (0, 80.0, 1),  # 80 / 0.9 = 88.9
    (0, 95.0, 2),  # 95 / 0.9 = 105.6: two replicas, though one would do
    (1, 95.0, 1),  # 95 % busy: in the band
    (1, 100.0, 1),  # 100 % is not above the band
    (1, 101.0, 2),  # 101 / 0.9 = 112.2
    (2, 121.0, 2),  # 60.5 % busy
    (2, 119.0, 2),  # 59.5 % busy, but 119 / 0.9 = 132.2 needs two
    (3, 179.0, 2),  # 59.7 % busy; 179 / 0.9 = 198.9
    (9, 1.0, 1),  # never below one
    (3, 1000.0, 12),  # 1000 / 0.9 = 1111.1
]


@pytest.mark.parametrize(("now", "rate", "threads"), BAND)
def test_the_band(now: int, rate: float, threads: int) -> None:
    assert replicas_for(ONE, rate, now, LOW, TARGET, HIGH) == threads


@given(models("a"), st.integers(0, 400), st.floats(0.01, 5000), st.floats(0.01, 5000))
@tries(20)
def test_replicas_of_any_model(a: Model, now: int, rate: float, other: float) -> None:
    threads = replicas_for(a, rate, now, LOW, TARGET, HIGH)
    assert threads >= 1
    # enough for the rate
    assert capacity(a, threads) * HIGH >= rate * (1 - 1e-9)
    # no change for the same rate: it does not swing
    assert replicas_for(a, rate, threads, LOW, TARGET, HIGH) == threads
    if now:
        busy = rate / capacity(a, now)
        if LOW * (1 + 1e-6) < busy < HIGH * (1 - 1e-6):
            assert threads == now
        assert threads <= now or busy > HIGH * (1 - 1e-6)
        assert threads >= now or busy < LOW * (1 + 1e-6)
    # a higher rate never has fewer
    lower, higher = sorted((rate, other))
    before = replicas_for(a, lower, now, LOW, TARGET, HIGH)
    assert before <= replicas_for(a, higher, now, LOW, TARGET, HIGH)


@pytest.mark.parametrize("options", ["low=0.9", "target=1,high=0.95", "low=0"])
def test_a_band_that_is_none(options: str) -> None:
    with pytest.raises(BadInputError, match="e-stream"):
        ALLOCATORS.create(f"e-stream:{options}")


def test_options_by_name() -> None:
    assert ALLOCATORS.create("e-stream:low=0.5,target=0.7,high=0.8") == EStream(0.5, 0.7, 0.8)


# ------------------------------------------------------------------------------------------------ in a pass

CHATTY = penstock.pipeline("p").source("s").then("one").then("two", selectivity=2.0).sink("k").build()
LIBRARY = ModelLibrary.of([ONE, TWO])


def nodes(count: int, slots: int = 4) -> list[Node]:
    return [Node(f"n{n}", f"r{n // 2}", slots, {CPU: 100.0 * slots, MEMORY: 1024.0 * slots}) for n in range(count)]


def running(rate: float, placer: str = "eft") -> OnlinePipeline:
    return OnlinePipeline("p", CHATTY, LIBRARY, rate, allocator="e-stream", placer=placer)


@pytest.mark.parametrize("placer", ["eft", "balanced-eft", "sam", "compact"])
def test_only_the_operator_above_the_band_gets_replicas(placer: str) -> None:
    # at 75/s 'one' has one replica (75 / 0.9 = 83.3) and 'two', which receives 150/s, two (166.7 of 180)
    pipeline = running(75.0, placer)
    (first,) = plan_pass(FleetSnapshot(nodes(4), [pipeline]))
    assert first.after is not None
    assert dict(first.after.by_operator) == {"s": 1, "one": 1, "two": 2, "k": 1}
    # at 95/s 'one' is 95 % busy and keeps its replica; 'two' receives 190/s, 106 % of its 180, and gets one more
    (grown,) = plan_pass(FleetSnapshot(nodes(4), [replace(pipeline, rate=95.0, current=first.after)]))
    assert grown.after is not None
    assert dict(grown.after.by_operator) == {"s": 1, "one": 1, "two": 3, "k": 1}
    assert grown.outcome is PassOutcome.PLANNED
    assert (grown.moves.moved, grown.moves.started, grown.moves.stopped) == (0, 1, 0)
    # at 85/s 'two' receives 170/s of 280, 61 %: nothing changes; at 30/s 'two' is 21 % busy and keeps one of its three
    (steady,) = plan_pass(FleetSnapshot(nodes(4), [replace(pipeline, rate=85.0, current=grown.after)]))
    assert steady.outcome is PassOutcome.KEPT
    (shrunk,) = plan_pass(FleetSnapshot(nodes(4), [replace(pipeline, rate=30.0, current=steady.after)]))
    assert shrunk.after is not None
    assert dict(shrunk.after.by_operator) == {"s": 1, "one": 1, "two": 1, "k": 1}
    assert (shrunk.moves.moved, shrunk.moves.started, shrunk.moves.stopped) == (0, 0, 2)


def test_a_share_that_is_too_small_is_filled() -> None:
    # five slots are wanted; with two of them as much as fits is allocated, whatever ran before
    pipeline = running(200.0)
    (first,) = plan_pass(FleetSnapshot(nodes(4), [pipeline]))
    (part,) = plan_pass(FleetSnapshot(nodes(4), [replace(pipeline, max_slots=3, current=first.after)]))
    (fresh,) = plan_pass(FleetSnapshot(nodes(4), [replace(pipeline, max_slots=3)]))
    assert part.after is not None
    assert fresh.after is not None
    assert len(part.after.rows) <= 3
    assert part.after.rate == pytest.approx(fresh.after.rate, rel=0.2)


@given(st.lists(st.sampled_from([5.0, 40.0, 75.0, 95.0, 130.0, 300.0]), min_size=2, max_size=5), st.data())
@tries(3)
def test_a_rate_that_moves(rates: list[float], data: st.DataObject) -> None:
    """The rate is kept, no operator is without a replica, and what need not move stays."""
    placer = data.draw(st.sampled_from([name for name in PLACERS.names() if name not in ("joint", "metis")]))
    plan = None
    for rate in rates:
        (decision,) = plan_pass(FleetSnapshot(nodes(8), [replace(running(rate, placer), current=plan)]))
        plan = decision.after
        assert plan is not None
        assert set(plan.by_operator) == {"s", "one", "two", "k"}
        assert plan.rate >= rate * (1 - 1e-9) or decision.rejected
        if not decision.rejected:
            assert decision.moves.moved == 0
