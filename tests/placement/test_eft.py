"""`eft` and `balanced-eft`: their rules by hand, and what holds over random graphs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from place_builders import by_node, clusters, node, pipeline, pipelines, placed, refused, whole

import penstock
from effort import tries
from estream_adapters import PowerLeft
from penstock.base.errors import BadInputError, Refusal, RefusedError
from penstock.cluster.file import cluster_document, parse_cluster
from penstock.cluster.topology import Cluster, Node, Slot
from penstock.dataflow.task_graph import (
    Edge,
    capped_groups,
    communication_to_computation,
    convex_groups,
    joined_pairs,
    kahn_order,
    upward_ranks,
)
from penstock.planning.placement.contract import OperatorRequest, PlacementRequest, Room
from penstock.planning.placement.placers.balanced_eft import BalancedEft, best_schedule, least_bottleneck
from penstock.planning.placement.placers.eft import Eft
from penstock.planning.placement.placers.eft_schedule import (
    Assigned,
    Gaps,
    Instances,
    Machines,
    Queue,
    Rules,
    Schedule,
    Tasks,
    Transfer,
    order_of,
    schedule,
)
from penstock.planning.whole_cluster import place_all


def machines(*power: float) -> Machines:
    count = len(power)
    return Machines(np.arange(count), np.array(power), np.ones(count), np.zeros(count))


def tasks(work: list[float], *transfers: tuple[int, int, float]) -> Tasks:
    return Tasks(
        tuple((Instances(1, amount),) for amount in work),
        tuple(Transfer(sender, receiver, seconds=seconds) for sender, receiver, seconds in transfers),
    )


def run(work: Tasks, on: Machines, timeline: Queue | Gaps, rules: Rules | None = None) -> Schedule:
    found = schedule(work, on, PowerLeft(on.power.copy()), timeline, rules or Rules())
    assert isinstance(found, Schedule)
    return found


def sized(work: PlacementRequest, *traffic: float) -> PlacementRequest:
    return PlacementRequest(
        work.pipeline, work.operators, work.streams, work.sources, work.slot_memory, traffic=traffic
    )


def planned(cluster: Cluster) -> Room:
    return Room(cluster, slot_memory_shared=True)


# ---------------------------------------------------------------------------------------------- the schedule


# Two machines. a (1 s) feeds b (1 s) over 9 s; c (3 s) is ready at once. Priorities: a 1 + 9 + 1 = 11, c 3, b 1.
# Machine 0: a 0-1, then b 1-2 beats 10-11 elsewhere. c goes to machine 1.
def test_a_dear_transfer_keeps_two_together() -> None:
    found = run(tasks([1, 1, 3], (0, 1, 9)), machines(1, 1), Queue(np.zeros(2)))
    assert found.assigned == (Assigned(0, 0, 0, 0, 1), Assigned(2, 0, 1, 0, 3), Assigned(1, 0, 0, 1, 2))
    assert (found.makespan, found.bottleneck) == (3, 3)


# One machine, booked from 0 to 1 and from 5 to 6: between them is a gap of 4 s.
def test_work_goes_into_a_gap_only_with_insertion() -> None:
    queue, gaps = Queue(np.zeros(1)), Gaps(np.zeros(1))
    for timeline, starts in ((queue, 6.0), (gaps, 1.0)):
        timeline.book(0, 0, 1)
        timeline.book(0, 5, 6)
        assert timeline.start(np.zeros(1), np.array([2.0]))[0] == starts
    gaps.book(0, 1, 3)
    assert gaps.start(np.zeros(1), np.array([2.0]))[0] == 3
    assert gaps.start(np.zeros(1), np.array([2.5]))[0] == 6
    assert gaps.start(np.array([3.5]), np.array([1.0]))[0] == 3.5


# a and b of 1 s with a transfer of 5 s stay on one machine, which is then loaded 2 s; a limit of 1.5 s parts them.
def test_a_limit_on_loads_spreads_work() -> None:
    work, on = tasks([1, 1], (0, 1, 5)), machines(1, 1)
    assert [each.machine for each in run(work, on, Queue(on.idle)).assigned] == [0, 0]
    limited = run(work, on, Gaps(on.idle), Rules(load_limit=1.5))
    assert limited.assigned == (Assigned(0, 0, 0, 0, 1), Assigned(1, 0, 1, 6, 7))
    assert limited.bottleneck == 1


def test_the_last_instance_elsewhere_decides_when_input_is_there() -> None:
    # a's instances of 2 s end at 2 on both machines; b needs both, so 1 s later wherever it runs.
    work = Tasks(((Instances(2, 2),), (Instances(1, 1),)), (Transfer(0, 1, seconds=1),))
    assert run(work, machines(1, 1), Queue(np.zeros(2))).assigned[-1] == Assigned(1, 0, 0, 3, 4)


def test_a_transfer_goes_at_the_slower_end() -> None:
    on = Machines(np.arange(2), np.array([1.0, 8.0]), np.array([10.0, 5.0]), np.array([0.0, 4.0]))
    # a ends on machine 0 at 1 (on 1 only at 4.125); 20 bytes to machine 1 take 20 / 5 = 4 s: b is there 5-6, here 1-9
    work = Tasks(((Instances(1, 1),), (Instances(1, 8),)), (Transfer(0, 1, bytes=20),))
    assert [tuple(each) for each in run(work, on, Queue(on.idle)).assigned] == [(0, 0, 0, 0, 1), (1, 0, 1, 5, 6)]


# It runs on machine 1 and would be done 0.5 s earlier on machine 0: a migration of 0.6 s is not worth it.
@pytest.mark.parametrize(("migration", "machine"), [(0.0, 0), (0.4, 0), (0.6, 1), (np.inf, 1)])
def test_migration_costs(migration: float, machine: int) -> None:
    now = {(0, 0): np.array([0.0, 1.0])}
    found = run(tasks([1]), machines(2, 1), Gaps(np.zeros(2)), Rules(current=now, migration=migration))
    assert found.assigned[0].machine == machine
    assert len(found.moved(now)) == (machine == 0)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Tasks, Machines]:
    count = draw(st.integers(1, 9))
    amounts = st.sampled_from([0.0, 0.5, 1.0, 2.5])
    pairs = [(a, b) for b in range(count) for a in range(b) if draw(st.booleans())]
    work = tasks(draw(st.lists(amounts, min_size=count, max_size=count)), *((a, b, draw(amounts)) for a, b in pairs))
    return work, machines(*draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=4)))


def check_times(work: Tasks, on: Machines, found: Schedule) -> None:
    """Nothing starts before its input is there, and no machine does two things at once."""
    by_vertex = {each.vertex: each for each in found.assigned}
    assert sorted(by_vertex) == list(range(len(work.vertices)))
    for sender, receiver, _, seconds in work.transfers:
        a, b = by_vertex[sender], by_vertex[receiver]
        assert b.start >= a.finish + (seconds if a.machine != b.machine else 0) - 1e-9
    for machine in range(len(on)):
        busy = sorted((e.start, e.finish) for e in found.assigned if e.machine == machine and e.finish > e.start)
        assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(busy))
        assert sum(end - begin for begin, end in busy) <= found.bottleneck + 1e-9


@tries(2)
@given(graphs())
def test_schedules_keep_order_and_machines(drawn: tuple[Tasks, Machines]) -> None:
    work, on = drawn
    append = run(work, on, Queue(on.idle))
    check_times(work, on, append)
    check_times(work, on, run(work, on, Gaps(on.idle)))
    balanced, _ = best_schedule(work, on, lambda: PowerLeft(on.power.copy()), {}, BalancedEft())
    assert isinstance(balanced, Schedule)
    check_times(work, on, balanced)
    assert least_bottleneck(work, on) <= balanced.bottleneck + 1e-9
    # within the slack of the best it tried, of which the published schedule is one
    assert balanced.bottleneck <= append.bottleneck * 1.1 + 1e-9


# ------------------------------------------------------------------------------------------- groups of vertices


@tries(4)
@given(st.data())
def test_groups_are_convex_and_their_quotient_has_no_cycle(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    pairs = [(a, b) for b in range(count) for a in range(b) if data.draw(st.integers(0, 2)) == 0]
    joined = [pair for pair in pairs if data.draw(st.booleans())]
    order = kahn_order(count, pairs)
    most = data.draw(st.integers(1, count))
    for groups in (
        convex_groups(order, pairs, joined),
        capped_groups(order, pairs, joined, lambda members: len(members) <= most),
    ):
        place = {vertex: number for number, group in enumerate(groups) for vertex in group}
        assert sorted(place) == list(range(count))
        # groups stand in topological order: with that, a path cannot leave a group and come back
        assert all(place[a] <= place[b] for a, b in pairs)
    whole_groups = {v: g for g, group in enumerate(convex_groups(order, pairs, joined)) for v in group}
    assert all(whole_groups[a] == whole_groups[b] for a, b in joined)
    capped = capped_groups(order, pairs, joined, lambda members: len(members) <= most)
    assert all(len(group) <= max(1, most) for group in capped)


def test_a_cycle_is_broken_at_the_first_declared() -> None:
    assert kahn_order(3, [(0, 1), (1, 2), (2, 0)]) == [0, 1, 2]
    assert kahn_order(3, [(1, 2), (2, 1), (0, 0)]) == [0, 1, 2]


def test_ratios_of_what_computes_nothing() -> None:
    edges = [Edge(0, 1, 2.0), Edge(0, 1, 1.0), Edge(1, 2, 0.0)]
    assert communication_to_computation([0, 0, 0], edges) == {(0, 1): np.inf, (1, 2): 0.0}
    assert communication_to_computation([1, 2, 0], edges) == {(0, 1): 1.0, (1, 2): 0.0}


# ------------------------------------------------------------------------------------------------- the placers


def test_rule_1_refuses_more_instances_than_nodes() -> None:
    cluster = Cluster((node("a"), node("b")))
    refusal = refused(Eft(), pipeline([(3, 10, 10)]), whole(cluster))
    assert str(refusal) == (
        "eft: operator 'o0' needs 3 different nodes, one per instance, closest is the cluster with 2 (1 missing)"
    )
    assert by_node(placed(BalancedEft(), pipeline([(3, 10, 10)]), whole(cluster))) == {"a": {"o0": 2}, "b": {"o0": 1}}


def test_rule_1_counts_only_nodes_with_room() -> None:
    cluster = Cluster((node("a"), node("b", memory=50), node("c")))
    refusal = refused(Eft(), pipeline([(3, 10, 100)]), whole(cluster))
    assert "needs 3 different nodes with room, one per instance, closest is the cluster with 2" in str(refusal)


def test_faster_nodes_first() -> None:
    cluster = Cluster((node("a"), Node("b", "r1", 4, {"cpu": 400, "memory_mb": 4000}, speed=2.0)))
    assert by_node(placed(Eft(), pipeline([(1, 100, 10)]), whole(cluster))) == {"b": {"o0": 1}}


# 100 points are 1 s of work in a slot; at 1000 Mbit/s = 125 MB/s 250 MB take 2 s: ccr 2 / (0.5 + 0.2) is above 1.
def test_operators_that_talk_a_lot_share_a_slot() -> None:
    cluster = Cluster((node("a"), node("b")))
    talking = sized(pipeline([(1, 50, 10), (1, 20, 10)], [(0, 1)]), 250e6)
    for placer in (Eft(), BalancedEft()):
        assert placed(placer, talking, planned(cluster)).by_slot() == {Slot("a", 0): {"o0": 1, "o1": 1}}
    assert len(placed(Eft(delta=3), talking, planned(cluster)).by_slot()) == 2


def test_a_fused_vertex_too_big_for_a_slot_is_refused_as_published_and_capped_in_the_better_form() -> None:
    cluster = Cluster((node("a"), node("b")))
    talking = sized(pipeline([(1, 80, 10), (1, 70, 10)], [(0, 1)]), 250e6)
    refusal = refused(Eft(), talking, planned(cluster))
    assert str(refusal) == (
        "eft: fused vertex 'o0+o1' needs 150 cpu of one slot, closest is an empty a with 100 (50 missing)"
    )
    assert not refusal.more_slots_may_help
    assert len(placed(BalancedEft(), talking, planned(cluster)).by_slot()) == 2


def test_fused_threads_are_dealt_evenly() -> None:
    # 8 threads of 20 points and 4 of 10: 200 points, so two slots with 4 and 2 each, exactly full
    talking = sized(pipeline([(8, 20, 10), (4, 10, 10)], [(0, 1)]), 1e9)
    answer = placed(Eft(), talking, planned(Cluster((node("a"),))))
    assert list(answer.by_slot().values()) == [{"o0": 4, "o1": 2}, {"o0": 4, "o1": 2}]


def test_an_operator_comes_in_as_few_equal_instances_as_slots_carry() -> None:
    # 7 threads of 30 points: three fit a slot, so 3 instances of 3, 2 and 2
    answer = placed(Eft(), pipeline([(7, 30, 10)]), planned(Cluster((node("a"),))))
    assert sorted(row["o0"] for row in answer.by_slot().values()) == [2, 2, 3]


def test_a_thread_larger_than_any_slot_is_refused_for_good() -> None:
    refusal = refused(Eft(), pipeline([(2, 10, 3000)]), planned(Cluster((node("a"), node("b")))))
    assert "operator 'o0' needs 3000 memory_mb of one slot, closest is slot a/0 with 1000" in str(refusal)
    assert not refusal.more_slots_may_help


def test_further_resources_of_a_node_are_shared_by_its_slots() -> None:
    cluster = parse_cluster({"nodes": [{"count": 2, "slots": 4, "resources": {"gpu": 1}}]}, "c")
    operators = tuple(OperatorRequest(name, 1, (10.0, 10.0, 1.0)) for name in "xyz")
    two = placed(Eft(), PlacementRequest("p", operators[:2], (), (0, 1)), planned(cluster))
    assert {slot.node for slot in two.by_slot()} == {"n1", "n2"}
    assert "'z' needs 1 gpu" in str(refused(Eft(), PlacementRequest("p", operators, (), (0, 1, 2)), planned(cluster)))


def test_cycles_do_not_stop_it() -> None:
    looped = sized(pipeline([(1, 10, 10), (1, 10, 10)], [(0, 1), (1, 0), (1, 1)]), 1e9, 1.0, 1.0)
    for placer in (Eft(), BalancedEft()):
        assert sum(bundle.threads for bundle in placed(placer, looped, whole(Cluster((node("a"),)))).bundles) == 2


@tries(2)
@given(st.data())
def test_limits_are_kept_where_operators_are_fused(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    drawn = data.draw(pipelines(len(cluster.dimensions)))
    sizes = st.sampled_from([0.0, 1e6, 1e9])
    request = replace(drawn, traffic=tuple(data.draw(sizes) for _ in drawn.streams))
    wanted = {operator.name: operator.threads for operator in request.operators}
    for placer in (Eft(), BalancedEft()):
        found = place_all(cluster, [(request, 1)], placer)
        assert found.usage.hard_violations == 0
        assert not any(found.usage.soft_overload.values())
        for room in (whole(cluster), planned(cluster)):
            answer = placer.place(request, room)
            if isinstance(answer, Refusal):
                assert all(shortage.needed >= shortage.offered for shortage in answer.shortages)
                continue
            threads: Counter[str] = Counter()
            for bundle in answer.bundles:
                threads[bundle.operator] += bundle.threads
            assert threads == wanted


@pytest.mark.parametrize("key", ["speed", "bandwidth_mbps"])
@pytest.mark.parametrize("value", [0, -1])
def test_no_speed_and_no_bandwidth_are_bad_input(key: str, value: float) -> None:
    with pytest.raises(BadInputError, match=f"nodes.0..{key}: Input should be greater than 0, found {value}"):
        parse_cluster({"nodes": [{"slots": 1, key: value}]}, "cluster.yaml")
    with pytest.raises(BadInputError, match=f"node 'a': {key}: expected a finite number above 0, found {value}"):
        Node("a", "r1", 1, {}, speed=value if key == "speed" else 1, bandwidth_mbps=value if key != "speed" else 1)


# ------------------------------------------------------------------------------------------------ rescheduling


@pytest.mark.parametrize("placer", ["eft", "balanced-eft"])
def test_the_same_again_moves_nothing(placer: str) -> None:
    before = penstock.plan("diamond", 60, placer=placer)
    again = penstock.plan("diamond", 60, placer=placer, current=before)
    assert again.moves is not None
    assert again.moves.moved == 0
    assert again.placement.by_slot() == before.placement.by_slot()
    assert again.document()["moves"]["moved"] == penstock.diff(before, again).threads_moved == 0
    assert "moves" not in before.document()


def test_a_migration_cost_moves_fewer_threads_than_a_tie_break() -> None:
    cluster = Cluster(tuple(Node(f"n{i}", "r1", 8, {"cpu": 800.0, "memory_mb": 28672.0}) for i in range(3)))
    before = penstock.plan("linear", 100, placer="eft", cluster=cluster)
    eft = penstock.plan("linear", 150, placer="eft", cluster=cluster, current=before)
    balanced = penstock.plan("linear", 150, placer="balanced-eft:migration=1", cluster=cluster, current=before)
    assert eft.moves is not None
    assert balanced.moves is not None
    assert balanced.moves.moved < eft.moves.moved
    assert (eft.placement.placer, balanced.placement.placer) == ("eft", "balanced-eft")


def test_nothing_runs_on_a_machine_that_is_replaced() -> None:
    before = penstock.plan("linear", 50, placer="eft")
    # four slots of one machine before, eight of another size after: n1 is not what it was
    after = penstock.plan("linear", 100, placer="eft", current=before)
    assert [node.size for node in before.cluster.nodes] != [node.size for node in after.cluster.nodes]
    assert after.moves is not None
    assert after.moves.kept == 0


def test_sizes_of_tuples_reach_the_placer() -> None:
    pipe = (
        penstock.pipeline("p")
        .source("s")
        .then("a", model="parse_xml", bytes=10)
        .then("b", model="pi", bytes=5e6)
        .sink("k", bytes=10)
        .build()
    )
    slots = penstock.plan(pipe, 50, placer="eft").placement.by_slot()
    assert any({"a", "b"} <= set(row) for row in slots.values())
    with pytest.raises(RefusedError, match=r"fused vertex 'a\+b'"):
        penstock.plan(pipe, 300, placer="eft")
    assert penstock.plan(pipe, 300, placer="balanced-eft").moves is None


def test_ties_are_ties_whatever_the_rounding() -> None:
    # 0.1 + 0.7 is 0.7999999999999999 in floats: 0.8 / (0.1 + 0.7) is not above 1
    ratios = communication_to_computation([0.1, 0.7], [Edge(0, 1, 0.8)])
    assert ratios[0, 1] > 1
    assert joined_pairs(ratios, 1.0) == []
    assert joined_pairs(ratios, 0.999) == [(0, 1)]
    # upward ranks 0.1 + (0.2 + 0.3) and 0.3 + (0.2 + 0.1), which floats take for the larger: a tie, declared order
    order, _ = order_of(tasks([0.1, 0.3, 0.3, 0.1], (0, 1, 0.2), (2, 3, 0.2)), machines(1.0))
    assert order[:2] == [0, 2]


def test_parallel_edges_add_up() -> None:
    # to vertex 1 and its cost of 4 it takes 2 + 3
    assert upward_ranks([1, 4], [Edge(0, 1, 2), Edge(0, 1, 3)], [0, 1]) == [10, 4]


def test_speed_and_bandwidth_survive_being_written() -> None:
    given = {"nodes": [{"name": "a", "slots": 2, "speed": 2.0, "bandwidth_mbps": 10.0}, {"name": "b", "slots": 1}]}
    cluster = parse_cluster(given, "here")
    assert parse_cluster(cluster_document(cluster), "again") == cluster
