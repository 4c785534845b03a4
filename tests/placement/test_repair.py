"""Nothing stranded: moves, other orders, packing anew; and bounds that no placement beats."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from place_builders import bench_module, by_node, node, pipeline, whole, workloads

from effort import tries
from penstock.cluster.topology import Cluster, Slot
from penstock.planning.placement.communication import stream_weights, thread_pairs, valued
from penstock.planning.placement.contract import PlacedBundle, Placement, PlacementRequest
from penstock.planning.placement.group_placement import (
    greedy_orders,
    most_that_fit,
    one_by_one,
    place_together,
    total_demand,
)
from penstock.planning.placement.insertion import Effort, Inserter, scarcity
from penstock.planning.placement.ledger import Ledger
from penstock.planning.placement.placers.baselines import RandomFeasible
from penstock.planning.placement.placers.compact import Compact
from penstock.planning.whole_cluster import _attempts, place_all, summed_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.planning.placement.contract import Placer


def test_a_thread_moves_out_of_the_way() -> None:
    # a and b have 400 points each. x takes 200 on each (most_per_node is not needed: two threads of 200 do not fit
    # beside each other with 100 more). y needs 300 on one node: x's threads must meet on the other.
    room = whole(Cluster((node("a"), node("b"))))
    requests = [
        pipeline([(1, 200, 10)], name="x1"),
        pipeline([(1, 200, 10)], name="x2"),
        pipeline([(1, 300, 10)], name="y"),
    ]
    ledger = Ledger(room, requests)
    assert ledger.put(0, 0, 1) == 1
    assert ledger.put(1, 1, 1) == 1
    effort = Effort(100)
    assert Inserter(ledger, scarcity(ledger, np.array([700.0, 30.0]))).insert(2, effort)
    assert effort.moves == 1
    found = ledger.placements([0, 1, 2], "test")
    assert by_node(found[0]) == by_node(found[1])
    assert by_node(found[2]) != by_node(found[0])


def test_a_swap_frees_memory_on_one_node_and_cpu_on_another() -> None:
    # On a a thread that takes all CPU and little memory, on b one that takes all memory and little CPU: 1.3 TB would be
    # stranded. z needs much of both: the two must share a node.
    room = whole(Cluster((node("a"), node("b"))))
    requests = [
        pipeline([(1, 350, 100)], name="cpu"),
        pipeline([(1, 50, 3500)], name="memory"),
        pipeline([(1, 300, 3000)], name="both"),
    ]
    ledger = Ledger(room, requests)
    assert ledger.put(0, 0, 1) == ledger.put(1, 1, 1) == 1
    assert Inserter(ledger, scarcity(ledger, np.array([700.0, 6600.0]))).insert(2, Effort(100))
    found = ledger.placements([0, 1, 2], "test")
    assert by_node(found[0]) == by_node(found[1])


def test_a_pipeline_that_does_not_get_in_changes_nothing() -> None:
    room = whole(Cluster((node("a"), node("b"))))
    requests = [pipeline([(3, 200, 10)], name="x"), pipeline([(1, 350, 10)], name="y")]
    ledger = Ledger(room, requests)
    ledger.put(0, 0, 2)
    ledger.put(1, 0, 1)
    before = ledger.placements([0], "test"), ledger.free.copy(), ledger.free_slots.copy()
    assert not Inserter(ledger, scarcity(ledger, np.array([950.0, 40.0]))).insert(1, Effort(100))
    assert ledger.placements([0], "test") == before[0]
    assert (ledger.free == before[1]).all()
    assert (ledger.free_slots == before[2]).all()


def test_more_of_one_priority_get_in_when_the_small_go_first() -> None:
    # In declared order the 400-point pipeline takes the node; two of 200 fit instead.
    requests = [(pipeline([(1, cpu, 10)], name=name), 1) for name, cpu in [("big", 400), ("s1", 200), ("s2", 200)]]
    result = place_all(Cluster((node("a"),)), requests, Compact())
    assert list(result.placements) == ["s1", "s2"]
    assert "of 3 pipelines of this priority 2 are placed, and no placement holds more than 2" in str(
        result.refused["big"]
    )
    # A higher priority is never left out for that.
    first = [(requests[0][0], 0), *requests[1:]]
    assert list(place_all(Cluster((node("a"),)), first, Compact()).placements) == ["big"]


@tries(3)
@given(work=workloads())
def test_together_places_no_fewer_than_one_by_one(work: tuple[Cluster, list[tuple[PlacementRequest, int]]]) -> None:
    """Of the most important level at least as many, and if as many, of the next, and so on."""
    cluster, requests = work
    queue = sorted(requests, key=lambda entry: entry[1])
    alone, _ = one_by_one(Compact(), [request for request, _ in queue], whole(cluster))
    found = place_together(Compact(), queue, whole(cluster))
    levels = sorted({level for _, level in queue})

    def counts(placed: object) -> list[int]:
        return [sum(r.pipeline in placed for r, at in queue if at == level) for level in levels]  # type: ignore[operator]

    assert counts(found.placements) >= counts(alone)
    result = summed_up(cluster, [request for request, _ in queue], "compact", found.placements, found.refused)
    assert (result.usage.hard_violations, result.usage.nodes_overloaded) == (0, 0)


@tries(4)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7),
    capacity=st.tuples(st.integers(1, 30), st.integers(1, 30)),
)
def test_the_bound_is_never_below_the_best_set(sizes: list[tuple[int, int]], capacity: tuple[int, int]) -> None:
    rows = np.array(sizes, dtype=float)
    best = max(
        count
        for count in range(len(sizes) + 1)
        for group in combinations(range(len(sizes)), count)
        if (rows[list(group)].sum(axis=0) <= capacity).all()
    )
    assert most_that_fit(rows, np.array(capacity, dtype=float)) >= best
    orders = greedy_orders(rows, np.array(capacity, dtype=float))
    assert all(sorted(order) == list(range(len(sizes))) for order in orders)


def test_the_bound_by_hand() -> None:
    # 6 + 5 + 4 of 10: two fit by the first dimension (4 + 5); by the second 1 + 1 + 9 of 10: two as well (1 + 1).
    rows = np.array([[6.0, 1.0], [5.0, 9.0], [4.0, 1.0]])
    assert most_that_fit(rows, np.array([10.0, 10.0])) == 2
    assert most_that_fit(rows, np.array([15.0, 11.0])) == 3


@tries(3)
@given(st.data())
def test_put_and_pick_leave_no_trace(data: st.DataObject) -> None:
    cluster, requests = data.draw(workloads())
    ledger = Ledger(whole(cluster), [request for request, _ in requests])
    free, slots = ledger.free.copy(), ledger.free_slots.copy()
    done = []
    for _ in range(data.draw(st.integers(0, 20))):
        operator = data.draw(st.integers(0, len(ledger.demand) - 1))
        where = data.draw(st.integers(0, len(free) - 1))
        done.append((where, operator, ledger.put(where, operator, data.draw(st.integers(1, 5)))))
    assert (ledger.free >= -ledger.slack - 1e-9).all()
    for where, operator, count in data.draw(st.permutations(done)):
        assert ledger.pick(where, operator, count) == count
    assert ledger.free == pytest.approx(free)
    assert (ledger.free_slots == slots).all()
    assert not ledger.counts.any()
    assert not any(ledger.rows)


def test_random_clusters_filled_to_95_percent_hold_what_others_place() -> None:
    """A few of those of `bench/place_everything.py`, which tries 200."""
    bench = bench_module("place_everything")
    for seed in (0, 71, 132):
        case = bench.measure(seed)
        placed = case["placed"]
        assert placed["compact"] >= max(placed.values())
        assert placed["compact"] <= case["bound"]
        assert case["violations"] == 0


def test_clusters_like_the_shipped_one_are_placed_whole() -> None:
    bench = bench_module("production_like")
    for seed in (0, 1):
        row = bench.measure("80 nodes", seed, bench.small(seed))
        assert (row["placed"], row["violations"]) == (row["pipelines"], 0)


def test_the_shipped_cluster_cut_to_two_thirds_is_placed_whole() -> None:
    bench = bench_module("production_like")
    shipped = bench.read_whole_cluster(bench.SHIPPED)
    cut = Cluster(shipped.cluster.nodes[:879], shipped.cluster.dimensions)
    result = place_all(cut, shipped.requests, Compact())
    assert len(result.placements) == 40
    assert (result.usage.hard_violations, result.usage.nodes_overloaded) == (0, 0)


def test_weights_of_streams() -> None:
    request = pipeline([(2, 1, 1), (3, 1, 1), (5, 1, 1)], [(0, 1), (1, 2)])
    assert thread_pairs(request) == (6, 15) == stream_weights(request)
    # Two pipelines, 21 and 9 pairs of 30, three streams in all: 2 + 3 x 21/30 and 1 + 3 x 9/30.
    other = pipeline([(3, 1, 1), (3, 1, 1)], [(0, 1)], name="q")
    assert [r.streams_worth for r in valued([request, other])] == pytest.approx([4.1, 1.9])


def test_cost_by_pairs_and_by_rate() -> None:
    # o0 and o1 share a slot (cost 0, 1 x 1 pairs); o2's three threads are on a/0, b/0 and c/0 of one rack: seen from o1
    # (0 + 2 + 2) / 3 = 4/3, 1 x 3 pairs. By pairs (0 x 1 + 4/3 x 3) / 4 = 1; with rates 9 and 1, 4/3 x 1 / 10.
    cluster = Cluster(tuple(node(name) for name in "abc"))
    request = pipeline([(1, 100, 10), (1, 100, 10), (3, 100, 10)], [(0, 1), (1, 2)])
    slots = [Slot(name, 0) for name in "abc"]
    bundles = [PlacedBundle("o0", 1, slots[0]), PlacedBundle("o1", 1, slots[0])]
    placement = Placement("p", "by hand", (*bundles, *(PlacedBundle("o2", 1, slot) for slot in slots)))
    told = summed_up(cluster, [request], "by hand", {"p": placement}, {})
    assert told.network_cost == pytest.approx(2 / 3)
    assert told.network_cost_by_pairs == pytest.approx(1.0)
    assert told.network_cost_by_rate is None
    rated = replace(request, rates=(9.0, 1.0))
    assert summed_up(cluster, [rated], "by hand", {"p": placement}, {}).network_cost_by_rate == pytest.approx(4 / 30)


def test_the_order_that_costs_the_least_is_taken() -> None:
    """Of random clusters, the cost per stream is at most 4 % above that of every order tried, and by pairs not above
    any of those that are as good per stream."""
    bench = bench_module("place_everything")
    for seed in (1010,):
        cluster, requests = bench.random_case(seed)
        leveled = [(request, 1) for request in requests]
        result = place_all(cluster, leveled, Compact())
        others = [place_together(Compact(), leveled, whole(cluster)).placements]
        others += [one_by_one(placer, order, whole(cluster))[0] for placer, order in attempts(leveled, cluster)]
        figures = [summed_up(cluster, requests, "", placed, {}) for placed in others if len(placed) == len(requests)]
        least = min(figure.network_cost for figure in figures)
        assert result.network_cost <= 1.04 * least + 1e-9
        close = [figure.network_cost_by_pairs for figure in figures if figure.network_cost <= 1.04 * least]
        assert result.network_cost_by_pairs == pytest.approx(min(close))
        assert result.network_cost_by_pairs < figures[0].network_cost_by_pairs


def attempts(
    leveled: Sequence[tuple[PlacementRequest, object]], cluster: Cluster
) -> list[tuple[Placer, list[PlacementRequest]]]:
    return list(_attempts(Compact(), leveled, whole(cluster)))


def test_no_placement_is_below_the_floor_of_the_cost_by_pairs() -> None:
    bench = bench_module("pair_cost_floor")
    # A node holds four threads: 2 + 2 meet in 4 of the 16 pairs on each of two nodes, in one slot and in one rack. More
    # than these 8 of 16 cannot meet on nodes of this size.
    room = whole(Cluster(tuple(node(name, memory=400) for name in "abcd")))
    request = pipeline([(4, 100, 100), (4, 100, 100)], [(0, 1)])
    assert bench.floor([request], room) == pytest.approx(3 - 1 - 1 / 2 - 1 / 2)
    found = place_all(room.cluster, [(request, 1)], Compact())
    assert found.network_cost_by_pairs == pytest.approx(1.0)


@tries(3)
@given(work=workloads())
def test_the_floor_of_the_cost_by_pairs_is_a_floor(work: tuple[Cluster, list[tuple[PlacementRequest, int]]]) -> None:
    cluster, requests = work
    bench = bench_module("pair_cost_floor")
    for placer in (Compact(), RandomFeasible()):
        for request, _ in requests:
            result = place_all(cluster, [(request, 1)], placer)
            if result.placements:
                assert bench.floor([request], whole(cluster)) <= result.network_cost_by_pairs + 1e-6


def test_total_demand() -> None:
    assert total_demand(pipeline([(2, 10, 100), (1, 5, 7)])).tolist() == [25, 207]
