from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from place_builders import by_node, clusters, node, pipeline, pipelines, placed, refused, whole

from effort import tries
from penstock.cluster.topology import CPU, MEMORY, Cluster
from penstock.planning.files import parse_whole_cluster
from penstock.planning.placement.communication import Talk, blocks
from penstock.planning.placement.contract import Placement, PlacementRequest, Room
from penstock.planning.placement.placers.compact import SPARE, Compact, small_and_large
from penstock.planning.placement.placers.compact_layout import Search
from penstock.planning.placement.placers.r_storm import RStorm
from penstock.planning.prediction.placement import stream_costs
from penstock.planning.whole_cluster import place_all


def cost(request: PlacementRequest, room: Room) -> float:
    return sum(stream_costs(request, placed(Compact(), request, room), room.cluster))


def test_a_pipeline_that_fits_one_node_goes_to_the_smallest_such_node() -> None:
    room = whole(Cluster((node("large", cpu=800, memory=8000), node("fits"), node("small", cpu=200))))
    assert by_node(placed(Compact(), pipeline([(2, 100, 100), (1, 100, 100)], [(0, 1)]), room)) == {
        "fits": {"o0": 2, "o1": 1}
    }


def test_a_pipeline_that_fits_one_rack_stays_in_it() -> None:
    # r1 has two nodes for it, r2 only one; the single large node comes first in the file.
    nodes = (node("x", "r2", cpu=600), node("a", "r1"), node("b", "r1"))
    answer = placed(Compact(), pipeline([(7, 100, 100)]), whole(Cluster(nodes)))
    assert set(by_node(answer)) == {"a", "b"}


def test_talking_operators_share_a_node() -> None:
    # Two pairs, 400 points each, on two nodes of 400: each pair gets its own node, all streams at most cost 1.
    request = pipeline([(2, 100, 100)] * 4, [(0, 2), (1, 3)])
    answer = placed(Compact(), request, whole(Cluster((node("a"), node("b")))))
    assert sorted(map(sorted, by_node(answer).values())) == [["o0", "o2"], ["o1", "o3"]]
    assert cost(request, whole(Cluster((node("a"), node("b"))))) == 0


def test_talking_threads_share_slots() -> None:
    # Slots of 1000 MB take two threads: best is each pair of talking operators in one slot.
    request = pipeline([(1, 10, 500)] * 4, [(0, 3), (1, 2)], slot_memory=1000)
    answer = placed(Compact(), request, whole(Cluster((node("a"),))))
    assert sorted(sorted(row) for row in answer.by_slot().values()) == [["o0", "o3"], ["o1", "o2"]]


def test_cpu_is_not_exceeded_although_it_is_soft() -> None:
    room = whole(Cluster((node("a"), node("b"))))
    assert by_node(placed(Compact(), pipeline([(8, 100, 10)]), room)) == {"a": {"o0": 4}, "b": {"o0": 4}}
    shortage = refused(Compact(), pipeline([(9, 100, 10)]), room).shortages[0]
    assert (shortage.resource, shortage.needed, shortage.offered) == ("cpu", 100, 0)


def test_fragmented_room_is_filled_largest_first() -> None:
    # Mixed evenly, the 100-point threads would split the nodes so that a 300-point thread finds no room.
    request = pipeline([(3, 100, 10), (3, 300, 10)], [(0, 1)])
    room = whole(Cluster(tuple(node(name, rack) for name, rack in [("a", "r1"), ("b", "r2"), ("c", "r3")])))
    assert by_node(placed(Compact(), request, room)) == {name: {"o0": 1, "o1": 1} for name in "abc"}


def test_in_a_plan_no_slot_exceeds_its_share() -> None:
    # 400 points on four slots: threads of 60 points go one to a slot, although memory and node have room for more.
    room = Room(Cluster((node("a"), node("b"))), slot_memory_shared=True)
    answer = placed(Compact(), pipeline([(5, 60, 10), (3, 40, 10)], [(0, 1)]), room)
    assert len(answer.by_slot()) == 5
    refusal = refused(Compact(), pipeline([(9, 60, 10)]), room)
    assert (refusal.shortages[0].resource, refusal.shortages[0].offered) == ("cpu of one slot", 40)
    assert refusal.more_slots_may_help
    assert not refused(Compact(), pipeline([(1, 120, 10)]), room).more_slots_may_help


