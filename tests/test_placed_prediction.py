"""What a placed run uses and does, by the models of its operators and what the engine itself costs."""

from __future__ import annotations

import math

import pytest

from penstock.cluster.topology import Slot
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream, gains
from penstock.modelling.model import FixedDemand, Model, Point
from penstock.planning.prediction.placed import (
    BundleLoad,
    PlacedCosts,
    bundle_loads,
    machine_rate,
    processes_rate,
    slots_at,
    without_engine,
)
from penstock.planning.prediction.placement import Demands, Routing, cpu_seconds_per_tuple

FAST = Model("fast", (Point(threads=1, rate=100.0, cpu=0.5, memory=0.1),))
SLOW = Model(
    "slow",
    (
        Point(threads=1, rate=10.0, cpu=0.2, memory=0.1),
        Point(threads=4, rate=40.0, cpu=0.9, memory=0.1, operator_cpu=0.4),
    ),
)
PIPELINE = Pipeline.of(
    "p",
    [
        Operator(name="source", kind=Kind.SOURCE),
        Operator(name="fast", model="fast"),
        Operator(name="slow", model="slow"),
        Operator(name="sink", kind=Kind.SINK),
    ],
    [
        Stream(sender="source", receiver="fast"),
        Stream(sender="fast", receiver="slow", selectivity=0.5),
        Stream(sender="slow", receiver="sink"),
    ],
)
DEMANDS: Demands = {"source": FixedDemand(0.1, 0.1), "fast": FAST, "slow": SLOW, "sink": FixedDemand(0.1, 0.1)}
A, B, C = Slot("n1", 0), Slot("n1", 1), Slot("n2", 0)
THREADS = {A: {"source": 1, "fast": 1}, B: {"slow": 4}, C: {"slow": 4, "sink": 1}}
SEGMENTS = (("source", "fast"), ("slow",), ("sink",))
COSTS = PlacedCosts(
    bundle_cores=0.01,
    batch_seconds=0.001,
    row_seconds=0.0001,
    source_period_seconds=0.1,
    linger_seconds=0.05,
    executor_cores=0.05,
    driver_cores=0.2,
    executor_mb=300.0,
    bundle_mb=100.0,
)


def loads() -> list[BundleLoad]:
    return bundle_loads(PIPELINE, gains(PIPELINE), DEMANDS, THREADS, SEGMENTS, Routing.SHUFFLE, COSTS)


def test_cpu_of_a_tuple_is_that_of_all_it_causes() -> None:
    # fast: 0.5 / 100; slow: half a tuple at 0.4 / 40 of its own process
    assert cpu_seconds_per_tuple(gains(PIPELINE), DEMANDS, THREADS) == pytest.approx(0.005 + 0.5 * 0.01)


def test_a_bundle_is_one_for_every_segment_on_every_slot() -> None:
    by_slot = [(load.slot, load.rows, load.most_batches, round(load.cpu_seconds, 6)) for load in loads()]
    # half of what fast gets goes on, and each of two slots gets half of that; a batch every 0.1 s. Both slots of slow,
    # which waits, send the sink one every 0.05 s
    assert by_slot == [(A, 1.0, 10.0, 0.005), (B, 0.25, 10.0, 0.0025), (C, 0.25, 10.0, 0.0025), (C, 0.5, 40.0, 0.0)]


def test_slots_use_what_their_bundles_do_and_the_engine_itself() -> None:
    used = slots_at(loads(), 20.0, COSTS)
    # A: Java 0.05, bundle 0.01, min(20, 1 / 0.1) batches of 0.001, 20 rows of 0.0001, 20 tuples of 0.005
    assert used[A] == pytest.approx((0.05 + 0.01 + 0.01 + 0.002 + 0.1, 400.0))
    # C: two bundles: 5 batches and 5 rows with 20 * 0.0025, 10 batches and 10 rows
    assert used[C] == pytest.approx((0.05 + 0.02 + 0.015 + 0.0015 + 0.05, 500.0))


def test_a_process_of_python_is_full_at_one_core() -> None:
    # A is full first: one core less 0.01, less 10 batches of 0.001, over 0.0001 + 0.005 a tuple
    assert processes_rate(loads(), COSTS) == pytest.approx(0.98 / 0.0051)


def test_a_machine_is_full_when_all_its_slots_and_the_driver_are() -> None:
    # two cores less the driver's 0.2, 3 times 0.05, 4 bundles of 0.01, 10 + 10 + 10 + 40 batches of 0.001, over 2 rows
    # of 0.0001 and 0.01 a tuple
    assert machine_rate(loads(), 2.0, COSTS) == pytest.approx((2 - 0.2 - 0.15 - 0.04 - 0.07) / 0.0102)
    assert machine_rate(loads(), 0.2, COSTS) == 0.0


def test_what_costs_nothing_has_no_limit() -> None:
    free = PlacedCosts(bundle_cores=0.0, batch_seconds=0.0, row_seconds=0.0, executor_cores=0.0, driver_cores=0.0)
    assert machine_rate([BundleLoad(A, 1.0, 1.0, 0.0)], 1.0, free) == math.inf


def test_operators_do_more_where_no_engine_makes_them_wait() -> None:
    """In trials threads were at work for a part of the time; placed, there is always something to do."""
    measured = Model(
        "waits",
        (
            Point(threads=1, rate=20.0, cpu=0.2, memory=0.1, busy=0.5),
            Point(threads=4, rate=90.0, cpu=0.3, memory=0.1, busy=0.6),
        ),
    )
    assert [without_engine(measured).rate(count) for count in (1, 4)] == [pytest.approx(40.0), pytest.approx(150.0)]
    assert without_engine(SLOW) == SLOW
