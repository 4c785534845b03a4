"""Float noise decides nothing: not what is bought, not who is first of several that are equal."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import penstock
from adapters import chain, model, operator_request, request, room, sink, source
from effort import tries
from penstock.base.errors import Refusal
from penstock.base.tolerance import (
    TOLERANCE,
    cell,
    covers,
    exceeds,
    first_largest,
    first_smallest,
    ratio_key,
    tie_key,
    tie_keys,
    whole_down,
    whole_up,
)
from penstock.cluster.topology import CPU, DEFAULT_CATALOGUE, MEMORY, Cluster, Node, find_catalogue
from penstock.dataflow.pipeline import Operator, Pipeline, Stream
from penstock.dataflow.rewrite import separate_heavy
from penstock.modelling.library import ModelLibrary
from penstock.modelling.model import Model
from penstock.planning.allocation.contract import ThreadBundle
from penstock.planning.placement.contract import OperatorRequest, Placement, PlacementRequest, Room
from penstock.planning.placement.placers.r_storm import reference_node
from penstock.planning.placement.placers.rsm import Rsm
from penstock.planning.placement.placers.sam import Sam
from penstock.planning.planner import Planner
from penstock.planning.registry import ALLOCATORS, PLACERS, SHARERS
from penstock.planning.sharing.contract import Tenant, Tenants
from penstock.planning.sharing.fair_priority import FairPriority

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.planning.allocation.contract import OperatorAllocation

# ------------------------------------------------------------------------------------------------ the helper


# 0.1 + 0.2 is 0.30000000000000004
def test_an_exact_fit_is_a_fit() -> None:
    assert 0.3 < 0.1 + 0.2
    assert covers(0.3, 0.1 + 0.2)
    assert not exceeds(0.1 + 0.2, 0.3)
    assert not covers(0.3, 0.3 * (1 + 3 * TOLERANCE))
    assert exceeds(0.3 * (1 + 3 * TOLERANCE), 0.3)


# 300 - 299.7 is 0.30000000000001137: off by 4e-14 of itself, but what it came from was 300
def test_what_is_left_of_a_large_amount_is_compared_at_its_scale() -> None:
    assert covers(0.3, 300 - 299.7, scale=300)
    assert not covers(0.0, 300 - 299.7, scale=300)


@pytest.mark.parametrize(
    ("count", "down", "up"),
    [(3.0000000000000004, 3, 3), (2.9999999999999996, 3, 3), (2.5, 2, 3), (0.0, 0, 0), (1e-12, 0, 0), (1e-6, 0, 1)],
)
def test_counts_are_whole_but_for_rounding(count: float, down: int, up: int) -> None:
    assert (whole_down(count), whole_up(count)) == (down, up)


def test_large_counts_are_never_off_by_one() -> None:
    assert whole_down(1e12 + 0.4) == 10**12
    assert whole_up(1e12 + 0.4) == 10**12  # within a share of 1e-9 of itself


@given(st.integers(-2000, 2000), st.integers(0, 3), st.integers(-64, 64))
def test_keys_of_decimals_do_not_see_noise(number: int, digits: int, noise: int) -> None:
    value = number / 10**digits
    other = value + noise * math.ulp(2000.0)
    assert tie_key(value, 2000.0) == tie_key(other, 2000.0)
    assert tie_keys(np.array([value]), 2000.0)[0] == tie_key(value, 2000.0)
    noisy = value * (1 + noise * 2.0**-52)
    assert ratio_key(value) == ratio_key(noisy)


def test_keys_tell_apart_what_is_different() -> None:
    assert tie_key(1.0, 1.0) < tie_key(1.0 + 3 * cell(1.0), 1.0)
    assert ratio_key(1e-200) < ratio_key(1e-200 * (1 + 1e-8))
    assert (tie_key(math.inf, 1.0), ratio_key(math.inf)) == (math.inf, math.inf)


def test_the_first_of_those_that_tie() -> None:
    values = np.array([0.5, 0.1 + 0.2, 0.3, 0.9, 0.1 + 0.8])
    assert int(values.argmin()) == 2
    assert first_smallest(values, 1.0) == 1
    assert first_largest(-values, 1.0) == 1
    assert first_largest(values, 1.0) == 3


# ------------------------------------------------------------------------------------- what noise once bought


# 200 x 0.55 = 110.00000000000001: at 110/s a slot of azure_blob needs fewer threads than above it
@pytest.mark.parametrize("selectivity", [0.55, 0.5499999])
def test_threads_of_a_rate_that_a_measured_count_just_reaches(selectivity: float) -> None:
    assert 200 * 0.55 > 110
    blob = Operator(name="B", model="azure_blob")
    pipeline = chain(source(), blob, sink(), selectivity=selectivity)
    plan = penstock.plan(pipeline, rate=200)
    assert (plan.cluster.price, len(plan.cluster.slots)) == (0.392, 4)


# slots of 1.0: 20/20 and 60/10 go to the first, which has 20/70 left, 70/40 to the second, which has 30/60 left. For
# 20/40 both have 90 left, and the first takes it; then 30/60 fits the second exactly.
BEST_FIT = {"A": (0.2, 0.2), "B": (0.6, 0.1), "C": (0.7, 0.4), "D": (0.2, 0.4), "E": (0.3, 0.6)}


def test_best_fit_takes_the_first_of_two_slots_with_as_much_left() -> None:
    wanted = request([operator_request(name, (1, ThreadBundle(1, *amounts))) for name, amounts in BEST_FIT.items()])
    placed = Sam().place(wanted, room([2]))
    assert isinstance(placed, Placement)
    assert [bundle.slot.number for bundle in placed.bundles] == [0, 0, 1, 0, 1]


def exactly_nearest(threads: list[tuple[int, int]], nodes: int) -> list[int] | None:
    """RSM's rule on nodes of one slot of 10 x 10 tenths in whole numbers, where nothing is rounded."""
    left = [(10, 10)] * nodes
    chosen = []
    for cpu, memory in threads:
        fits = [node for node in range(nodes) if left[node][0] >= cpu and left[node][1] >= memory]
        if not fits:
            return None
        best = min(fits, key=lambda node: (left[node][0] - cpu) ** 2 + (left[node][1] - memory) ** 2)
        left[best] = left[best][0] - cpu, left[best][1] - memory
        chosen.append(best)
    return chosen