@tries(2)
@given(st.data())
def test_in_a_plan_slots_keep_their_share_and_nodes_the_rest(data: st.DataObject) -> None:
    # cpu and memory are shared out to slots; what a node has of anything else is not: half a GPU helps nobody
    cluster = data.draw(clusters())
    request = data.draw(pipelines(len(cluster.dimensions)))
    answer = Compact().place(request, Room(cluster, slot_memory_shared=True))
    if not isinstance(answer, Placement):
        return
    demand = {operator.name: np.array(operator.demand) for operator in request.operators}
    taken: dict[str, np.ndarray] = {}
    for slot, row in answer.by_slot().items():
        used = np.sum([demand[operator] * threads for operator, threads in row.items()], axis=0)
        held = cluster.node(slot.node)
        of_node = taken.setdefault(slot.node, np.zeros(len(cluster.dimensions)))
        of_node += used
        for position, dimension in enumerate(cluster.dimensions):
            assert of_node[position] <= held.capacity[dimension.name] + 1e-6
            if dimension.name in (CPU, MEMORY):
                assert used[position] <= held.capacity[dimension.name] / held.slots + 1e-6


@tries(2)
@given(st.data())
def test_what_fits_one_thread_per_slot_is_placed(data: st.DataObject) -> None:
    # As many equal nodes as threads, each able to take any one thread: first fit cannot fail, so nothing may.
    request = data.draw(pipelines(2))
    nodes = tuple(node(f"n{i}", f"r{i % 3}", cpu=130, memory=600, slots=1) for i in range(request.threads))
    roomy = PlacementRequest(request.pipeline, request.operators, request.streams, request.sources)
    placed(Compact(), roomy, whole(Cluster(nodes)))


@tries(2)
@given(st.data())
def test_search_counts_what_it_gains(data: st.DataObject) -> None:
    """The running sums of the search equal those made afresh from what it ends with, and it never loses."""
    request = data.draw(pipelines(2))
    talk = Talk(request, 2)
    bins = data.draw(st.integers(2, 5))
    held = np.zeros((bins, talk.size))
    for operator, threads in enumerate(talk.threads):
        for _ in range(threads):
            held[data.draw(st.integers(0, bins - 1)), operator] += 1
    room = held @ talk.demand + data.draw(st.sampled_from([0.0, 100.0, 1e6]))
    levels = [np.arange(bins), np.arange(bins) // 2]
    search = Search(talk, talk.demand, room, held.copy(), levels)
    before = search.overlap()
    search.run(200)
    fresh = Search(talk, talk.demand, room, search.held.copy(), levels)
    assert search.overlap() == pytest.approx(fresh.overlap())
    assert search.overlap() >= before - 1e-9
    assert (search.held.sum(axis=0) == talk.threads).all()
    assert (search.free >= -1e-6).all()
    assert search.free == pytest.approx(fresh.free)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=8), st.integers(1, 9))
def test_as_many_racks_of_small_nodes_as_suffice(racks: list[tuple[int, int]], allowed: int) -> None:
    """As looking at every number of small racks finds it, the most first. Shares in eighths add up exactly."""
    sums, node = (np.array(column) / 8 for column in zip(*racks, strict=True))
    largest, smallest = np.argsort(-sums, kind="stable"), np.argsort(node, kind="stable").tolist()
    expected: list[int] = []
    for small in range(allowed, 0, -1):
        chosen = smallest[:small]
        chosen += [rack for rack in largest.tolist() if rack not in chosen][: allowed - small]
        if sums[chosen].sum() >= 1 + SPARE:
            expected = chosen
            break
    assert small_and_large(largest, sums, node, allowed) == expected


def test_blocks_pair_up_a_chain_of_large_operators() -> None:
    # Four operators of two bins each in a chain. Two pairs: 1/4 + 1/4 of a stream meets; all four mixed: 3/8.
    talk = Talk(pipeline([(8, 100, 0)] * 4, [(0, 1), (1, 2), (2, 3)]), 2)
    grouped = blocks(talk, talk.threads, np.array([400.0, 1.0]), talk.demand)
    assert sorted(map(sorted, grouped)) == [[0, 1], [2, 3]]


def test_the_real_cluster() -> None:
    path = files("penstock.workloads") / "clusters" / "yahoo-1312-nodes.json"
    whole_cluster = parse_whole_cluster(json.loads(path.read_text("utf-8")), path.name)
    compact = place_all(whole_cluster.cluster, whole_cluster.requests, Compact())
    assert not compact.refused
    assert compact.usage.hard_violations == 0
    assert compact.usage.soft_overload == {"cpu": 0}
    assert compact.network_cost < 0.81
    r_storm = place_all(whole_cluster.cluster, whole_cluster.requests, RStorm())
    assert not r_storm.refused
    assert r_storm.usage.hard_violations == 0
    assert r_storm.network_cost == pytest.approx(1.8293, abs=1e-4)
