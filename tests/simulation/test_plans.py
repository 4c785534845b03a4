"""Plans in simulated time do what was predicted, where both assume the same."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from systems import NO_DELAY

import penstock
from adapters import model
from effort import tries
from penstock.api.models import models
from penstock.base.errors import BadInputError
from penstock.cluster.topology import Cluster, Node, Slot
from penstock.dataflow.load import Load
from penstock.dataflow.pipeline import Grouping, Kind, Operator, Pipeline, Stream, gains
from penstock.modelling.library import demands_of
from penstock.modelling.model import SINK_DEMAND, SOURCE_DEMAND
from penstock.planning.prediction.placement import Routing, supported_rate_as_declared
from penstock.simulation.engine import simulate_scenario
from penstock.simulation.from_plan import Options, from_plan, placed_pipeline, routes_of, stations_of
from penstock.simulation.scenario import Network, Scenario

if TYPE_CHECKING:
    from penstock.planning.plan import Plan
    from penstock.planning.prediction.placement import Demands
    from penstock.simulation.outcome import SimulationOutcome


def simulated(plan: Plan, load: float, options: Options, seconds: float) -> SimulationOutcome:
    pipeline = from_plan(plan, demands_of(plan.pipeline, models()), load, options)
    scenario = Scenario(plan.cluster, (pipeline,), seconds, warm_up=seconds / 2, network=Network(), contention=False)
    return simulate_scenario(scenario)


@pytest.mark.parametrize("pipeline", ["linear", "diamond", "star"])
@pytest.mark.parametrize("placer", ["sam", "rsm", "round-robin"])
def test_slot_aware_routing_sustains_what_is_predicted(pipeline: str, placer: str) -> None:
    plan = penstock.plan(pipeline, 100, placer=placer)
    predicted = plan.prediction.slot_aware
    seen = simulated(plan, 1.3 * predicted.rate, Options(Routing.SLOT_AWARE), 120.0).pipelines[plan.pipeline.name]
    assert seen.sustained_rate == pytest.approx(predicted.rate, rel=0.01)
    assert not seen.stable
    assert seen.bottleneck is not None
    below = simulated(plan, 0.98 * predicted.rate, Options(Routing.SLOT_AWARE), 120.0).pipelines[plan.pipeline.name]
    assert below.stable


@pytest.mark.parametrize("pipeline", ["linear", "diamond", "star"])
def test_shuffling_sustains_what_is_predicted(pipeline: str) -> None:
    # where every thread gets the same, the first slot that is too slow holds all up: with bounded queues the whole
    # pipeline does what it does
    plan = penstock.plan(pipeline, 100)
    predicted = plan.prediction.shuffle
    options = Options(Routing.SHUFFLE)
    name = plan.pipeline.name
    held_up = simulated(plan, 1.5 * predicted.rate, replace(options, queue_limit=60), 120.0).pipelines[name]
    assert held_up.sustained_rate == pytest.approx(predicted.rate, rel=0.02)
    assert held_up.bottleneck is not None
    assert held_up.bottleneck.operator == predicted.bottleneck
    above = simulated(plan, 1.06 * predicted.rate, options, 120.0).pipelines[name]
    assert not above.stable
    assert above.bottleneck is not None
    assert above.bottleneck.operator == predicted.bottleneck
    assert simulated(plan, 0.98 * predicted.rate, options, 120.0).pipelines[name].stable


def test_slots_use_what_is_predicted() -> None:
    plan = penstock.plan("diamond", 100)
    outcome = simulated(plan, 100.0, Options(Routing.SLOT_AWARE), 120.0)
    for slot, predicted in plan.prediction.slots.items():
        assert outcome.slots[slot].cpu == pytest.approx(predicted.cpu, abs=0.02)
        memory = plan.cluster.node(slot.node).capacity["memory_mb"] / plan.cluster.node(slot.node).slots
        assert outcome.slots[slot].memory_mb == pytest.approx(predicted.memory * memory, abs=0.02 * memory)


PEAKS = (5.0, 8.0, 20.0, 40.0)


@tries(2)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(1, 4), min_size=1, max_size=3),
            st.sampled_from(PEAKS),
            st.sampled_from([0.5, 1.0, 2.0]),
            st.sampled_from([Grouping.SHUFFLE, Grouping.SLOT_AWARE, Grouping.ALL, Grouping.LOCAL_OR_SHUFFLE]),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_placement_is_stable_below_the_predicted_rate_and_not_above(
    rows: list[tuple[list[int], float, float, Grouping]],
) -> None:
    """Every operator on slots of its own: nothing else limits it than what is predicted. (What comes after a stream to
    all threads gets more than the prediction counts, so only the last one may be such.)"""
    assume(all(row[3] is not Grouping.ALL for row in rows[:-1]))
    names = [f"o{number}" for number in range(len(rows))]
    demands = {
        name: model(name, (1, row[1], 0.5, 0.1), (4, 3 * row[1], 0.9, 0.2))
        for name, row in zip(names, rows, strict=True)
    }
    pipeline = Pipeline.of(
        "random",
        [Operator(name="source", kind=Kind.SOURCE), *(Operator(name=name, model=name) for name in names)],
        [
            Stream(sender=sender, receiver=receiver, selectivity=row[2], grouping=row[3])
            for sender, receiver, row in zip(["source", *names], names, rows, strict=False)
        ],
    )
    threads: dict[Slot, dict[str, int]] = {Slot("n0", 0): {"source": 1}}
    for name, row in zip(names, rows, strict=True):
        threads |= {Slot("n0", len(threads) + position): {name: count} for position, count in enumerate(row[0])}
    one_node = Cluster((Node("n0", "r0", len(threads), {"cpu": 100.0 * len(threads), "memory_mb": 1e4}),))
    known: Demands = {"source": SOURCE_DEMAND, **demands}
    predicted = supported_rate_as_declared(pipeline, gains(pipeline), known, threads)
    assume(1 < predicted.rate < math.inf)
    for part, stable in ((0.97, True), (1.12, False)):
        simulated_pipeline = placed_pipeline(pipeline, threads, known, one_node, 1.0, load=part * predicted.rate)
        seconds = max(60.0, 600 / predicted.rate)
        scenario = Scenario(one_node, (simulated_pipeline,), seconds, warm_up=10.0, network=NO_DELAY)
        seen = simulate_scenario(scenario).pipelines["random"]
        assert seen.stable is stable, (part, predicted, seen.falling_behind, seen.sustained_rate)


# ------------------------------------------------------------------------------------------- conversion


def small() -> tuple[Pipeline, dict[Slot, dict[str, int]], Cluster]:
    pipeline = Pipeline.of(
        "small",
        [
            Operator(name="source", kind=Kind.SOURCE),
            Operator(name="a", model="a"),
            Operator(name="b", threads=2, cpu=50.0, memory_mb=100.0),
            Operator(name="sink", kind=Kind.SINK),
        ],
        [
            Stream(sender="source", receiver="a"),
            Stream(sender="a", receiver="b", selectivity=2.0, weight=0.5, grouping=Grouping.GLOBAL),
            Stream(sender="source", receiver="b", selectivity=0.5, grouping=Grouping.GLOBAL),
            Stream(sender="b", receiver="sink", selectivities={"a": 1.0, "source": 0.4}, bytes=80.0),
        ],
    )
    threads = {Slot("n0", 0): {"source": 1, "a": 3, "sink": 1}, Slot("n0", 1): {"a": 1, "b": 2}}
    return pipeline, threads, Cluster((Node("n0", "r0", 2, {"cpu": 200.0, "memory_mb": 2000.0}, speed=2.0),))


def test_stations_of_a_placement() -> None:
    pipeline, threads, machines = small()
    demands: Demands = {
        "source": SOURCE_DEMAND,
        "a": model("a", (1, 10, 0.5, 0.1), (3, 24, 0.9, 0.3)),
        "b": None,
        "sink": SINK_DEMAND,
    }
    source, a_three, a_one, b, sink = stations_of(pipeline, threads, demands, machines, 20.0)
    assert (source.service_seconds, source.idle_cpu, source.memory_mb) == (0.0, 0.1, (150.0, 150.0))
    assert (sink.service_seconds, sink.idle_cpu, sink.memory_mb) == (0.0, 0.1, (200.0, 200.0))
    # I(3) = 24 on a core twice as fast: 48/s, so 3 / 48 s for a thread, 0.9 / 48 of a core
    assert (a_three.service_seconds, a_three.cpu_seconds) == pytest.approx((3 / 48, 0.9 / 48))
    assert a_three.memory_mb == pytest.approx((0.0, 300.0))
    assert (a_one.service_seconds, a_one.cpu_seconds) == pytest.approx((1 / 20, 0.5 / 20))
    # b gets 20 + 10 tuples/s, all on its first thread; two threads of half a core each: 1 / 30 s of CPU, by 2
    assert b.threads == 1
    assert (b.service_seconds, b.cpu_seconds) == pytest.approx((1 / 30 / 2, 1 / 30 / 2))
    assert source.batched
    assert not a_one.batched


def test_routes_of_a_pipeline() -> None:
    pipeline, _, _ = small()
    routes = routes_of(pipeline, Options(skew=1.1))
    assert [route.selectivity for route in routes[:3]] == [1.0, 1.0, 0.5]
    # b's input is 2/3 from a and 1/3 from the source: (1.0 * 1 + 0.5 * 0.4) / 1.5
    assert routes[3].selectivity == pytest.approx(0.8)
    assert routes[3].bytes == 80.0
    assert {route.skew for route in routes} == {1.1}
    shuffled = routes_of(pipeline, Options(Routing.SLOT_AWARE))
    assert {route.grouping for route in shuffled} == {Grouping.SLOT_AWARE}


@pytest.mark.parametrize(
    ("threads", "message"),
    [
        ({Slot("n7", 0): {"source": 1}}, "unknown node 'n7'"),
        ({Slot("n0", 0): {"sauce": 1}}, "unknown operator 'sauce'; did you mean 'source'"),
        ({Slot("n0", 0): {"source": 1}}, "operator 'a' has no thread"),
    ],
)
def test_a_placement_of_other_operators_is_refused(threads: dict[Slot, dict[str, int]], message: str) -> None:
    pipeline, _, machines = small()
    demands: Demands = {"source": SOURCE_DEMAND, "a": model("a", (1, 10, 0.5, 0.1)), "b": None, "sink": SINK_DEMAND}
    with pytest.raises(BadInputError, match=message):
        placed_pipeline(pipeline, threads, demands, machines, 10.0)


def test_a_plan_runs_at_its_own_rate_unless_told() -> None:
    plan = penstock.plan("linear", 50)
    demands = demands_of(plan.pipeline, models())
    assert from_plan(plan, demands).load == Load.constant(50)
    assert from_plan(plan, demands, Load.on_off(10, 1, 1)).load.repeats