def nearest_by_rsm(threads: list[tuple[int, int]], nodes: int) -> list[int] | None:
    bundles = [ThreadBundle(1, cpu / 10, memory / 10) for cpu, memory in threads]
    wanted = request([operator_request(f"o{number}", (1, bundle)) for number, bundle in enumerate(bundles)])
    answer = Rsm(network_weight=0.0).place(wanted, room([1] * nodes))
    return None if isinstance(answer, Refusal) else [int(bundle.slot.node[1:]) for bundle in answer.bundles]


# v0 has 30/80 left, v1 50/60: for 10/40 that is 20^2 + 40^2 = 40^2 + 20^2, and v0 comes first; 50/10 then fits v1
def test_the_nearest_node_is_the_first_of_those_as_near() -> None:
    threads = [(7, 2), (5, 4), (1, 4), (5, 1)]
    assert nearest_by_rsm(threads, 2) == exactly_nearest(threads, 2) == [0, 1, 0, 1]


@tries(20)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=6), st.integers(1, 3))
def test_the_nearest_node_in_decimals_is_that_of_whole_numbers(threads: list[tuple[int, int]], nodes: int) -> None:
    assert nearest_by_rsm(threads, nodes) == exactly_nearest(threads, nodes)


# shares of r0: 100/700 + 300.3/1401.4 + 200/700 + 500.5/1401.4 = 300/700 + 800.8/1401.4 = 1
# shares of r1: twice 200/700 + 300.3/1401.4 = 400/700 + 600.6/1401.4 = 1: they tie, and r0 was declared first
def test_the_reference_rack_is_the_first_of_those_with_as_much() -> None:
    nodes = [("r0", 100, 300.3), ("r1", 200, 300.3), ("r1", 200, 300.3), ("r0", 200, 500.5)]
    cluster = Cluster(
        tuple(
            Node(f"n{position}", rack, 4, MappingProxyType({CPU: float(cpu), MEMORY: memory}))
            for position, (rack, cpu, memory) in enumerate(nodes)
        )
    )
    assert reference_node(Room(cluster, slot_memory_shared=False)) == 3


