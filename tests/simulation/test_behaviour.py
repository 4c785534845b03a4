"""What happens to tuples, in cases small enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from systems import NO_DELAY, alone, cluster, queue, station

from penstock.cluster.topology import CPU, MEMORY, Cluster, Node, Slot
from penstock.dataflow.load import Load
from penstock.dataflow.pipeline import Grouping
from penstock.simulation.engine import simulate_scenario
from penstock.simulation.scenario import (
    Arrivals,
    Network,
    Outage,
    Scenario,
    Service,
    SimulatedPipeline,
    SimulatedRoute,
    Station,
    Switch,
)

if TYPE_CHECKING:
    from penstock.simulation.outcome import PipelineOutcome


def seen(pipeline: SimulatedPipeline, seconds: float, **more: Any) -> PipelineOutcome:
    return simulate_scenario(alone(pipeline, seconds, **more)).pipelines[pipeline.name]


# ------------------------------------------------------------------------------------------- service


def test_a_tuple_takes_its_service_and_its_hops() -> None:
    # source and work on one node (0.05 ms apart), sink in the other rack (1 ms); work takes 5 ms, one every 10 ms
    pipeline = replace(
        queue(100.0, 0.005), stations=(station("source"), station("work", 0, 1, 1, 0.005), station("sink", 1))
    )
    found = seen(pipeline, 10.0, network=Network())
    assert found.latency.milliseconds == {"p50": 6.05, "p95": 6.05, "p99": 6.05}
    assert found.latency.largest == pytest.approx(0.00605)
    assert found.operators["work"].utilisation == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("node", "slot", "expected"),
    [(0, 0, 5.0), (0, 1, 5.2), (2, 0, 5.6), (1, 0, 6.0)],
    ids=["slot", "node", "rack", "racks"],
)
def test_hops_by_distance(node: int, slot: int, expected: float) -> None:
    # n0 and n2 are in rack r0, n1 in r1; two hops of 0, 0.1, 0.3 or 0.5 ms each around 5 ms of service
    pipeline = replace(
        queue(10.0, 0.005), stations=(station("source"), station("work", node, slot, 1, 0.005), station("sink"))
    )
    found = seen(pipeline, 5.0, network=Network(0.0, 0.1, 0.3, 0.5))
    assert found.latency.mean * 1000 == pytest.approx(expected)


def test_threads_work_side_by_side() -> None:
    # 3 threads of 30 ms do 100/s; at 100/s the n-th tuple finds the thread of tuple n - 3 just free
    found = seen(queue(100.0, 0.03, threads=3), 10.0)
    assert found.latency.largest == pytest.approx(0.03)
    assert found.stable
    # 2 threads do 66.7/s
    slow = seen(queue(100.0, 0.03, threads=2), 60.0, warm_up=10.0)
    assert slow.sustained_rate == pytest.approx(2 / 0.03, rel=1e-3)
    assert slow.falling_behind == pytest.approx(100.0 / (2 / 0.03) - 1, rel=0.02)
    assert not slow.stable


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        # 10/s for 2 s, then 20/s: due at (0, 2]: 20, then 20 a second; what is due at 5 s itself is not before 5 s
        (Load(((2.0, 10.0), (2.0, 20.0))), [10, 10, 20, 20, 20]),
        # 10/s for a second, nothing for a second
        (Load.on_off(10.0, 1.0, 1.0), [10, 0, 10, 0, 10]),
        # 10/s for 2 s and nothing after that
        (Load(((2.0, 10.0), (1.0, 0.0))), [10, 10, 0, 0, 0]),
    ],
)
def test_what_is_offered(load: Load, expected: list[int]) -> None:
    pipeline = replace(queue(1.0, 0.0), load=load)
    found = seen(pipeline, 5.0, points=5)
    # a tuple due at the very end of a second counts in the next one
    assert np.abs(np.cumsum(found.timeline.offered) - np.cumsum(expected)).max() <= 1
    assert found.emitted == found.arrived == found.offered


def test_tuples_wait_for_the_next_batch() -> None:
    # due every 10 ms, batches every 100 ms: waits of 90, 80, ..., 0 ms
    base = queue(100.0, 0.0)
    batched = replace(base, stations=(replace(base.stations[0], batched=True), *base.stations[1:]))
    found = seen(batched, 10.0, batch_interval_ms=100.0)
    assert found.latency.mean == pytest.approx(0.045, rel=0.01)
    assert found.latency.largest == pytest.approx(0.09)
    assert seen(batched, 10.0).latency.largest == 0.0


# ------------------------------------------------------------------------------------------- dealing

PLACES = ((0, 0, 1), (0, 1, 2), (1, 0, 3))
"""Node, slot and threads of the receiver; the source is on the first slot."""


def dealt(grouping: Grouping, **more: Any) -> list[int]:
    """Tuples each slot of the receiver got of 600. One of its threads needs 10 ms on the first slot, 5 on others."""
    pipeline = SimulatedPipeline(
        "dealt",
        (
            station("source"),
            *(station("work", n, s, k, 0.01 if s + n == 0 else 0.005) for n, s, k in PLACES),
        ),
        (SimulatedRoute("source", "work", grouping, **more),),
        ("source",),
        Load.constant(60.0),
    )
    return [one.received for one in seen(pipeline, 10.001).stations[1:]]


@pytest.mark.parametrize(
    ("grouping", "expected"),
    [
        (Grouping.SHUFFLE, [100, 200, 300]),
        # 100, 400 and 600 tuples/s
        (Grouping.SLOT_AWARE, [55, 218, 327]),
        (Grouping.FIELDS, [100, 200, 300]),
        (Grouping.PARTIAL_KEY, [100, 200, 300]),
        (Grouping.DIRECT, [100, 200, 300]),
        (Grouping.LOCAL_OR_SHUFFLE, [600, 0, 0]),
        (Grouping.ALL, [600, 1200, 1800]),
        (Grouping.GLOBAL, [600, 0, 0]),
    ],
)
def test_groupings(grouping: Grouping, expected: list[int]) -> None:
    assert dealt(grouping) == pytest.approx(expected, abs=1)


def test_skewed_keys() -> None:
    # one key in a thousand has 1 / H(1000, 1.5) = 1 / 2.549 of the tuples; all of it meets in one thread
    pipeline = SimulatedPipeline(
        "skewed",
        (station("source"), *(station("work", 0, slot, 1, 0.01) for slot in range(1, 4))),
        (SimulatedRoute("source", "work", Grouping.FIELDS, skew=1.5),),
        ("source",),
        Load.constant(200.0),
    )
    shares = np.array([one.received for one in seen(pipeline, 50.0).stations[1:]]) / 10_000
    assert shares.max() > 1 / 2.549
    hot = seen(pipeline, 50.0)
    # the even share is 66.7/s of 100/s: only skew makes it too slow
    assert shares.max() * 200.0 > 100.0
    assert not hot.stable
    assert hot.bottleneck is not None
    assert hot.bottleneck.slot == hot.stations[1 + int(shares.argmax())].slot
    both = replace(pipeline, routes=(SimulatedRoute("source", "work", Grouping.PARTIAL_KEY, skew=1.5),))
    spread = np.array([one.received for one in seen(both, 50.0).stations[1:]]) / 10_000
    assert spread.max() < shares.max()


def test_a_keyed_thread_has_its_own_queue() -> None:
    # all tuples have one key: one of four threads of 10 ms does everything, 100/s; with shuffle they do 400/s
    base = queue(150.0, 0.01, threads=4)
    one_key = replace(
        base, routes=(SimulatedRoute("source", "work", Grouping.FIELDS, skew=1.0, keys=1), base.routes[1])
    )
    assert seen(one_key, 20.0).sustained_rate == pytest.approx(100.0, rel=0.01)
    assert seen(base, 20.0).sustained_rate == pytest.approx(150.0, rel=0.01)


@pytest.mark.parametrize(("selectivity", "expected"), [(0.5, 500), (2.0, 2000), (0.0, 0), (1.7, 1700)])
def test_selectivity(selectivity: float, expected: int) -> None:
    base = queue(100.0, 0.0)
    pipeline = replace(base, routes=(base.routes[0], replace(base.routes[1], selectivity=selectivity)))
    found = seen(pipeline, 10.001)
    assert found.operators["sink"].received == expected
    assert found.completed == pytest.approx(1000.0, rel=0.01)


def test_streams_that_carry_something_by_themselves() -> None:
    base = queue(100.0, 0.0)
    pipeline = replace(base, routes=(base.routes[0], replace(base.routes[1], constant=30.0)))
    found = seen(pipeline, 10.001)
    assert found.operators["sink"].received == 1300
    assert found.completed == pytest.approx(1000.0)
    assert found.latency.count == 1000


# ------------------------------------------------------------------------------------------ feedback


@pytest.mark.parametrize(("in_flight", "expected"), [(1, 1 / 0.012), (5, 5 / 0.012), (50, 1000.0)])
def test_a_closed_loop(in_flight: int, expected: float) -> None:
    # a tuple takes 10 ms and two hops of 1 ms; 10 threads do at most 1,000/s
    pipeline = replace(
        queue(5000.0, 0.01, threads=10, in_flight=in_flight),
        stations=(station("source"), station("work", 1, 0, 10, 0.01), station("sink")),
    )
    found = seen(pipeline, 20.0, network=Network(other_rack_ms=1.0), warm_up=5.0)
    assert found.sustained_rate == pytest.approx(expected, rel=0.01)
    assert found.emitted - found.completed <= in_flight


def test_back_pressure() -> None:
    # work does 100/s and holds 5 + 1 tuples; the rest waits outside, since the source holds 5 and 1 too
    found = seen(queue(150.0, 0.01, queue_limit=5), 30.0, warm_up=10.0)
    assert found.sustained_rate == pytest.approx(100.0, rel=0.01)
    assert found.queued <= 13
    assert found.waiting == pytest.approx(30 * 50, abs=20)
    assert found.bottleneck is not None
    assert (found.bottleneck.operator, found.bottleneck.why) == ("work", "service")


def moving(size: float, rate: float) -> SimulatedPipeline:
    base = queue(rate, 0.0)
    return replace(
        base,
        stations=(station("source"), station("work", 1), station("sink", 1, 1)),
        routes=(replace(base.routes[0], bytes=size), base.routes[1]),
    )


def test_links_carry_so_much() -> None:
    # 12,500 bytes are 0.1 megabits: 10 ms at 10 Mbit/s out of one node and 10 ms into the other, 100/s at most
    narrow = Network(0.0, 0.0, 0.0, 0.0, bandwidth_mbps=10.0)
    slow = seen(moving(12_500, 50.0), 10.0, network=narrow)
    assert slow.latency.mean == pytest.approx(0.02)
    full = seen(moving(12_500, 150.0), 30.0, network=narrow, warm_up=10.0)
    assert full.sustained_rate == pytest.approx(100.0, rel=0.01)
    assert full.bottleneck is not None
    assert (full.bottleneck.operator, full.bottleneck.why) == ("source", "network")
    # the nodes' own links have 1,000 Mbit/s
    assert seen(moving(12_500, 50.0), 10.0).latency.mean == pytest.approx(0.0002)


def test_a_pipeline_that_starves_another_of_its_link() -> None:
    narrow = Network(0.0, 0.0, 0.0, 0.0, bandwidth_mbps=10.0)
    small = replace(moving(125, 50.0), name="small")
    large = replace(moving(12_500, 150.0), name="large")
    both = simulate_scenario(Scenario(cluster(), (small, large), 20.0, network=narrow))
    assert not both.pipelines["large"].stable
    assert both.pipelines["small"].latency.mean > 1.0
    assert seen(small, 20.0, network=narrow).latency.mean == pytest.approx(0.0002)


# ----------------------------------------------------------------------------------------- contention


def two_on_a_slot(rate: float, cpu: float) -> SimulatedPipeline:
    """Two operators of 100/s each share a slot; each takes `cpu` cores at its peak."""
    return SimulatedPipeline(
        "shared",
        (
            station("source", 0, 1),
            station("first", 0, 0, 1, 0.01, cpu_seconds=cpu / 100),
            station("second", 0, 0, 1, 0.01, cpu_seconds=cpu / 100),
        ),
        (SimulatedRoute("source", "first"), SimulatedRoute("first", "second")),
        ("source",),
        Load.constant(rate),
    )


def test_a_slot_has_one_core() -> None:
    # each needs a whole core at its peak: together they do 50/s
    outcome = simulate_scenario(alone(two_on_a_slot(80.0, 1.0), 60.0, warm_up=20.0))
    found = outcome.pipelines["shared"]
    assert found.sustained_rate == pytest.approx(50.0, rel=0.02)
    assert outcome.slots[Slot("n0", 0)].cpu == pytest.approx(1.0, rel=0.02)
    assert found.bottleneck is not None
    assert found.bottleneck.why == "cpu"
    assert seen(two_on_a_slot(80.0, 1.0), 60.0, contention=False).stable
    assert seen(two_on_a_slot(80.0, 0.5), 60.0).stable
    assert seen(two_on_a_slot(80.0, 1.0), 60.0, slot_cores=2.0).stable


def test_a_node_may_have_fewer_cores_than_slots() -> None:
    small = Cluster((Node("n0", "r0", 4, {CPU: 100.0, MEMORY: 8192.0}),))
    apart = replace(
        two_on_a_slot(80.0, 1.0),
        stations=(
            station("source", 0, 3),
            station("first", 0, 0, 1, 0.01, cpu_seconds=0.01),
            station("second", 0, 1, 1, 0.01, cpu_seconds=0.01),
        ),
    )
    assert seen(apart, 60.0, warm_up=20.0, cluster=small).sustained_rate == pytest.approx(50.0, rel=0.02)
    assert seen(apart, 60.0, warm_up=20.0).sustained_rate == pytest.approx(80.0, rel=0.01)


def test_who_needs_little_gets_it() -> None:
    # one pipeline needs 0.2 cores of the slot, the other would take more than all: it gets 0.8
    little, much = (
        SimulatedPipeline(
            name,
            (station("source", 0, 1), station("work", 0, 0, 1, 0.005, cpu_seconds=0.005)),
            (SimulatedRoute("source", "work"),),
            ("source",),
            Load.constant(rate),
        )
        for name, rate in (("little", 40.0), ("much", 500.0))
    )
    outcome = simulate_scenario(Scenario(cluster(), (little, much), 60.0, warm_up=20.0, network=NO_DELAY))
    assert outcome.pipelines["little"].sustained_rate == pytest.approx(40.0, rel=0.01)
    assert outcome.pipelines["much"].sustained_rate == pytest.approx(160.0, rel=0.02)


# ------------------------------------------------------------------------------------------ happenings


def over_two_nodes(**more: Any) -> SimulatedPipeline:
    """100/s over two stations of 10 ms, the second on node n1."""
    return replace(
        queue(100.0, 0.01),
        stations=(station("source"), station("work", 0, 1, 1, 0.01), station("work", 1, 0, 1, 0.01), station("sink")),
        **more,
    )


def test_a_node_that_fails_loses_what_is_sent_to_it() -> None:
    # half of 100/s for 2 s
    found = seen(over_two_nodes(), 10.0, outages=(Outage("n1", 4.0, 6.0),))
    assert found.lost == pytest.approx(100, abs=1)
    assert found.completed == found.emitted - found.lost - found.queued
    for_ever = seen(over_two_nodes(), 10.0, outages=(Outage("n1", 4.0),))
    assert for_ever.lost == pytest.approx(300, abs=1)


def test_replays_lose_nothing() -> None:
    found = seen(over_two_nodes(replay_seconds=1.0), 20.0, outages=(Outage("n1", 4.0, 6.0),))
    assert found.lost > 100
    assert found.replayed == found.lost
    assert found.completed == found.offered - found.queued
    assert found.duplicated == 0
    assert found.latency.largest > 1.0


def test_replays_deliver_twice_what_another_branch_had_delivered() -> None:
    # every tuple goes to both ends; one of them is down for 2 s, so the other gets those 200 tuples again
    base = queue(100.0, 0.0)
    forked = replace(
        base,
        stations=(station("source"), station("work", 1), station("sink", 0, 2)),
        routes=(SimulatedRoute("source", "work"), SimulatedRoute("source", "sink")),
        replay_seconds=3.0,
    )
    found = seen(forked, 20.0, outages=(Outage("n1", 4.0, 6.0),))
    assert found.replayed == pytest.approx(200, abs=1)
    assert found.duplicated == found.replayed
    assert found.completed == found.offered


def test_a_source_that_fails_waits_outside() -> None:
    pipeline = replace(queue(100.0, 0.005), stations=(station("source", 1), *queue(100.0, 0.005).stations[1:]))
    found = seen(pipeline, 10.0, outages=(Outage("n1", 4.0, 6.0),))
    assert found.lost == 0
    assert found.completed >= found.offered - 1
    assert found.latency.largest == pytest.approx(2.0, abs=0.02)


def switched(drain: bool) -> PipelineOutcome:
    # work does 50/s for 10 s, then 200/s: 500 of 1,000 tuples are left at the switch, and take 10 s more to drain
    pipeline = queue(100.0, 0.02)
    faster = (pipeline.stations[0], station("work", 1, 0, 4, 0.02), pipeline.stations[2])
    return seen(pipeline, 60.0, switches=(Switch(10.0, "queue", faster, drain=drain, pause_seconds=0.5),))


def test_a_switch_with_a_drain_loses_nothing() -> None:
    found = switched(drain=True)
    assert found.lost == 0
    assert found.completed == found.emitted - found.queued == found.offered - found.queued
    assert found.drained[0] == pytest.approx((10.0, 20.5), abs=0.1)
    # 1,050 tuples waited outside; 200/s do them and what comes in another 10.5 s
    assert found.timeline.backlog[-20:].max() < 10


def test_a_switch_without_a_drain_loses_what_is_inside() -> None:
    found = switched(drain=False)
    assert found.lost == pytest.approx(500, abs=2)
    assert found.completed == found.emitted - found.lost - found.queued
    assert found.drained[0] == pytest.approx((10.0, 10.5))


def test_a_switch_away_from_a_node_that_failed_for_good() -> None:
    # the source was there: the 200 tuples due in the 2 s until the switch wait, and go on elsewhere
    base = queue(100.0, 0.002)
    broken = replace(base, stations=(station("source", 1), *base.stations[1:]))
    found = seen(broken, 10.0, outages=(Outage("n1", 4.0),), switches=(Switch(6.0, "queue", base.stations),))
    assert found.lost == 0
    assert found.completed >= found.offered - 1
    assert found.latency.largest == pytest.approx(2.0, abs=0.02)


def test_a_full_queue_that_fails_does_not_hold_up_its_senders_for_ever() -> None:
    found = seen(over_two_nodes(queue_limit=2, load=Load.constant(300.0)), 20.0, outages=(Outage("n1", 4.0, 5.0),))
    assert found.timeline.completed[-10:].min() > 0
    assert found.lost > 0


# -------------------------------------------------------------------------------------- many, and too much


def test_fairness_over_time() -> None:
    # one gets all it needs, the other half of it: degrees 1 and 0.5
    fast, slow = replace(queue(100.0, 0.005), name="fast"), replace(queue(100.0, 0.02), name="slow")
    outcome = simulate_scenario(Scenario(cluster(), (fast, slow), 50.0, network=NO_DELAY, contention=False))
    assert outcome.fairness[-1] == pytest.approx(0.75, abs=0.01)
    assert len(outcome.fairness) == 60


@pytest.mark.parametrize("service", list(Service))
def test_too_much_is_told_in_bounded_memory(service: Service) -> None:
    # 100,000/s for a station that does 1,000/s: 6 million tuples are never held at once
    scenario = alone(queue(100_000.0, 0.001, service=service), 60.0, warm_up=10.0, most_waiting=50_000)
    found = simulate_scenario(scenario).pipelines["queue"]
    assert not found.stable
    assert found.queued <= 50_000
    assert found.sustained_rate == pytest.approx(1000.0, rel=0.03)
    assert found.offered == pytest.approx(6_000_000, abs=1)
    assert found.waiting == found.offered - found.emitted > 5_000_000
    assert found.bottleneck is not None
    assert (found.bottleneck.operator, found.bottleneck.slot) == ("work", Slot("n0", 1))
    assert simulate_scenario(scenario).notes == (
        "pipeline 'queue': 50000 tuples were inside; its sources waited until there was room",
    )
    assert str(found.bottleneck) == "'work' on n0/1 (service, 100% busy)"


@pytest.mark.parametrize("arrivals", list(Arrivals))
@pytest.mark.parametrize("in_flight", [None, 10_000])
def test_far_too_much_takes_no_longer(arrivals: Arrivals, in_flight: int | None) -> None:
    # half a million million tuples are offered, and nobody makes them one by one
    pipeline = queue(1e11, 0.001, arrivals=arrivals, in_flight=in_flight)
    found = seen(pipeline, 5.0, most_waiting=20_000)
    assert found.offered == pytest.approx(5e11, rel=1e-5)
    assert found.sustained_rate == pytest.approx(1000.0, rel=0.01)
    assert found.waiting == found.offered - found.emitted


def test_latencies_are_sampled_where_there_are_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.simulation.counters.SAMPLE", 1000)
    found = seen(queue(1000.0, 0.002, threads=3), 30.0)
    assert found.latency.count == pytest.approx(30_000, abs=10)
    assert 300 < len(found.latency.sample) <= 1000
    assert found.latency.milliseconds["p50"] == pytest.approx(2.0)


def test_progress_ends_at_the_end() -> None:
    told: list[float] = []
    simulate_scenario(alone(two_on_a_slot(80.0, 1.0), 5.0), told.append)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0)


def test_stations_say_who_they_are() -> None:
    assert str(Station("work", Slot("n1", 2), 3, 0.5)) == "'work' on n1/2"
    assert station("work", threads=3, seconds=0.5).rate == 6.0
    assert station("work").rate == float("inf")
