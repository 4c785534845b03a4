"""Constraints: kept by every placer, or refused by name; and which clusters could meet them at all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from place_builders import by_node, node, pipeline, pipelines, placed, refused, whole

import penstock
from effort import tries
from penstock.base.errors import BadInputError, Refusal
from penstock.cluster.file import parse_cluster
from penstock.cluster.topology import Cluster, Node, Slot
from penstock.dataflow.pipeline import OperatorConstraints, PipelineConstraints
from penstock.planning import registry
from penstock.planning.placement.constraints import ask, broken, check_words
from penstock.planning.placement.contract import PlacedBundle, Placement, PlacementRequest, Placer, Room
from penstock.planning.placement.feasibility import ExclusionScope, verdict
from penstock.planning.placement.placers.balanced_eft import BalancedEft
from penstock.planning.placement.placers.baselines import RandomFeasible, RoundRobin
from penstock.planning.placement.placers.compact import Compact
from penstock.planning.placement.placers.eft import Eft
from penstock.planning.placement.placers.packing import Packing
from penstock.planning.placement.placers.r_storm import RStorm
from penstock.planning.whole_cluster import place_all

PLACERS: list[Placer] = [RStorm(), Compact(), RandomFeasible(), RoundRobin(), Packing(), Eft(), BalancedEft()]
every_placer = pytest.mark.parametrize("placer", PLACERS, ids=lambda placer: placer.name)


def labelled(name: str, *labels: str, rack: str = "r1", taints: tuple[str, ...] = (), **amounts: Any) -> Node:
    return replace(node(name, rack, **amounts), labels=frozenset(labels), taints=frozenset(taints))


def with_rules(
    request: PlacementRequest, of_pipeline: dict[str, Any] | None = None, **of_operators: dict[str, Any]
) -> PlacementRequest:
    operators = tuple(
        replace(operator, constraints=OperatorConstraints(**of_operators.get(operator.name, {})))
        for operator in request.operators
    )
    return replace(request, operators=operators, constraints=PipelineConstraints(**(of_pipeline or {})))


# What every placer keeps: constraints that are the same for a whole pipeline.


@every_placer
def test_required_and_forbidden_labels_of_all_operators(placer: Placer) -> None:
    cluster = Cluster((labelled("a"), labelled("b", "ssd"), labelled("c", "ssd", "old")))
    rules = {"required_labels": ("ssd",), "forbidden_labels": ("old",)}
    request = with_rules(pipeline([(2, 10, 100), (1, 10, 100)], [(0, 1)]), o0=rules, o1=rules)
    answer = ask(placer, request, whole(cluster))
    if placer.name == "eft":  # instances of one operator go to different nodes, and only one is allowed
        assert isinstance(answer, Refusal)
    else:
        assert isinstance(answer, Placement)
        assert set(by_node(answer)) == {"b"}


@every_placer
def test_a_taint_keeps_out_who_does_not_tolerate_it(placer: Placer) -> None:
    cluster = Cluster((labelled("a", taints=("spot",)), labelled("b")))
    request = pipeline([(1, 10, 100)])
    answer = ask(placer, request, whole(cluster))
    assert isinstance(answer, Placement)
    assert set(by_node(answer)) == {"b"}
    tolerant = with_rules(request, {"tolerates": ("spot",)})
    full_b = whole(cluster)
    full_b.slots_taken[1] = 4
    answer = ask(placer, tolerant, full_b)
    assert isinstance(answer, Placement)
    assert set(by_node(answer)) == {"a"}


@every_placer
def test_preferred_labels_go_first_and_give_way(placer: Placer) -> None:
    cluster = Cluster((labelled("a"), labelled("b", "ssd")))
    rules = {"preferred_labels": ("ssd",)}
    answer = ask(placer, with_rules(pipeline([(1, 10, 100)]), o0=rules), whole(cluster))
    assert isinstance(answer, Placement)
    assert set(by_node(answer)) == {"b"}
    room = whole(cluster)
    room.slots_taken[1] = 4
    answer = ask(placer, with_rules(pipeline([(1, 10, 100)]), o0=rules), room)
    assert isinstance(answer, Placement)
    assert set(by_node(answer)) == {"a"}


@every_placer
def test_an_excluded_node_takes_nothing(placer: Placer) -> None:
    cluster = Cluster((node("a"), node("b"))).without(["a"], "broken fan")
    result = place_all(cluster, [(pipeline([(1, 10, 100)]), 1)], placer)
    assert set(by_node(result.placements["p"])) == {"b"}
    assert result.usage.constraints_broken == 0


PLANNED = {
    "nodes": [{"name": name, "rack": "r", "slots": 8, "cpu": 800, "memory_mb": 32768} for name in ("out", "in")],
}


@pytest.mark.parametrize("placer", [name for name in registry.PLACERS.names() if name != "joint"])
def test_a_plan_leaves_excluded_nodes_alone(placer: str) -> None:
    cluster = parse_cluster({**PLANNED, "excluded": ["out"]}, "c")
    plan = penstock.plan("linear", 50, placer=placer, cluster=cluster)
    assert {bundle.slot.node for bundle in plan.placement.bundles} == {"in"}


def test_memory_shared_in_a_slot_of_a_plan_takes_no_cpu_of_it() -> None:
    # Slots of 4096 MB and 100 points: 600 MB shared by both operators leave room for both, 4100 MB for none.
    def shared(mb: float) -> Placement | Refusal:
        rules = {"shared_memory": [{"operators": ["o0", "o1"], "mb": mb}]}
        request = with_rules(pipeline([(1, 40, 100), (1, 40, 100)], [(0, 1)]), rules)
        return ask(Compact(), request, Room(parse_cluster(PLANNED, "c"), slot_memory_shared=True))

    assert isinstance(shared(600), Placement)
    too_much = shared(4100)
    assert isinstance(too_much, Refusal)
    assert "no slot takes one more thread with what its pipeline shares" in str(too_much)


@every_placer
def test_isolated_pipelines_share_no_node(placer: Placer) -> None:
    cluster = Cluster((node("a"), node("b"), node("c")))
    alone = with_rules(pipeline([(1, 10, 100)], name="alone"), {"isolated": True})
    others = [pipeline([(1, 10, 100)], name=name) for name in ("x", "y")]
    result = place_all(cluster, [(others[0], 1), (alone, 2), (others[1], 3)], placer)
    assert set(result.placements) == {"x", "alone", "y"}
    own = set(by_node(result.placements["alone"]))
    assert own.isdisjoint({*by_node(result.placements["x"]), *by_node(result.placements["y"])})


# What only placers that look themselves can keep.

HARD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "labels": ({}, {"o0": {"required_labels": ("ssd",)}}),
    "taints": ({}, {"o0": {"tolerates": ("spot",)}}),
    "preferred_labels": ({}, {"o0": {"preferred_labels": ("ssd",)}}),
    "most_per_node": ({}, {"o0": {"most_per_node": 1}}),
    "most_per_rack": ({}, {"o0": {"most_per_rack": 2}}),
    "apart_on_nodes": ({"apart_on_nodes": (("o0", "o1"),)}, {}),
    "apart_on_slots": ({"apart_on_slots": (("o0", "o1"),)}, {}),
    "one_operator_per_slot": ({"one_operator_per_slot": True}, {}),
    "shared_memory": ({"shared_memory": ({"operators": ("o0",), "mb": 50},)}, {}),
}


@every_placer
@pytest.mark.parametrize("constraint", HARD)
def test_kept_or_refused_by_name(placer: Placer, constraint: str) -> None:
    cluster = Cluster(
        (
            labelled("a", "ssd"),
            labelled("b", "ssd"),
            labelled("c", rack="r2", taints=("spot",)),
            labelled("d", rack="r2"),
        )
    )
    of_pipeline, of_operators = HARD[constraint]
    request = with_rules(pipeline([(2, 10, 100), (2, 10, 100)], [(0, 1)]), of_pipeline, **of_operators)
    answer = ask(placer, request, whole(cluster))
    if isinstance(placer, Compact):
        assert isinstance(answer, Placement)
        assert list(broken(cluster, request, answer)) == []
    else:
        assert isinstance(answer, Refusal)
        assert f"'{placer.name}' cannot keep {constraint}" in str(answer)
        assert not answer.more_slots_may_help


def test_operators_apart_on_nodes_and_slots() -> None:
    request = pipeline([(2, 10, 100), (2, 10, 100)], [(0, 1)])
    room = whole(Cluster((node("a"), node("b"))))
    apart = placed(Compact(), with_rules(request, {"apart_on_nodes": (("o0", "o1"),)}), room)
    assert sorted(tuple(row) for row in by_node(apart).values()) == [("o0",), ("o1",)]
    slots = placed(Compact(), with_rules(request, {"apart_on_slots": (("o0", "o1"),)}), room)
    assert sorted(tuple(row) for row in slots.by_slot().values()) == [("o0",), ("o1",)]
    single = placed(Compact(), with_rules(request, {"one_operator_per_slot": True}), room)
    assert all(len(row) == 1 for row in single.by_slot().values())


def test_most_threads_per_node_and_rack() -> None:
    # Three nodes in r1, one in r2: at most 1 per node and 2 per rack leave room for 2 + 1 = 3 threads.
    room = whole(Cluster((node("a"), node("b"), node("c"), node("d", "r2"))))
    rules = {"most_per_node": 1, "most_per_rack": 2}
    answer = placed(Compact(), with_rules(pipeline([(3, 10, 100)]), o0=rules), room)
    racks = Counter(room.cluster.node(name).rack for name in by_node(answer))
    assert racks == {"r1": 2, "r2": 1}
    assert "has its most threads (1 per node and 2 per rack)" in str(
        refused(Compact(), with_rules(pipeline([(4, 10, 100)]), o0=rules), room)
    )


def test_off_heap_memory_counts_for_the_node_and_not_for_the_slot() -> None:
    # 1000 + 500 off-heap a thread: a slot of 2000 MB heap takes 2, and 4000 MB of the node take 2 (3000), not 3 (4500).
    request = pipeline([(2, 10, 1500)], slot_memory=2000)
    rules = {"off_heap_mb": 500}
    room = whole(Cluster((node("a"),)))
    assert len(placed(Compact(), with_rules(request, o0=rules), room).by_slot()) == 1
    assert len(placed(Compact(), request, room).by_slot()) == 2
    assert isinstance(ask(Compact(), with_rules(pipeline([(3, 10, 1500)], slot_memory=2000), o0=rules), room), Refusal)


def test_shared_memory_is_taken_once_per_slot_or_node() -> None:
    # Heap of 1000 MB a slot, 400 of it shared: two threads of 300 fill one. Four threads: 4 x 300 + 2 x 400.
    request = pipeline([(4, 10, 300)], slot_memory=1000)
    room = whole(Cluster((node("a", memory=2000),)))
    per_slot = with_rules(request, {"shared_memory": ({"operators": ("o0",), "mb": 400},)})
    answer = placed(Compact(), per_slot, room)
    assert [row["o0"] for row in answer.by_slot().values()] == [2, 2]
    room.take(answer, {"o0": (10.0, 300.0)}, per_slot.constraints)
    assert room.free[0, 1] == pytest.approx(2000 - 4 * 300 - 2 * 400)
    # Once per node: 4 x 300 + 800 fill the node; 801 do not fit.
    for mb, fits in ((800, True), (801, False)):
        shared = {"operators": ("o0",), "mb": mb, "per": "node"}
        per_node = with_rules(request, {"shared_memory": (shared,)})
        assert isinstance(ask(Compact(), per_node, whole(Cluster((node("a", memory=2000),)))), Placement) is fits


def talkative(constraints: dict[str, Any] | None = None, **of_operators: dict[str, Any]) -> PlacementRequest:
    """Two operators of 4 threads of 50 points that talk: all of them fit one node of 400."""
    return with_rules(pipeline([(4, 50, 100), (4, 50, 100)], [(0, 1)]), constraints, **of_operators)


@pytest.mark.parametrize(
    "request_",
    [
        talkative(o0={"off_heap_mb": 10}),
        talkative(o0={"most_per_node": 4}, o1={"most_per_rack": 8}),
        talkative({"shared_memory": ({"operators": ("o0",), "mb": 50, "per": "node"},)}),
        talkative(o0={"tolerates": ("spot",)}),
        talkative(),
    ],
)
def test_a_constraint_that_does_not_bind_costs_nothing(request_: PlacementRequest) -> None:
    """Nor does a taint on a node nobody needs: the placement is that without any."""
    cluster = Cluster((labelled("a"), labelled("b"), labelled("c", taints=("spot",))))
    free = placed(Compact(), talkative(), whole(Cluster((node("a"), node("b")))))
    answer = ask(Compact(), request_, whole(cluster))
    assert isinstance(answer, Placement)
    assert answer.by_slot() == free.by_slot()


# Which clusters could.


@pytest.mark.parametrize(
    ("request_", "scope", "words"),
    [
        (
            with_rules(pipeline([(2, 10, 100)]), o0={"required_labels": ("ssd",), "most_per_node": 1}),
            ExclusionScope.CLUSTER,
            "at most 1 can",
        ),
        (
            with_rules(pipeline([(1, 10, 100)]), o0={"required_labels": ("ssd", "gpu")}),
            ExclusionScope.SHAPE,
            "all of ssd, gpu",
        ),
        (with_rules(pipeline([(1, 10, 4100)]), o0={"off_heap_mb": 100}), ExclusionScope.SHAPE, "4100 memory_mb"),
        (pipeline([(1, 10, 900)], slot_memory=800), ExclusionScope.SHAPE, "memory_mb of one slot"),
        (
            with_rules(pipeline([(1, 10, 10)]), {"shared_memory": ({"operators": ("o0",), "mb": 3995},)}),
            ExclusionScope.SHAPE,
            "4005",
        ),
        (with_rules(pipeline([(3, 300, 10)])), ExclusionScope.CLUSTER, "at most 2"),
        (with_rules(pipeline([(2, 300, 10), (1, 150, 10)])), ExclusionScope.CLUSTER, "no number of threads"),
        (
            with_rules(pipeline([(1, 1, 1)] * 3), {"apart_on_nodes": (("o0", "o1"), ("o1", "o2"), ("o0", "o2"))}),
            ExclusionScope.CLUSTER,
            "",
        ),
        (with_rules(pipeline([(2, 100, 100)]), o0={"most_per_node": 1}), ExclusionScope.NOTHING, ""),
    ],
)
def test_no_cluster_of_this_shape_or_not_this_one(
    request_: PlacementRequest, scope: ExclusionScope, words: str
) -> None:
    # Two nodes of 400 points and 4000 MB, one with label ssd, one with gpu.
    cluster = Cluster((labelled("a", "ssd"), labelled("b", "gpu", rack="r2")))
    found = verdict(request_, cluster, Compact())
    assert found.scope is scope
    assert words in found.reason


@tries(2)
@given(st.data())
def test_the_verdict_agrees_with_trying_everything(data: st.DataObject) -> None:
    """Small cases: every number of threads on every node is tried, in one slot each, so that slots decide nothing."""
    cluster = Cluster(
        tuple(
            labelled(f"n{k}", *data.draw(st.sets(st.sampled_from(["x", "y"]))), rack=f"r{data.draw(st.integers(0, 1))}")
            for k in range(data.draw(st.integers(1, 3)))
        )
    )
    request = _constrained(
        data, pipeline([(data.draw(st.integers(1, 2)), data.draw(st.sampled_from([150, 250])), 10)] * 2)
    )
    found = verdict(request, cluster, Compact())
    wide = Cluster(
        tuple(replace(n, name=f"{n.name}-{k}", rack=f"{n.rack}-{k}") for n in cluster.nodes for k in range(4))
    )
    assert (found.scope is ExclusionScope.SHAPE) == (not _any_placement(request, wide))
    if found.scope in (ExclusionScope.CLUSTER, ExclusionScope.NOTHING):
        assert (found.scope is ExclusionScope.NOTHING) == _any_placement(request, cluster)


def _constrained(data: st.DataObject, request: PlacementRequest) -> PlacementRequest:
    labels = st.lists(st.sampled_from(["x", "y"]), max_size=1).map(tuple)
    limit = st.sampled_from([None, 1, 2])
    rules = {
        operator.name: {
            "required_labels": data.draw(labels),
            "most_per_node": data.draw(limit),
            "most_per_rack": data.draw(limit),
        }
        for operator in request.operators
    }
    pairs = (("o0", "o1"),) if data.draw(st.booleans()) and len(request.operators) > 1 else ()
    return with_rules(request, {"apart_on_nodes": pairs}, **rules)


def _any_placement(request: PlacementRequest, cluster: Cluster) -> bool:

    threads = [operator.name for operator in request.operators for _ in range(operator.threads)]
    cpu = {operator.name: operator.demand[0] for operator in request.operators}
    for chosen in product(range(len(cluster.nodes)), repeat=len(threads)):
        load: dict[int, float] = dict.fromkeys(chosen, 0.0)
        for name, where in zip(threads, chosen, strict=True):
            load[where] += cpu[name]
        if max(load.values()) > 400:
            continue
        bundles = tuple(
            PlacedBundle(name, 1, Slot(cluster.nodes[where].name, 0))
            for name, where in zip(threads, chosen, strict=True)
        )
        if not list(broken(cluster, request, Placement("p", "by hand", bundles))):
            return True
    return False


# Properties.


@st.composite
def constrained_work(draw: st.DrawFn) -> tuple[Cluster, list[tuple[PlacementRequest, int]]]:
    words = st.sets(st.sampled_from(["ssd", "gpu"]))
    nodes = tuple(
        labelled(
            f"n{k}", *draw(words), rack=f"r{draw(st.integers(0, 1))}", taints=tuple(draw(st.sets(st.just("spot")))),
            slots=draw(st.integers(0, 4)),
        )
        for k in range(draw(st.integers(1, 6)))
    )  # fmt: skip
    excluded = draw(st.sets(st.sampled_from([n.name for n in nodes]), max_size=2))
    requests = []
    for number in range(draw(st.integers(1, 3))):
        request = draw(pipelines(2, f"p{number}"))
        names = [operator.name for operator in request.operators]
        some = st.lists(st.sampled_from(["ssd", "gpu"]), max_size=1).map(tuple)
        rules = {}
        for name in names:
            required, preferred = draw(some), draw(some)
            forbidden = tuple({"ssd", "gpu"} - {*required, *preferred})[:1] if draw(st.booleans()) else ()
            rules[name] = {
                "required_labels": required,
                "preferred_labels": preferred,
                "forbidden_labels": forbidden,
                "tolerates": ("spot",) if draw(st.booleans()) else (),
                "most_per_node": draw(st.sampled_from([None, None, 1, 3])),
                "most_per_rack": draw(st.sampled_from([None, None, 4])),
            }
        pair = st.lists(
            st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda p: p[0] != p[1]), max_size=2
        )
        pairs = pair if len(names) > 1 else st.just([])
        shared = {
            "operators": tuple(draw(st.sets(st.sampled_from(names), min_size=1))),
            "mb": draw(st.sampled_from([10.0, 200.0])),
            "per": draw(st.sampled_from(["slot", "node"])),
        }
        of_pipeline = {
            "apart_on_nodes": tuple(draw(pairs)),
            "apart_on_slots": tuple(draw(pairs)),
            "one_operator_per_slot": draw(st.booleans()),
            "isolated": draw(st.booleans()),
            "shared_memory": (shared,) if draw(st.booleans()) else (),
        }
        kept = draw(st.sets(st.sampled_from([*of_pipeline, "operators"]), max_size=3))
        of_pipeline = {key: value for key, value in of_pipeline.items() if key in kept}
        requests.append(
            (with_rules(request, of_pipeline, **(rules if "operators" in kept else {})), draw(st.integers(1, 2)))
        )
    return Cluster(nodes).without(excluded), requests


@every_placer
@given(work=constrained_work())
def test_no_constraint_is_ever_broken(placer: Placer, work: tuple[Cluster, list[tuple[PlacementRequest, int]]]) -> None:
    cluster, requests = work
    result = place_all(cluster, requests, placer)
    assert {request.pipeline for request, _ in requests} == {*result.placements, *result.refused}
    assert result.usage.constraints_broken == 0
    assert result.usage.hard_violations == 0
    for request, _ in requests:
        placement = result.placements.get(request.pipeline)
        if placement is not None:
            threads: Counter[str] = Counter()
            for bundle in placement.bundles:
                threads[bundle.operator] += bundle.threads
            assert threads == {operator.name: operator.threads for operator in request.operators}


@tries(2)
@given(work=constrained_work())
def test_compact_never_refuses_a_constraint_by_name(work: tuple[Cluster, list[tuple[PlacementRequest, int]]]) -> None:
    result = place_all(*work, Compact())
    assert not any("cannot keep" in str(refusal) for refusal in result.refused.values())


@every_placer
def test_constraints_in_a_plan_are_kept_or_refused_by_name(placer: Placer) -> None:
    cluster = Cluster((labelled("a", "ssd"), labelled("b")))
    request = with_rules(pipeline([(1, 50, 100), (1, 50, 100)], [(0, 1)]), o0={"required_labels": ("ssd",)})
    answer = ask(placer, request, Room(cluster, slot_memory_shared=True))
    if isinstance(placer, Compact):
        assert isinstance(answer, Placement)
        assert list(broken(cluster, request, answer)) == []
    else:
        assert "cannot keep labels" in str(answer)


def test_words_no_node_has_are_bad_input() -> None:
    cluster = Cluster((labelled("a", "ssd", taints=("spot",)),))
    with pytest.raises(BadInputError, match="unknown label 'sdd': no node has it; did you mean 'ssd'"):
        check_words(with_rules(pipeline([(1, 1, 1)]), o0={"required_labels": ("sdd",)}), cluster)
    with pytest.raises(BadInputError, match="unknown taint 'spto'"):
        check_words(with_rules(pipeline([(1, 1, 1)]), o0={"tolerates": ("spto",)}), cluster)
    shared = with_rules(pipeline([(1, 1, 1)], slot_memory=500), {"shared_memory": ({"operators": ("o0",), "mb": 600},)})
    with pytest.raises(BadInputError, match="contradicts worker_max_heap_mb 500"):
        check_words(shared, cluster)