# of 0.64 of a slot 74 parts once were made, because the others did next to nothing: 0.64 / (4 x 0.00217) = 73.7
def test_what_fits_a_slot_is_not_separated() -> None:
    pipeline = chain(source(), *(Operator(name=name, model=name) for name in "abc"), sink())
    loads = {"source": 0.0, "a": 0.00217, "b": 0.00217, "c": 0.64, "sink": 0.0}
    assert separate_heavy(pipeline, loads, 4).done == ()
    # 1.64 slots need two, not 189 parts
    assert [step.into for step in separate_heavy(pipeline, {**loads, "c": 1.64}, 4).done] == [("c.1", "c.2")]


# --------------------------------------------------------------------------------- noise in every policy's input

tenths = st.integers(0, 10).map(lambda number: number / 10)
noises = st.integers(0, 2**32 - 1).map(np.random.default_rng)
"""Noise is drawn by a generator of its own, so that shrinking keeps the decimals simple."""


def noisy(value: float, generator: np.random.Generator) -> float:
    """As if it had been computed some other way: a few units in the last place away."""
    return value * (1 + int(generator.integers(-8, 9)) * 2.0**-52)


def test_noise_is_noise() -> None:
    generator = np.random.default_rng(1)
    values = {noisy(0.3, generator) for _ in range(100)}
    assert len(values) > 3
    assert all(value == pytest.approx(0.3, rel=1e-14) for value in values)
    assert 0.1 * 3 / 3 != 0.1 or 0.7 * 3 / 3 != 0.7 or 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1


def _noisy_request(wanted: OperatorRequest, generator: np.random.Generator) -> OperatorRequest:
    bundles = tuple(
        (count, replace(bundle, cpu=noisy(bundle.cpu, generator), memory=noisy(bundle.memory, generator)))
        for count, bundle in wanted.bundles
    )
    demand = tuple(noisy(amount, generator) for amount in wanted.demand)
    return replace(wanted, bundles=bundles, demand=demand, rate=noisy(wanted.rate, generator))


def _slots(answer: Placement | Refusal) -> Any:
    """What was decided: every bundle in order; of a refusal, for whom what was short."""
    if isinstance(answer, Refusal):
        return [(shortage.operator, shortage.resource) for shortage in answer.shortages], answer.more_slots_may_help
    return [(bundle.operator, bundle.threads, bundle.slot) for bundle in answer.bundles]


@st.composite
def bundled_requests(draw: Callable[..., Any]) -> tuple[PlacementRequest, list[int], list[int]]:
    """Up to six operators of one or two kinds of bundles, in tenths of a slot, and nodes that are about enough."""
    operators = []
    for number in range(draw(st.integers(1, 6))):
        bundles = []
        if draw(st.integers(0, 3)) == 0:
            bundles.append((draw(st.integers(1, 2)), ThreadBundle(3, 1.0, 1.0, exclusive=True)))
        bundles.append((draw(st.integers(1, 3)), ThreadBundle(draw(st.integers(1, 2)), draw(tenths), draw(tenths))))
        operators.append(operator_request(f"o{number}", *bundles))
    edges = [(a.name, b.name, 1.0) for a, b in pairwise(operators)]
    slots = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    racks = draw(st.lists(st.integers(0, 1), min_size=len(slots), max_size=len(slots)))
    return request(operators, edges), slots, racks


@tries(4)
@given(bundled_requests(), noises)
def test_no_placer_sees_noise_in_a_plan(
    asked: tuple[PlacementRequest, list[int], list[int]], generator: np.random.Generator
) -> None:
    wanted, slots, racks = asked
    other = replace(wanted, operators=tuple(_noisy_request(operator, generator) for operator in wanted.operators))
    for name in PLACERS.names():
        note(name)
        placer = PLACERS.create(name)
        assert _slots(placer.place(wanted, room(slots, racks))) == _slots(placer.place(other, room(slots, racks)))


