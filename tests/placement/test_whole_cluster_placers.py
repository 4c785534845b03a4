"""What holds for every placer that can place many pipelines on one cluster."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from place_builders import by_node, clusters, node, pipeline, pipelines, placed, refused, whole, workloads

from effort import tries
from penstock.base.errors import BadInputError
from penstock.cluster.topology import Cluster, Slot
from penstock.planning.files import parse_whole_cluster
from penstock.planning.placement.contract import PlacedBundle, Placement, PlacementRequest, Placer, Room
from penstock.planning.placement.placers.balanced_eft import BalancedEft
from penstock.planning.placement.placers.baselines import RandomFeasible, RoundRobin
from penstock.planning.placement.placers.compact import Compact
from penstock.planning.placement.placers.eft import Eft
from penstock.planning.placement.placers.packing import Packing
from penstock.planning.placement.placers.r_storm import RStorm
from penstock.planning.prediction.placement import mean_cost, stream_costs
from penstock.planning.whole_cluster import place_all, usage

PLACERS: list[Placer] = [RStorm(), Compact(), RandomFeasible(), RoundRobin(), Packing(), Eft(), BalancedEft()]
BLIND_TO_SOFT = (RStorm, RoundRobin)
every_placer = pytest.mark.parametrize("placer", PLACERS, ids=lambda placer: placer.name)


def demands(request: PlacementRequest) -> dict[str, tuple[float, ...]]:
    return {operator.name: operator.demand for operator in request.operators}


@every_placer
@tries(2)
@given(work=workloads())
def test_limits_are_kept(placer: Placer, work: tuple[Cluster, list[tuple[PlacementRequest, int]]]) -> None:
    cluster, requests = work
    result = place_all(cluster, requests, placer)
    assert {request.pipeline for request, _ in requests} == set(result.placements) | set(result.refused)
    used: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(len(cluster.dimensions)))
    holder: dict[Slot, str] = {}
    for request, _ in requests:
        placement = result.placements.get(request.pipeline)
        if placement is None:
            assert result.refused[request.pipeline].shortages
            continue
        threads: dict[str, int] = defaultdict(int)
        memory: dict[Slot, float] = defaultdict(float)
        for bundle in placement.bundles:
            demand = demands(request)[bundle.operator]
            threads[bundle.operator] += bundle.threads
            memory[bundle.slot] += bundle.threads * demand[1]
            used[bundle.slot.node] += np.multiply(demand, bundle.threads)
            assert holder.setdefault(bundle.slot, request.pipeline) == request.pipeline
            assert bundle.slot.number < cluster.node(bundle.slot.node).slots
            assert bundle.threads > 0
        assert threads == {operator.name: operator.threads for operator in request.operators}
        for slot, amount in memory.items():
            limit = min(cluster.node(slot.node).capacity["memory_mb"], request.slot_memory or math.inf)
            assert amount <= limit + 1e-6
    for name, amounts in used.items():
        for amount, dimension in zip(amounts, cluster.dimensions, strict=True):
            if dimension.hard or not isinstance(placer, BLIND_TO_SOFT):
                assert amount <= cluster.node(name).capacity[dimension.name] + 1e-6
    assert result.usage.hard_violations == 0
    assert result.usage.nodes_used == len(used)


@every_placer
@tries(1)
@given(work=workloads())
def test_same_input_same_output(placer: Placer, work: tuple[Cluster, list[tuple[PlacementRequest, int]]]) -> None:
    assert place_all(*work, placer) == place_all(*work, placer)


@every_placer
@tries(1)
@given(st.data())
def test_the_room_is_not_changed_and_a_plan_is_answered(placer: Placer, data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    room = Room(cluster, slot_memory_shared=data.draw(st.booleans()))
    request = data.draw(pipelines(len(cluster.dimensions)))
    free, taken = room.free.copy(), room.slots_taken.copy()
    answer = placer.place(request, room)
    assert (room.free == free).all()
    assert (room.slots_taken == taken).all()
    if isinstance(answer, Placement):
        room.take(answer, demands(request))
        total = sum(np.multiply(operator.demand, operator.threads) for operator in request.operators)
        assert (free - room.free).sum(axis=0) == pytest.approx(total)


@every_placer
def test_nothing_to_place(placer: Placer) -> None:
    assert placed(placer, pipeline([]), whole(Cluster((node("a"),)))).bundles == ()


@every_placer
def test_too_large_a_thread_is_refused_for_good(placer: Placer) -> None:
    refusal = refused(placer, pipeline([(1, 10, 100), (1, 10, 9000)]), whole(Cluster((node("a"), node("b")))))
    shortage = refusal.shortages[0]
    assert (shortage.operator, shortage.resource, shortage.needed) == ("o1", "memory_mb", 9000)
    assert not refusal.more_slots_may_help


def test_priority_decides_who_gets_room() -> None:
    cluster = Cluster((node("a", cpu=100, slots=4),))
    requests = [(pipeline([(1, 60, 10)], name=name), priority) for name, priority in [("x", 3), ("y", 1), ("z", 1)]]
    result = place_all(cluster, requests, Compact())
    assert list(result.placements) == ["y"]
    assert list(result.refused) == ["z", "x"]


def test_one_name_for_two_pipelines_is_an_error() -> None:
    with pytest.raises(BadInputError, match="'p' is declared twice"):
        place_all(Cluster((node("a"),)), [(pipeline([(1, 1, 1)]), 1)] * 2, Compact())


def test_usage_counts_what_is_exceeded() -> None:
    # Node a: 5 x 100 = 500 of 400 points, 5 x 900 = 4500 of 4000 MB; its slot 0 takes 4500 of 3000 MB.
    request = pipeline([(5, 100, 900)], slot_memory=3000)
    placement = Placement("p", "by hand", (PlacedBundle("o0", 5, Slot("a", 0)),))
    found = usage(Cluster((node("a"), node("b"))), [request], {"p": placement})
    assert (found.nodes_used, found.hard_violations, found.nodes_overloaded) == (1, 2, 1)
    assert found.soft_overload == {"cpu": 100}


def test_usage_counts_a_slot_held_twice() -> None:
    requests = [pipeline([(1, 1, 1)], name=name) for name in "xy"]
    both = {name: Placement(name, "by hand", (PlacedBundle("o0", 1, Slot("a", 0)),)) for name in "xy"}
    assert usage(Cluster((node("a"),)), requests, both).hard_violations == 1


def test_round_robin_deals_to_nodes_and_passes_over_full_ones() -> None:
    # Memory for one thread on a and for five on b: a, b, then b alone.
    room = whole(Cluster((node("a", memory=1000), node("b", memory=5000))))
    assert by_node(placed(RoundRobin(), pipeline([(2, 500, 900), (2, 0, 900)]), room)) == {
        "a": {"o0": 1},
        "b": {"o0": 1, "o1": 2},
    }


def test_round_robin_in_a_plan_deals_to_slots_blind_to_resources() -> None:
    room = Room(Cluster((node("a", slots=2), node("b", slots=1))), slot_memory_shared=True)
    answer = placed(RoundRobin(), pipeline([(2, 900, 9000), (3, 1, 1)]), room)
    assert answer.by_slot() == {
        Slot("a", 0): {"o0": 1, "o1": 1},
        Slot("a", 1): {"o0": 1, "o1": 1},
        Slot("b", 0): {"o1": 1},
    }


def test_random_spreads_evenly_and_follows_its_seed() -> None:
    room = whole(Cluster(tuple(node(f"n{i}", cpu=1e6, memory=1e6) for i in range(10))))
    request = pipeline([(1000, 1, 1)])
    counts = [row["o0"] for row in by_node(placed(RandomFeasible(1), request, room)).values()]
    # 1000 draws over 10 nodes: mean 100, standard deviation 9.5; five of them either way.
    assert len(counts) == 10
    assert all(52 < count < 148 for count in counts)
    assert placed(RandomFeasible(1), request, room) != placed(RandomFeasible(2), request, room)


@tries(4)
@given(st.data())
def test_network_cost_equals_the_mean_over_pairs(data: st.DataObject) -> None:
    cluster = data.draw(clusters().filter(lambda cluster: cluster.slots))
    request = data.draw(pipelines(len(cluster.dimensions)))
    threads = {
        operator.name: [data.draw(st.sampled_from(cluster.slots)) for _ in range(operator.threads)]
        for operator in request.operators
    }
    bundles = tuple(PlacedBundle(name, 1, slot) for name, slots in threads.items() for slot in slots)
    costs = stream_costs(request, Placement("p", "by hand", bundles), cluster)
    for (sender, receiver), cost in zip(request.streams, costs, strict=True):
        ends = (threads[request.operators[end].name] for end in (sender, receiver))
        distances = [cluster.distance(a, b) for a, b in product(*ends)]
        assert cost == pytest.approx(sum(distances) / len(distances))


def test_network_cost_by_hand() -> None:
    # o0: one thread on a/0. o1: on a/0, a/1, b/0 (same rack), c/0 (other rack): (0 + 1 + 2 + 3) / 4 = 1.5, twice.
    cluster = Cluster((node("a"), node("b"), node("c", "r2")))
    slots = (Slot("a", 0), Slot("a", 1), Slot("b", 0), Slot("c", 0))
    bundles = (PlacedBundle("o0", 1, slots[0]), *(PlacedBundle("o1", 1, slot) for slot in slots))
    request = pipeline([(1, 1, 1), (4, 1, 1)], [(0, 1), (0, 1)])
    costs = stream_costs(request, Placement("p", "by hand", bundles), cluster)
    assert costs == pytest.approx((1.5, 1.5))
    assert mean_cost(costs) == pytest.approx(1.5)
    assert mean_cost(()) == 0


@pytest.mark.parametrize("grouping", ["none", "local_or_shuffle", "local-or-shuffle", "custom", "fields", "shuffle"])
def test_groupings_are_read_in_storms_words_too(grouping: str) -> None:
    operators = [
        {"name": "s", "kind": "source", "threads": 1, "cpu": 10, "memory_mb": 100},
        {"name": "a", "threads": 2, "cpu": 10, "memory_mb": 100},
    ]
    nodes = [{"name": "n", "slots": 4, "cpu": 400, "memory_mb": 4000}]

    def read(word: str) -> PlacementRequest:
        pipeline = {"name": "p", "operators": operators, "streams": [["s", "a", word]]}
        return parse_whole_cluster({"nodes": nodes, "pipelines": [pipeline]}, "file").requests[0][0]

    assert read(grouping).streams == ((0, 1),)
    with pytest.raises(BadInputError, match="grouping"):
        read("nosuch")
