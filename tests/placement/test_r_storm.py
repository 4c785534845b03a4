from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from place_builders import (
    bench_module,
    by_node,
    cases,
    clusters,
    node,
    pipeline,
    pipelines,
    placed,
    refused,
    whole,
)

from effort import tries
from penstock.base.errors import Refusal
from penstock.cluster.topology import Cluster, Dimension, Node
from penstock.planning.placement.contract import OperatorRequest, PlacementRequest, Room
from penstock.planning.placement.placers.r_storm import RStorm, reference_node

PlainRStorm = bench_module("plain_r_storm").PlainRStorm


@pytest.mark.parametrize(("case", "expected"), cases("rstorm_schedule"))
def test_worked_cases(case: dict[str, Any], expected: dict[str, Any]) -> None:
    memory_weight, cpu_weight, network_weight = case["weights"]
    cluster = Cluster(
        tuple(Node(n["name"], n["rack"], 1, {"cpu": n["cpu"], "memory_mb": n["mem"]}) for n in case["cluster"]),
        (Dimension("cpu", hard=False, weight=cpu_weight), Dimension("memory_mb", hard=True, weight=memory_weight)),
    )
    components = case["topology"]["components"]
    names = [component["name"] for component in components]
    fed = {receiver for _, receiver in case["topology"]["edges"]}
    request = PlacementRequest(
        "case",
        tuple(OperatorRequest(c["name"], c["tasks"], (float(c["cpu"]), float(c["mem"]))) for c in components),
        tuple((names.index(a), names.index(b)) for a, b in case["topology"]["edges"]),
        tuple(position for position, name in enumerate(names) if name not in fed),
    )
    placer = RStorm(strict=case.get("strict", False), network_weight=network_weight)
    room = whole(cluster)
    if "error" in expected:
        assert refused(placer, request, room).shortages[0].operator == expected["error"].split("#")[0]
        return
    reference = reference_node(room)
    assert reference is not None
    assert cluster.nodes[reference].name == expected["ref"]
    answer = placed(placer, request, room)
    numbered: dict[str, str] = {}
    for operator, threads, slot, _ in answer.bundles:
        done = sum(key.startswith(f"{operator}#") for key in numbered)
        numbered |= {f"{operator}#{done + i}": slot.node for i in range(1, threads + 1)}
    assert numbered == expected["placement"]
    room.take(answer, {operator.name: operator.demand for operator in request.operators})
    left = {n.name: room.free[position].tolist() for position, n in enumerate(cluster.nodes)}
    for name, amounts in expected["left"].items():
        assert left[name] == pytest.approx(amounts)


@tries(4)
@given(st.data(), st.booleans(), st.sampled_from([0.0, 1.0, 50.0]))
def test_equals_the_plain_loop(data: st.DataObject, strict: bool, network_weight: float) -> None:
    cluster = data.draw(clusters())
    room = Room(cluster, slot_memory_shared=data.draw(st.booleans()))
    for name in ("first", "second"):
        request = data.draw(pipelines(len(cluster.dimensions), name))
        fast = RStorm(strict, network_weight).place(request, room)
        assert fast == PlainRStorm(strict, network_weight).place(request, room)
        if not isinstance(fast, Refusal):
            room.take(fast, {operator.name: operator.demand for operator in request.operators})


@pytest.mark.parametrize("shortlist", [1, 2, 5])
def test_equals_the_plain_loop_when_the_shortlist_runs_out(shortlist: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.planning.placement.placers.r_storm.SHORTLIST", shortlist)
    cluster = Cluster(tuple(node(f"n{i}", f"r{i % 3}", cpu=100 + 50 * (i % 4), memory=1000) for i in range(40)))
    request = pipeline([(60, 30, 210), (40, 55, 90), (7, 90, 490)], [(0, 1), (1, 2)])
    assert placed(RStorm(), request, whole(cluster)) == PlainRStorm().place(request, whole(cluster))


def test_the_room_is_not_changed() -> None:
    room = whole(Cluster((node("a"), node("b"))))
    free, taken = room.free.copy(), room.slots_taken.copy()
    placed(RStorm(), pipeline([(5, 100, 700)]), room)
    assert (room.free == free).all()
    assert (room.slots_taken == taken).all()


def test_a_slot_takes_no_more_than_the_pipeline_allows() -> None:
    # Two threads of 400 MB fit a slot of 1000 MB; five threads need three slots.
    answer = placed(RStorm(), pipeline([(5, 10, 400)], slot_memory=1000), whole(Cluster((node("a"),))))
    assert [sum(row.values()) for row in answer.by_slot().values()] == [2, 2, 1]


def test_in_a_plan_threads_go_to_the_roomiest_slot() -> None:
    room = Room(Cluster((node("a"),)), slot_memory_shared=True)
    answer = placed(RStorm(), pipeline([(6, 10, 400)]), room)
    assert [(slot.number, sum(row.values())) for slot, row in answer.by_slot().items()] == [
        (0, 2),
        (1, 2),
        (2, 1),
        (3, 1),
    ]


def test_a_slot_of_another_pipeline_is_not_used() -> None:
    room = whole(Cluster((node("a", slots=2),)))
    first = pipeline([(1, 10, 100)])
    room.take(placed(RStorm(), first, room), {"o0": (10, 100)})
    assert [bundle.slot.number for bundle in placed(RStorm(), first, room).bundles] == [1]


def test_refusals_say_what_is_missing() -> None:
    # Four slots of 1500 MB could take one thread of 1000 MB each, but node b's memory ends after three.
    room = whole(Cluster((node("a", memory=1000), node("b", memory=3500))))
    shortage = refused(RStorm(), pipeline([(5, 10, 1000)], slot_memory=1500), room).shortages[0]
    assert (shortage.resource, shortage.needed, shortage.offered, shortage.closest) == ("memory_mb", 1000, 500, "b")
    # Memory is there, but no slot of 900 MB takes a thread of 1000 MB, on no node.
    refusal = refused(RStorm(), pipeline([(1, 10, 1000)], slot_memory=900), room)
    assert (refusal.shortages[0].resource, refusal.shortages[0].offered) == ("memory_mb of one slot", 900)
    assert not refusal.more_slots_may_help
    # One slot, one thread in it.
    refusal = refused(RStorm(), pipeline([(2, 10, 600)], slot_memory=1000), whole(Cluster((node("a", slots=1),))))
    assert (refusal.shortages[0].resource, refusal.shortages[0].offered) == ("memory_mb of one slot", 400)
    assert refusal.more_slots_may_help
    room.slots_taken[:] = room.slots
    assert refused(RStorm(), pipeline([(1, 10, 1)]), room).shortages[0].resource == "slots"


def test_no_node_at_all() -> None:
    assert refused(RStorm(), pipeline([(1, 10, 1)]), whole(Cluster(()))).shortages[0].resource == "slots"


def test_soft_dimensions_may_be_exceeded() -> None:
    assert by_node(placed(RStorm(), pipeline([(6, 100, 10)]), whole(Cluster((node("a"),))))) == {"a": {"o0": 6}}