@st.composite
def declared_requests(draw: Callable[..., Any]) -> tuple[Cluster, PlacementRequest]:
    """Demands and capacities with one decimal digit, threads of which a node takes several."""
    nodes = []
    for number in range(draw(st.integers(1, 6))):
        capacity = {CPU: draw(st.integers(1, 40)) * 10.1, MEMORY: draw(st.integers(1, 40)) * 100.1}
        nodes.append(Node(f"n{number}", f"r{draw(st.integers(0, 2))}", draw(st.integers(1, 4)), capacity))
    operators = []
    for number in range(draw(st.integers(1, 5))):
        demand = draw(st.integers(0, 80)) / 10 * 5, draw(st.integers(0, 80)) / 10 * 25
        operators.append(OperatorRequest(f"o{number}", draw(st.integers(1, 6)), demand))
    streams = tuple(pairwise(range(len(operators))))
    return Cluster(tuple(nodes)), PlacementRequest("p", tuple(operators), streams, (0,))


@tries(4)
@given(declared_requests(), noises)
def test_no_placer_sees_noise_on_a_whole_cluster(
    asked: tuple[Cluster, PlacementRequest], generator: np.random.Generator
) -> None:
    cluster, wanted = asked
    other = replace(wanted, operators=tuple(_noisy_request(operator, generator) for operator in wanted.operators))
    nodes = tuple(
        replace(node, capacity={name: noisy(amount, generator) for name, amount in node.capacity.items()})
        for node in cluster.nodes
    )
    for name in PLACERS.names():
        placer = PLACERS.create(name)
        if placer.whole_cluster:
            note(name)
            clean = placer.place(wanted, Room(cluster, slot_memory_shared=False))
            assert _slots(clean) == _slots(placer.place(other, Room(Cluster(nodes), slot_memory_shared=False)))


# three threads of half a point follow one of 2.5: two schedules end at the same time but for rounding
@pytest.mark.parametrize("seed", range(20))
def test_schedules_that_end_at_the_same_time_tie(seed: int) -> None:
    generator = np.random.default_rng(seed)
    sizes, threads = (17, 3, 3, 4, 1), ((1, 0.0), (1, 2.5), (3, 0.5))
    nodes = [Node(f"n{number}", "r0", 1, {CPU: size * 10.1, MEMORY: 100.1}) for number, size in enumerate(sizes)]
    operators = [OperatorRequest(f"o{number}", count, (cpu, 0.0)) for number, (count, cpu) in enumerate(threads)]
    wanted = PlacementRequest("p", tuple(operators), ((0, 1), (1, 2)), (0,))
    other = replace(wanted, operators=tuple(_noisy_request(operator, generator) for operator in operators))
    clean = PLACERS.create("balanced-eft").place(wanted, Room(Cluster(tuple(nodes)), slot_memory_shared=False))
    noisy_nodes = [
        replace(node, capacity={name: noisy(amount, generator) for name, amount in node.capacity.items()})
        for node in nodes
    ]
    again = PLACERS.create("balanced-eft").place(other, Room(Cluster(tuple(noisy_nodes)), slot_memory_shared=False))
    assert _slots(clean) == _slots(again)


@st.composite
def decimal_models(draw: Callable[..., Any], name: str = "m") -> Model:
    """Peak rates with one decimal digit that rise with the threads, or not; shares in tenths."""
    threads, points = 0, []
    for _ in range(draw(st.integers(1, 4))):
        threads += draw(st.integers(1, 5))
        points.append((threads, draw(st.integers(5, 300)) / 10, draw(tenths), draw(tenths)))
    return model(name, *points)


def noisy_model(found: Model, generator: np.random.Generator) -> Model:
    points = tuple(
        point.model_copy(
            update={what: noisy(getattr(point, what), generator) for what in ("rate", "cpu", "memory")},
        )
        for point in found.points
    )
    return Model(found.name, points)


def _counts(allocated: OperatorAllocation) -> list[tuple[int, int, bool]]:
    return [(count, bundle.threads, bundle.exclusive) for count, bundle in allocated.bundles]


