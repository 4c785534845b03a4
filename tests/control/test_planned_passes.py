"""Passes of the controller that plan: every pipeline by its own policies, memory kept, refusals named."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from effort import tries
from penstock.cluster.topology import DEFAULT_DIMENSIONS, Cluster, Node
from penstock.control.core.messages import Amend, DecisionKind, Kill, NodeJoined, NodeLost, SetPolicy, Submit
from penstock.control.core.orders import orders
from penstock.control.core.records import (
    ControllerState,
    EngineName,
    NodePhase,
    NodeRecord,
    PipelineState,
    PlanChoices,
    Policy,
    ServiceTarget,
    Submission,
)
from penstock.control.core.share_plans import in_steps
from penstock.control.pipeline_document import described
from penstock.control.sizing import ModelSizing
from penstock.control.store.rows import pipeline_fields, pipeline_row
from penstock.dataflow.code import pipeline_document
from penstock.inputs.finders import find_pipeline
from penstock.modelling.library import reference_library
from penstock.planning.registry import PLACERS
from penstock.testing.controller import ControllerBench

if TYPE_CHECKING:
    from collections.abc import Mapping

CLUSTER = Cluster(
    tuple(Node(f"n{n}", "r1", 2, {"cpu": 200.0, "memory_mb": 16_000.0}) for n in range(4)), DEFAULT_DIMENSIONS
)
ALLOCATOR_OF = {"joint": "joint", "packing": "profiled"}


def node(name: str, slots: int = 4, memory_mb: float = 8192.0, rack: str = "r1") -> NodeRecord:
    capacity = MappingProxyType({"cpu": 100.0 * slots, "memory_mb": memory_mb})
    return NodeRecord(name, rack, slots, NodePhase.ALIVE, 0.0, capacity)


def bench(*nodes: NodeRecord, unit_slots: int = 1, **policy: Any) -> ControllerBench:
    state = ControllerState(
        policy=Policy(**policy), unit_slots=unit_slots, nodes=MappingProxyType({it.name: it for it in nodes})
    )
    return ControllerBench(state, ModelSizing(reference_library(), unit_slots))  # type: ignore[arg-type]


def heavy(threads: int, memory_mb: float, cpu: float = 50.0) -> penstock.Pipeline:
    """A chain whose middle has threads that declare so much memory."""
    return (
        penstock.pipeline("heavy")
        .source("s", threads=1, cpu=10, memory_mb=10)
        .then("a", threads=threads, cpu=cpu, memory_mb=memory_mb)
        .sink("k", threads=1, cpu=10, memory_mb=10)
        .build()
    )


def placed(name: str, pipeline: penstock.Pipeline | str = "linear", rate: float | None = None, **more: Any) -> Submit:
    document = described(pipeline) if isinstance(pipeline, str) else pipeline_document(pipeline)
    choices = PlanChoices(more.pop("allocator", None), more.pop("placer", None), None, more.pop("memory_mb", None))
    made = Submission(
        name, document, document, f"{name} {document}", ServiceTarget(rate), engine=EngineName.PLACED, choices=choices
    )
    return Submit(replace(made, **more))


def rows(it: ControllerBench, name: str) -> dict[str, dict[str, int]]:
    plan = it[name].plan
    return {} if plan is None else {f"{slot.node}/{slot.slot}": dict(slot.threads) for slot in plan.slots}


def on_nodes(it: ControllerBench, name: str, operator: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for place, row in rows(it, name).items():
        if row.get(operator):
            counts[place.partition("/")[0]] += row[operator]
    return dict(counts)


def memory_used(it: ControllerBench) -> dict[str, float]:
    used: dict[str, float] = {}
    for record in it.state.pipelines.values():
        for slot in record.plan.slots if record.plan is not None and record.assigned else ():
            used[slot.node] = used.get(slot.node, 0.0) + slot.memory_mb
    return used


# Memory, racks and refusals.


def test_threads_go_where_their_memory_is() -> None:
    # as in the review: two threads of 6,000 MB; "small" has 1,024 MB, "large-1" and "large-2" have 8,192 each
    it = bench(node("small", 2, 1024), node("large-1", 2), node("large-2", 2))
    it.tell(placed("p", heavy(2, 6000.0), placer="r-storm", rate=1.0))
    it.run(10)
    assert on_nodes(it, "p", "a") == {"large-1": 1, "large-2": 1}
    assert it.at("p") is PipelineState.ACTIVE
    assert set(it["p"].held) == set(it["p"].plan.places)  # type: ignore[union-attr]


def test_a_pipeline_that_does_not_fit_waits_and_names_what_is_missing() -> None:
    it = bench(node("n1", 2, 4096), node("n2", 2, 5000))
    it.tell(placed("p", heavy(1, 6000.0), placer="r-storm", rate=1.0))
    it.run(10)
    assert it.at("p") is PipelineState.WAITING
    assert "node n2 comes closest, with 5000 of 6000 memory_mb" in str(it["p"].waiting)
    refused = it.decisions[-1]
    assert (refused.pipeline, refused.kind, refused.after) == ("p", DecisionKind.WAIT, 0)
    assert "node n2 comes closest" in refused.why
    # said once, although it is planned again every ten seconds
    it.run(60)
    assert sum(decision.kind is DecisionKind.WAIT for decision in it.decisions) == 1
    # a node that is large enough comes, and it starts
    it.tell(NodeJoined(replace(node("n3", 2, 8192), state=NodePhase.JOINING)))
    it.run(10)
    assert on_nodes(it, "p", "a") == {"n3": 1}


def test_others_get_what_a_refused_pipeline_cannot_use() -> None:
    # "p" may have half of eight slots by fairness, and no node has the memory of its thread: "q" gets all it desires
    it = bench(node("n1", 4, 8192), node("n2", 4, 8192), sharing="fair-max-min")
    it.tell(placed("p", heavy(1, 20_000.0), placer="r-storm", desired=4))
    it.tell(Submit(Submission("q", described("linear"), described("linear"), "q", desired=8)))
    it.run(15)
    assert (it.at("p"), it.held()["q"]) == (PipelineState.WAITING, 8)


def test_a_refused_change_keeps_the_last_good_plan() -> None:
    it = bench(node("n1", 4, 16_000))
    it.tell(placed("p", "linear", 30.0, placer="sam"))
    it.run(10)
    before = it["p"].plan
    it.tell(SetPolicy(replace(it.state.policy)), Amend("p", target=ServiceTarget(1e6)))
    it.run(15)
    assert it.at("p") is PipelineState.ACTIVE
    assert it["p"].plan is not None
    assert it["p"].plan.threads["T"] >= before.threads["T"]  # type: ignore[union-attr]
    assert sum(memory_used(it).values()) <= 16_000


def test_fused_slots_take_memory_too() -> None:
    # 4,000 MB hold three executors of 1,300 MB, although there are four slots
    it = bench(node("n1", 4, 4000))
    submission = Submission("p", "linear", described("linear"), "p", desired=4)
    it.tell(Submit(replace(submission, choices=PlanChoices(executor_memory_mb=1300.0))))
    it.run(10)
    assert it.held() == {"p": 3}
    assert any("needs 4 slots" in other.why for decision in it.decisions for other in decision.rejected)
    # more memory comes with another node, and it gets its fourth
    it.tell(NodeJoined(replace(node("n2", 4, 4000), state=NodePhase.JOINING)))
    it.run(15)
    assert it.held() == {"p": 4}


# Every pipeline by its own policies, whatever changes.


@pytest.mark.parametrize("placer", ["r-storm", "sam", "eft", "packing", "round-robin"])
def test_its_policies_stay_when_shares_nodes_and_loads_change(placer: str) -> None:
    it = bench(*(node(f"n{n}", 4, 12_000, f"r{n % 2}") for n in range(6)))
    it.tell(placed("p", "linear", 40.0, placer=placer, allocator=ALLOCATOR_OF.get(placer)))
    it.tell(placed("other", "diamond", 30.0))
    it.run(10)
    assert it.at("p") is PipelineState.ACTIVE, it["p"].waiting
    gone = it["p"].plan.places[0].node  # type: ignore[union-attr]
    kept = {place: row for place, row in rows(it, "p").items() if not place.startswith(f"{gone}/")}
    it.executors.lose_node(gone)
    it.tell(NodeLost(gone))
    it.run(10)
    after = rows(it, "p")
    assert not any(place.startswith(f"{gone}/") for place in after)
    # what did not lose its node stays: the same threads on the same slots
    stays = sum(
        min(count, after.get(place, {}).get(name, 0)) for place, row in kept.items() for name, count in row.items()
    )
    assert stays >= 0.9 * sum(sum(row.values()) for row in kept.values())
    it.tell(Amend("p", target=ServiceTarget(60.0)))
    it.run(15)
    plan = it["p"].plan
    assert plan is not None
    assert (plan.placer, plan.rate) == (placer, 60.0)
    assert set(it["p"].held) == set(plan.places)
    changes = [found.expected["plan"] for found in it.decisions if found.pipeline == "p" and "plan" in found.expected]
    change = next(
        found for found in changes if found["before"] and found["before"]["rate"] == 40.0 != found["after"]["rate"]
    )
    assert change["after"]["rate"] == 60.0
    assert change["threads"]["started"] > 0
    assert change["threads"]["moved"] <= change["required"] + 0.1 * sum(plan.threads.values())


def test_the_policy_of_the_controller_plans_who_names_none() -> None:
    it = bench(*(node(f"n{n}", 4, 16_000) for n in range(4)))
    it.tell(placed("p", "linear", 40.0), placed("own", "linear", 40.0, placer="eft"))
    it.run(10)
    it.tell(SetPolicy(replace(it.state.policy, placer="r-storm")))
    it.run(15)
    assert [it[name].plan.placer for name in ("p", "own")] == ["r-storm", "eft"]  # type: ignore[union-attr]


def test_a_policy_that_is_not_there_is_refused() -> None:
    it = bench(node("n1"))
    for wrong in (placed("p", rate=1.0, placer="odd"), SetPolicy(Policy(placer="odd"))):
        with pytest.raises(penstock.BadInputError, match=r"placer: unknown placer 'odd'"):
            it.tell(wrong)


def test_a_plan_that_was_submitted_is_run_as_it_is_while_its_slots_are_free() -> None:
    made = penstock.plan("linear", 40.0, cluster=CLUSTER, placer="round-robin").document()
    it = bench(*(node(f"n{n}", 2, 16_000) for n in range(4)))
    choices = PlanChoices("mba", "round-robin")
    submission = placed("p", "linear", made["rate"]).submission
    units = {(row["node"], row["slot"]) for row in made["placement"]}
    it.tell(Submit(replace(submission, plan=made, desired=len(units), minimum=len(units), choices=choices)))
    it.run(10)
    assert rows(it, "p") == {f"{row['node']}/{row['slot']}": row["threads"] for row in made["placement"]}


def test_a_placer_that_needs_more_than_the_allocation_gets_a_unit_more() -> None:
    # the allocation needs three of the four slots of one unit; `eft` finds room for it on no four slots
    it = bench(*(node(f"n{n}", 4, 16_000) for n in range(4)), unit_slots=4)
    it.tell(placed("p", "linear", 40.0, placer="eft"))
    it.run(10)
    assert (it.at("p"), it["p"].needed, it["p"].grown) == (PipelineState.ACTIVE, 2, 1)
    it.run(30)
    assert (it["p"].needed, it["p"].grown) == (2, 1)
    assert sum(decision.pipeline == "p" for decision in it.decisions) == 1


def test_a_slot_whose_threads_stay_keeps_the_memory_of_its_executor() -> None:
    it = bench(*(node(f"n{n}", 4, 30_000) for n in range(3)))
    it.tell(placed("p", "linear", 100.0, placer="sam"))
    it.run(10)
    before = {slot.place: slot for slot in it["p"].plan.slots}  # type: ignore[union-attr]
    it.tell(Amend("p", target=ServiceTarget(120.0)))
    it.run(10)
    after = {slot.place: slot for slot in it["p"].plan.slots}  # type: ignore[union-attr]
    same = [place for place, slot in before.items() if place in after and after[place].threads == slot.threads]
    assert same
    assert all(after[place].memory_mb == before[place].memory_mb for place in same)
    # a third plan remembers it too, through the record
    it.tell(Amend("p", target=ServiceTarget(130.0)))
    it.run(10)
    third = {slot.place: slot for slot in it["p"].plan.slots}  # type: ignore[union-attr]
    assert all(third[place] == slot for place, slot in after.items() if third[place].threads == slot.threads)


# (rate, step): the power of two above the rate, divided by 50
@pytest.mark.parametrize(
    ("rate", "planned"), [(100.0, 102.4), (102.5, 104.96), (33.0, 33.28), (64.0, 64.0), (1e308, 1.01e308)]
)
def test_an_elastic_allocator_is_asked_in_steps(rate: float, planned: float) -> None:
    # 100: 128 / 50 = 2.56 a step, 40 steps; 102.5: 41 steps; 33: 64 / 50 = 1.28, 26 steps; 64: 2.56, 25 steps
    assert in_steps(rate) == pytest.approx(planned, rel=0.03 if rate > 1e300 else 1e-9)
    assert in_steps(rate) >= rate


# Orders.


def test_an_order_carries_the_plan_on_its_slots_and_only_that() -> None:
    it = bench(node("n1", 4, 16_000), node("n2", 4, 16_000))
    it.tell(placed("p", "linear", 40.0), Submit(Submission("q", "linear", described("linear"), "q", desired=2)))
    it.run(10)
    given = {order.pipeline: order for order in orders(it.state)}
    for name in ("p", "q"):
        plan = given[name].plan
        assert plan is not None
        assert set(plan.places) == set(given[name].slots)
    assert given["p"].plan.engine is EngineName.PLACED  # type: ignore[union-attr]
    assert given["q"].plan.engine is EngineName.FUSED  # type: ignore[union-attr]


def test_other_threads_on_the_same_slots_are_another_order() -> None:
    it = bench(node("n1", 1, 16_000))
    it.tell(placed("p", heavy(1, 100.0, cpu=20.0), rate=1.0, placer="r-storm"))
    it.run(10)
    serial, before = it["p"].serial, rows(it, "p")
    it.tell(Kill("p"))
    it.run(10)
    it.tell(placed("p", heavy(2, 100.0, cpu=20.0), rate=1.0, placer="r-storm"))
    it.run(10)
    assert set(rows(it, "p")) == set(before)
    assert on_nodes(it, "p", "a") == {"n1": 2}
    assert it["p"].serial >= serial


def test_a_record_with_a_plan_can_be_stored_and_read_again() -> None:
    it = bench(node("n1", 4, 16_000))
    it.tell(placed("p", "linear", 40.0, placer="r-storm"))
    it.run(10)
    record = it["p"]
    again = pipeline_fields({**pipeline_row(record), "rest": pipeline_row(record)["rest"]} | {"name": "p"})
    assert again["plan"] == record.plan
    assert again["ordered"] == record.ordered
    assert again["granted"] == record.granted


# Any fleet.


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[NodeRecord], list[Submit], list[tuple[str, Any]], int]:
    nodes = [
        node(f"n{n}", draw(st.sampled_from([2, 4])), draw(st.sampled_from([2000.0, 8000.0, 30_000.0])), f"r{n % 3}")
        for n in range(draw(st.integers(2, 6)))
    ]
    submissions = []
    shapes: list[penstock.Pipeline | str] = ["linear", "diamond", heavy(3, 700.0), heavy(2, 3000.0)]
    for number in range(draw(st.integers(1, 5))):
        placer = draw(st.sampled_from(sorted(PLACERS.names())))
        pipeline = draw(st.sampled_from(shapes))
        made = placed(
            f"p{number}",
            pipeline,
            draw(st.sampled_from([5.0, 20.0, 60.0])),
            placer=placer,
            allocator=ALLOCATOR_OF.get(placer),
            priority=draw(st.integers(1, 3)),
        )
        if draw(st.booleans()):
            made = Submit(replace(made.submission, engine=EngineName.FUSED))
        submissions.append(made)
    happens = st.one_of(
        st.tuples(st.just("lose"), st.integers(0, 5)),
        st.tuples(st.just("join"), st.integers(0, 5)),
        st.tuples(st.just("rate"), st.integers(0, 4)),
        st.tuples(st.just("priority"), st.integers(0, 4)),
    )
    unit_slots = draw(st.sampled_from([1, 2]))
    return nodes, submissions, draw(st.lists(happens, max_size=4)), unit_slots


@given(fleets())
@tries(3)
def test_no_fleet_breaks_memory_or_shares_a_slot(
    fleet: tuple[list[NodeRecord], list[Submit], list[tuple[str, Any]], int],
) -> None:
    nodes, submissions, happens, unit_slots = fleet
    it = bench(*nodes, unit_slots=unit_slots)
    it.tell(*submissions)
    it.run(12, every=1.0)
    check(it)
    for what, number in happens:
        name, one = f"p{number % len(submissions)}", nodes[number % len(nodes)]
        if what == "lose" and it.state.nodes[one.name].state is NodePhase.ALIVE:
            it.executors.lose_node(one.name)
            it.tell(NodeLost(one.name))
        elif what == "join":
            it.tell(NodeJoined(replace(one, state=NodePhase.JOINING)))
        elif what == "rate":
            it.tell(Amend(name, target=ServiceTarget(33.0)))
        else:
            it.tell(Amend(name, priority=1))
        it.run(12, every=1.0)
        check(it)
    it.run(60, every=2.0)
    check(it)
    # everybody runs what was decided, or says why not
    for record in it.state.pipelines.values():
        if record.assigned:
            assert set(record.held) == set(record.target_places), (record.name, record.state)
        else:
            assert record.waiting, record.name


def check(it: ControllerBench) -> None:
    """No executors that take more memory than their node has, no slot twice, no plan on a node that is not alive."""
    capacity = {name: found.capacity["memory_mb"] for name, found in it.state.nodes.items()}
    alive = {found.name for found in it.state.alive()}
    for name, used in memory_used(it).items():
        assert used <= capacity[name] * (1 + 1e-6), name
    plans = [record.plan for record in it.state.pipelines.values() if record.plan is not None and record.assigned]
    places = [place for plan in plans for place in plan.places]
    assert len(places) == len(set(places))
    assert {place.node for place in places} <= alive
    held = Counter(place for record in it.state.pipelines.values() for place in set(record.held))
    assert not [place for place, count in held.items() if count > 1]


def test_the_pipelines_of_these_tests_exist() -> None:
    shapes: Mapping[str, Any] = {name: find_pipeline(name) for name in ("linear", "diamond")}
    assert all(shape.operators for shape in shapes.values())
