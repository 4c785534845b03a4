"""P-Deployer's packing beyond its worked cases, and the Metis baseline."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from place_builders import bench_module, by_node, clusters, node, pipeline, pipelines, placed, refused, whole

import penstock
from effort import tries
from penstock.base.errors import BadInputError
from penstock.base.registry import Registry
from penstock.cluster.topology import Cluster, Slot
from penstock.planning.placement.contract import Placement, PlacementRequest, Room
from penstock.planning.placement.placers.metis import Metis
from penstock.planning.placement.placers.packing import Packing, PackingTasks, pack
from penstock.planning.registry import PLACERS

EXAMPLES = Path(__file__).parents[2] / "examples"
needs_pymetis = pytest.mark.skipif("metis" not in PLACERS.names(), reason="pymetis is not installed")


def talking(request: PlacementRequest, rates: tuple[float, ...], moving: tuple[float, ...]) -> PlacementRequest:
    """The request with its declared cpu as what is needed in any case, and costs of moving on top."""
    operators = tuple(
        replace(operator, local_cpu=operator.demand[0], moving_cpu=cost)
        for operator, cost in zip(request.operators, moving, strict=True)
    )
    return replace(request, operators=operators, rates=rates)


def plain_packing(request: PlacementRequest, room: Room, weight: float) -> list[tuple[int, int]]:
    """Algorithm 1 as printed: every thread left is scored anew for every placing, from Eq. 3, 5 and 6 as they stand."""
    threads = [operator.threads for operator in request.operators]
    count = len(threads)

    def cpu(operator: int, here: list[int]) -> float:
        found = request.operators[operator]
        points = found.demand[0] if found.local_cpu is None else found.local_cpu
        for (sender, receiver), rate in zip(request.streams, request.rates, strict=False):
            for one, other in ((sender, receiver), (receiver, sender)):
                if one == operator and sender != receiver:
                    away = threads[other] - here[other]
                    points += found.moving_cpu * rate / (threads[one] * threads[other]) * away
        return points

    nowhere = [0] * count
    left = list(threads)
    order: list[tuple[int, int]] = []
    for position in range(len(room.free)):
        if not room.slots[position]:
            continue
        most_cpu, most_memory = room.capacity[position].tolist()
        mean_cpu = sum(cpu(i, nowhere) * threads[i] for i in range(count)) / sum(threads) / most_cpu
        mean_memory = sum(o.demand[1] * o.threads for o in request.operators) / sum(threads) / most_memory
        here = [0] * count

        def total(here: list[int]) -> float:
            return sum(cpu(i, here) * here[i] for i in range(count))

        while True:
            used_memory = sum(request.operators[i].demand[1] * here[i] for i in range(count))
            best, choice = -np.inf, None
            for i in range(count):
                after = [h + (k == i) for k, h in enumerate(here)]
                memory = request.operators[i].demand[1]
                fits = total(after) <= most_cpu * (1 + 1e-9) and used_memory + memory <= most_memory * (1 + 1e-9)
                if not left[i] or not fits:
                    continue
                saving = (cpu(i, nowhere) + total(here) - total(after)) / most_cpu
                cpu_gap = (cpu(i, here) - (most_cpu - total(here))) / most_cpu
                memory_gap = (memory - (most_memory - used_memory)) / most_memory
                priority = weight * saving - mean_cpu * cpu_gap**2 - mean_memory * memory_gap**2
                if priority > best + 1e-12:
                    best, choice = priority, i
            if choice is None:
                break
            here[choice] += 1
            left[choice] -= 1
            order.append((choice, position))
    return order


@tries(2)
@given(st.data())
def test_the_fast_packing_is_the_printed_one(data: st.DataObject) -> None:
    found = data.draw(clusters(most=4).filter(lambda cluster: len(cluster.dimensions) == 2))
    # one slot takes all of its node: what is compared is Algorithm 1, which knows no slots
    nodes = tuple(replace(machine, slots=min(machine.slots, 1)) for machine in found.nodes)
    room = whole(Cluster(nodes))
    request = replace(data.draw(pipelines(2)), slot_memory=None)
    rates = st.sampled_from([0.0, 1.0, 10.0, 33.0])
    costs = st.sampled_from([0.0, 0.1, 1.0, 3.0])
    request = talking(
        request,
        tuple(data.draw(rates) for _ in request.streams),
        tuple(data.draw(costs) for _ in request.operators),
    )
    weight = data.draw(st.sampled_from([0.0, 1.0, 2.5]))
    packed = pack(PackingTasks(request, room), request, room, weight, None)
    assert list(zip(packed.operators, packed.nodes, strict=True)) == plain_packing(request, room, weight)


def test_threads_of_a_plan_spread_over_the_cores_of_their_node() -> None:
    # 8 threads of 50 points on a node of 4 cores: two on each, not all on the first
    room = Room(Cluster((node("a"), node("b"))), slot_memory_shared=True)
    answer = placed(Packing(), pipeline([(8, 50, 100)]), room)
    assert answer.by_slot() == {Slot("a", number): {"o0": 2} for number in range(4)}


def test_memory_of_a_slot_is_kept_in_a_plan() -> None:
    # a slot of 1000 MB takes one thread of 600: four on a, the fifth on b, though a has 1600 MB left
    room = Room(Cluster((node("a"), node("b"))), slot_memory_shared=True)
    assert by_node(placed(Packing(), pipeline([(5, 1, 600)]), room)) == {"a": {"o0": 4}, "b": {"o0": 1}}


def test_nodes_are_opened_in_declared_order_and_those_without_slots_never() -> None:
    room = whole(Cluster((node("none", slots=0), node("small", cpu=100), node("large", cpu=1000))))
    assert by_node(placed(Packing(), pipeline([(3, 90, 1)]), room)) == {"small": {"o0": 1}, "large": {"o0": 2}}


def test_the_budget_of_nodes() -> None:
    room = whole(Cluster(tuple(node(name) for name in "abc")))
    work = pipeline([(9, 100, 10)])  # four on a node: three nodes
    assert set(by_node(placed(Packing(nodes=3), work, room))) == {"a", "b", "c"}
    found = refused(Packing(nodes=2), work, room)
    assert str(found) == "packing: pipeline 'p' needs 3 nodes, closest is the budget with 2 (1 missing)"
    assert not found.more_slots_may_help
    # where there are no more nodes than the budget, it is not the budget that is short
    short = refused(Packing(nodes=2), work, whole(Cluster((node("a"), node("b")))))
    assert short.shortages[0].resource == "cpu"
    assert short.more_slots_may_help


@pytest.mark.parametrize("option", ["nodes=0", "nodes=two", "saving_weight=-1", "budget=2"])
def test_bad_options(option: str) -> None:
    with pytest.raises(BadInputError, match="placer 'packing': "):
        penstock.plan("linear", 50, placer=f"packing:{option}")


def test_the_refusal_names_the_thread_that_fits_nowhere_not_the_first_that_is_left() -> None:
    room = whole(Cluster((node("a", cpu=100), node("b", cpu=100))))
    found = refused(Packing(), pipeline([(3, 90, 1), (1, 150, 1)]), room)
    shortage = found.shortages[0]
    assert (shortage.operator, shortage.resource, shortage.needed) == ("o1", "cpu", 150)
    assert not found.more_slots_may_help


def test_a_demand_beyond_all_bounds_is_refused_like_any_other() -> None:
    found = refused(Packing(), pipeline([(1, 10, 1), (1, 1e300, 1)]), whole(Cluster((node("a"),))))
    assert (found.shortages[0].operator, found.shortages[0].needed) == ("o1", 1e300)


def test_a_larger_machine_is_rented_for_a_thread_of_more_than_a_core() -> None:
    # one thread of 150 points when the other end is away, 300 MB: D1 has one core, D2 two
    room = Room(Cluster((node("a", slots=1, cpu=100),)), slot_memory_shared=True)
    assert refused(Packing(), pipeline([(1, 150, 1)]), room).more_slots_may_help


def test_the_bench_places_everything() -> None:
    request, cluster = bench_module("pack_tasks").generated(500, 7)
    answer = placed(Packing(), request, Room(cluster, slot_memory_shared=True))
    assert sum(bundle.threads for bundle in answer.bundles) == 500


# ------------------------------------------------------------------------------------------------------ Metis


def exchanged(request: PlacementRequest, answer: Placement) -> float:
    """The share of the tuples that cross between nodes."""
    rows = by_node(answer)
    total = {operator.name: operator.threads for operator in request.operators}
    crossing = 0.0
    for (sender, receiver), rate in zip(request.streams, request.rates, strict=True):
        a, b = request.operators[sender].name, request.operators[receiver].name
        crossing += rate * (1 - sum(row.get(a, 0) * row.get(b, 0) for row in rows.values()) / total[a] / total[b])
    return crossing / sum(request.rates)


@needs_pymetis
def test_metis_keeps_talkers_together_and_nodes_balanced() -> None:
    # two pairs, each of one chatty stream, and a trickle between them: a pair on each node, nothing chatty is cut
    request = pipeline([(1, 50, 1)] * 4, [(0, 1), (2, 3), (1, 2)])
    request = replace(request, rates=(1000.0, 1000.0, 1.0))
    answer = placed(Metis(), request, Room(Cluster((node("a"), node("b"))), slot_memory_shared=True))
    assert sorted(sorted(row) for row in by_node(answer).values()) == [["o0", "o1"], ["o2", "o3"]]
    assert exchanged(request, answer) == pytest.approx(1 / 2001)


@needs_pymetis
def test_metis_follows_the_cpu_of_the_nodes() -> None:
    nodes = (node("small", slots=1, cpu=100), node("large", slots=3, cpu=300))
    room = Room(Cluster(nodes), slot_memory_shared=True)
    row = by_node(placed(Metis(), pipeline([(400, 1, 1)]), room))
    assert row["small"]["o0"] == pytest.approx(100, abs=15)


@needs_pymetis
def test_metis_refuses_what_memory_does_not_hold() -> None:
    room = Room(Cluster((node("a"), node("b"))), slot_memory_shared=True)
    found = refused(Metis(), pipeline([(9, 1, 900)]), room)  # eight slots of 1000 MB
    assert found.shortages[0].resource == "memory_mb of one slot"
    assert found.more_slots_may_help


@needs_pymetis
def test_metis_says_when_the_graph_is_too_large() -> None:
    nodes = tuple(node(f"n{number}") for number in range(400))
    room = Room(Cluster(nodes), slot_memory_shared=True)
    found = refused(Metis(), pipeline([(1600, 1, 1), (1600, 1, 1)], [(0, 1)]), room)
    assert "needs 2.56e+06 edges between threads, closest is the limit of this placer with 2e+06" in str(found)


@needs_pymetis
def test_metis_does_not_place_whole_clusters() -> None:
    with pytest.raises(BadInputError, match=r"placer 'metis' places bundles of a plan, .*use .*packing"):
        penstock.place("yahoo-1312-nodes", placer="metis")


@needs_pymetis
def test_the_published_baseline_as_a_pair_of_policies() -> None:
    machines = Cluster(tuple(node(name, slots=2, cpu=200, memory=7168) for name in "abc"))
    answers = [
        penstock.plan(
            EXAMPLES / "word-count.yaml",
            1000,
            allocator="per-node",
            placer=placer,
            models=EXAMPLES / "profiles.json",
            cluster=machines,
        )
        for placer in ("metis", "round-robin")
    ]
    plan, dealt = answers
    assert {operator.threads for operator in plan.allocation.operators} == {3}
    # 220 points of processing and up to 240 of moving on three nodes of 200: balanced, none is above
    assert max(used.cpu for used in plan.prediction.nodes.values()) < 2
    assert sum(used.cpu for used in plan.prediction.nodes.values()) <= sum(
        used.cpu for used in dealt.prediction.nodes.values()
    )


@needs_pymetis
def test_metis_keeps_its_remarks_to_itself(capfd: pytest.CaptureFixture[str]) -> None:
    """From C it prints to standard output where parts stay empty: here there are many more nodes than threads."""
    machines = Cluster(tuple(node(f"n{number}", slots=1, cpu=100, memory=3584) for number in range(400)))
    assert penstock.plan("linear", 20, placer="metis", cluster=machines).placement.bundles
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == ""


def test_a_policy_whose_package_is_missing_is_not_listed_and_says_what_to_install() -> None:
    table: Registry[Any] = Registry(
        "placer", "penstock.none", {"here": "a:b", "gone": "c:d"}, {"gone": ("no_such_package", "extra")}
    )
    assert table.names() == ["here"]
    with pytest.raises(BadInputError, match=r"placer 'gone' needs no_such_package: pip install 'penstock\[extra\]'"):
        table.create("gone")
    assert PLACERS.needs["metis"] == ("pymetis", "metis")