@tries(8)
@given(decimal_models(), st.integers(1, 2000), noises)
def test_no_allocator_sees_noise(found: Model, rate: int, generator: np.random.Generator) -> None:
    for name in ALLOCATORS.names():
        note(name)
        allocator = ALLOCATORS.create(name)
        clean = allocator.allocate("A", rate / 10, found)
        other = allocator.allocate("A", noisy(rate / 10, generator), noisy_model(found, generator))
        assert _counts(clean) == _counts(other)
        assert (clean.cpu, clean.memory) == pytest.approx((other.cpu, other.memory), rel=1e-6, abs=1e-6)


@tries(2)
@given(decimal_models("a"), decimal_models("b"), st.integers(1, 20), st.integers(1, 300), noises)
def test_no_plan_sees_noise(
    first: Model, second: Model, selectivity: int, rate: int, generator: np.random.Generator
) -> None:
    """From the rate to the machines: a selectivity in tenths, and the same pipeline reached by other arithmetic."""
    answers = []
    for noise in (lambda value: value, lambda value: noisy(value, generator)):
        operators = [source(), Operator(name="a", model="a"), Operator(name="b", model="b"), sink()]
        names = [operator.name for operator in operators]
        streams = [Stream(sender=s, receiver=r, selectivity=noise(selectivity / 10)) for s, r in pairwise(names)]
        library = ModelLibrary.of([first, second])
        planner = Planner(Pipeline.of("p", operators, streams), library, find_catalogue(DEFAULT_CATALOGUE))
        answers.append([planner.plan(noise(rate / 10), ALLOCATORS.create(a), PLACERS.create(p)) for a, p in PAIRS])
    for pair, clean, other in zip(PAIRS, *answers, strict=True):
        note(str(pair))
        assert isinstance(clean, Refusal) == isinstance(other, Refusal)
        if not isinstance(clean, Refusal) and not isinstance(other, Refusal):
            assert len(clean.cluster.slots) == len(other.cluster.slots)
            assert _slots(clean.placement) == _slots(other.placement)


PAIRS = [("mba", "sam"), ("lsa", "rsm"), ("mba", "exact"), ("lsa", "even-split"), ("profiled", "packing")]


@st.composite
def tenancies(draw: Callable[..., Any]) -> Tenants:
    everyone = []
    for number in range(draw(st.integers(1, 6))):
        desired = draw(st.integers(1, 9))
        demand = {CPU: draw(st.integers(1, 40)) * 10.1, MEMORY: draw(st.integers(0, 40)) * 100.1}
        everyone.append(
            Tenant(
                f"p{number}",
                desired,
                draw(st.integers(1, desired)),
                draw(st.integers(1, 4)),
                waited=draw(st.integers(0, 4)) * 300.0,
                fairness=draw(tenths),
                resources=draw(st.none() | st.just(MappingProxyType(demand))),
            )
        )
    capacity = MappingProxyType({CPU: 200.2, MEMORY: 2002.0})
    nodes = tuple(Node(f"n{number}", "r", 2, capacity) for number in range(draw(st.integers(1, 20))))
    return Tenants.of(Cluster(nodes), everyone, 2)


@tries(8)
@given(tenancies(), st.integers(10, 30), noises)
def test_no_sharer_sees_noise(asked: Tenants, ratio: int, generator: np.random.Generator) -> None:
    other = replace(
        asked,
        cluster=Cluster(
            tuple(
                replace(node, capacity={name: noisy(amount, generator) for name, amount in node.capacity.items()})
                for node in asked.cluster.nodes
            )
        ),
        pipelines=tuple(
            replace(
                tenant,
                waited=noisy(tenant.waited, generator),
                fairness=noisy(tenant.fairness, generator),
                resources=None
                if tenant.resources is None
                else {name: noisy(amount, generator) for name, amount in tenant.resources.items()},
            )
            for tenant in asked.pipelines
        ),
    )
    for name in SHARERS.names():
        note(name)
        clean, again = SHARERS.create(name).share(asked), SHARERS.create(name).share(other)
        assert dict(clean.nodes) == dict(again.nodes)
        assert set(clean.waiting) == set(again.waiting)
    weights = ratio / 10, noisy(ratio / 10, generator) if ratio > 10 else 1.0
    assert FairPriority(weights[0]).share(asked).nodes == FairPriority(weights[1]).share(other).nodes
