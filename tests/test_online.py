"""Passes over a live cluster: what stays, what moves, what waits; for every placer and any fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import penstock
from effort import tries
from penstock.cluster.topology import CPU, DEFAULT_DIMENSIONS, MEMORY, Dimension, Node, Slot
from penstock.inputs.finders import find_models, find_pipeline
from penstock.modelling.library import ModelLibrary
from penstock.planning.allocation.contract import Allocation, OperatorAllocation, ThreadBundle
from penstock.planning.registry import PLACERS
from penstock.planning.replanning.keeping import keep, part_of_bundle
from penstock.planning.replanning.online import full_plan, plan_pass
from penstock.planning.replanning.snapshot import (
    FUSED,
    FleetSnapshot,
    OnlinePipeline,
    PassOutcome,
    PlanDecision,
    RunningPlan,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOTHING = ModelLibrary.of([])
ALLOCATOR_OF = {"joint": "joint", "packing": "profiled"}


def node(name: str, slots: int = 4, memory_mb: float = 8192.0, rack: str = "r1", **more: float) -> Node:
    return Node(name, rack, slots, {CPU: 100.0 * slots, MEMORY: memory_mb, **more})


def declared(threads: int = 1, memory_mb: float = 500.0, cpu: float = 50.0) -> penstock.Pipeline:
    return (
        penstock.pipeline("p")
        .source("s", threads=1, cpu=10, memory_mb=10)
        .then("a", threads=threads, cpu=cpu, memory_mb=memory_mb)
        .sink("k", threads=1, cpu=10, memory_mb=10)
        .build()
    )


def pipeline(name: str, definition: penstock.Pipeline, placer: str = "r-storm", **more: object) -> OnlinePipeline:
    made = OnlinePipeline(name, definition, NOTHING, 1.0, placer=placer)
    return replace(made, **more)  # type: ignore[arg-type]


def after(pipelines: Sequence[OnlinePipeline], decisions: Sequence[PlanDecision]) -> list[OnlinePipeline]:
    return [replace(one, current=decision.after) for one, decision in zip(pipelines, decisions, strict=True)]


def rows_of(plan: RunningPlan | None) -> Mapping[Slot, Mapping[str, int]]:
    assert plan is not None
    return plan.rows


def threads_on(plan: RunningPlan | None, operator: str) -> dict[str, int]:
    table: dict[str, int] = {}
    for slot, row in rows_of(plan).items():
        if operator in row:
            table[slot.node] = table.get(slot.node, 0) + row[operator]
    return table


# ------------------------------------------------------------------------------------------------ what is kept


def allocation(*bundles: tuple[int, int]) -> Allocation:
    listed = tuple((count, ThreadBundle(threads, threads / 50, threads / 100)) for count, threads in bundles)
    return Allocation("mba", (OperatorAllocation("a", 1.0, listed, ""),))


# (runs by slot, bundles as (how many, threads), stays by slot, threads to start)
KEPT = [
    # 50, 50 and 35 run; 3 of 50 and one of 20 are asked for: all stay, the 35 as the 20 and a part of the third 50
    ([50, 50, 35], [(3, 50), (1, 20)], [50, 50, 35], [35]),
    # of one of 60 the 35 that run are a part; the other 25 are missing
    ([35], [(1, 60)], [35], [25]),
    # single threads are taken over in any number
    ([3, 2], [(7, 1)], [3, 2], [1, 1]),
    # what is too much stops, from the smallest
    ([50, 30, 10], [(1, 50)], [50], []),
    ([], [(2, 5)], [], [5, 5]),
]


@pytest.mark.parametrize(("runs", "asked", "stays", "starts"), KEPT)
def test_what_stays_and_what_starts(
    runs: list[int], asked: list[tuple[int, int]], stays: list[int], starts: list[int]
) -> None:
    kept = keep({Slot("n", i): {"a": threads} for i, threads in enumerate(runs)}, allocation(*asked))
    assert [row["a"] for row in kept.rows.values()] == stays
    assert [bundle.threads for bundle in kept.missing.get("a", [])] == starts


def test_a_part_of_a_bundle_needs_its_part() -> None:
    assert part_of_bundle(ThreadBundle(4, 1.0, 0.5), 1) == ThreadBundle(1, 0.25, 0.125)


# ------------------------------------------------------------------------------------------------ single passes


@pytest.mark.parametrize("placer", PLACERS.names())
def test_threads_go_where_their_memory_is(placer: str) -> None:
    # two threads of 6,000 MB: the node with 1,024 MB takes none of them, those with 8,192 MB one each
    nodes = [node("small", 2, 1024), node("large-1", 2, 8192), node("large-2", 2, 8192)]
    one = pipeline(
        "p", declared(2, 6000.0, cpu=80.0), placer, slot_memory_mb=6100.0, allocator=ALLOCATOR_OF.get(placer, "mba")
    )
    (decision,) = plan_pass(FleetSnapshot(nodes, [one]))
    assert threads_on(decision.after, "a") == {"large-1": 1, "large-2": 1}


def test_an_unchanged_pipeline_keeps_its_plan() -> None:
    nodes = [node("n1"), node("n2")]
    pipelines = [pipeline("p", declared()), pipeline("q", declared(3))]
    first = plan_pass(FleetSnapshot(nodes, pipelines))
    assert [decision.outcome for decision in first] == [PassOutcome.PLANNED, PassOutcome.PLANNED]
    again = plan_pass(FleetSnapshot(nodes, after(pipelines, first)))
    assert [decision.outcome for decision in again] == [PassOutcome.KEPT, PassOutcome.KEPT]
    assert [one.after for one in again] == [one.after for one in first]


def test_only_the_threads_of_a_dead_node_move() -> None:
    nodes = [node(f"n{n}", 2) for n in range(4)]
    pipelines = [pipeline("p", declared(6, cpu=100.0), slot_memory_mb=2000.0)]
    first = plan_pass(FleetSnapshot(nodes, pipelines))
    rows = rows_of(first[0].after)
    gone = next(slot.node for slot in rows)
    lost = sum(sum(row.values()) for slot, row in rows.items() if slot.node == gone)
    (decision,) = plan_pass(FleetSnapshot([n for n in nodes if n.name != gone], after(pipelines, first)))
    assert decision.outcome is PassOutcome.PLANNED
    assert decision.moves.moved == decision.required == lost > 0
    assert f"on {gone}" in decision.why


def test_a_pipeline_that_does_not_fit_waits_with_the_shortage_named() -> None:
    nodes = [node("n1", 2, 1000), node("n2", 2, 1500)]
    (decision,) = plan_pass(FleetSnapshot(nodes, [pipeline("p", declared(1, 2000.0))]))
    assert decision.outcome is PassOutcome.WAITS
    assert decision.after is None
    assert decision.shortage is not None
    assert "node n2 comes closest, with 1500 of 2000 memory_mb" in decision.shortage


def test_a_refused_change_keeps_the_last_good_plan_and_harms_nobody() -> None:
    nodes = [node("n1", 4, 4000)]
    pipelines = [pipeline("p", declared(1, 500.0)), pipeline("q", declared(1, 500.0))]
    first = plan_pass(FleetSnapshot(nodes, pipelines))
    running = after(pipelines, first)
    wanted = [replace(running[0], pipeline=declared(9, 900.0)), running[1]]
    decisions = plan_pass(FleetSnapshot(nodes, wanted))
    assert [decision.outcome for decision in decisions] == [PassOutcome.LAST_GOOD, PassOutcome.KEPT]
    assert decisions[0].after is first[0].after
    assert decisions[0].shortage


def test_a_node_whose_memory_shrinks_loses_what_no_longer_fits() -> None:
    # of 3 x 900 MB on 3,000 MB only one stays when the node has 1,000 MB: the pipeline with the first right
    nodes = [node("n1", 6, 3000), node("n2", 6, 3000)]
    pipelines = [pipeline(name, declared(1, 900.0)) for name in ("p", "q", "r")]
    first = after(pipelines, plan_pass(FleetSnapshot(nodes[:1], pipelines)))
    shrunk = [node("n1", 6, 1000), nodes[1]]
    decisions = plan_pass(FleetSnapshot(shrunk, first))
    assert decisions[0].outcome is PassOutcome.KEPT
    assert all(threads_on(decision.after, "a") == {"n2": 1} for decision in decisions[1:])


def test_those_that_give_back_come_before_those_that_grow() -> None:
    # one node of 4 threads: p grows from 1 to 3 in the pass in which q shrinks from 3 to 1
    nodes = [node("n1", 8, 4100)]
    pipelines = [pipeline("p", declared(1, 1000.0)), pipeline("q", declared(3, 1000.0))]
    first = after(pipelines, plan_pass(FleetSnapshot(nodes, pipelines)))
    changed = [replace(first[0], pipeline=declared(3, 1000.0)), replace(first[1], pipeline=declared(1, 1000.0))]
    decisions = plan_pass(FleetSnapshot(nodes, changed))
    assert [threads_on(decision.after, "a") for decision in decisions] == [{"n1": 3}, {"n1": 1}]
    assert sum(decision.moves.moved for decision in decisions) == 0


def test_missing_threads_start_near_those_that_run() -> None:
    # n1 is full; of n2 in its rack and n3 in another with more slots, n2 takes the threads that are missing
    nodes = [node("n1", 1), node("n2", 1, rack="r1"), node("n3", 8, rack="r2")]
    one = pipeline("p", declared(1, 500.0, cpu=80.0), slot_memory_mb=4000.0)
    first = after([one], plan_pass(FleetSnapshot(nodes[:1], [one])))
    (decision,) = plan_pass(FleetSnapshot(nodes, [replace(first[0], pipeline=declared(2, 500.0, cpu=80.0))]))
    assert threads_on(decision.after, "a") == {"n1": 1, "n2": 1}


def test_fused_slots_have_memory_and_a_slot_each() -> None:
    # 5 slots of 3,000 MB: two on n1 and n2 each by memory (8,192), one on n3 by its only slot
    nodes = [node("n1"), node("n2"), node("n3", 1)]
    one = pipeline("p", declared(), "compact", engine=FUSED, slots=5, slot_memory_mb=3000.0)
    (decision,) = plan_pass(FleetSnapshot(nodes, [one]))
    assert threads_on(decision.after, "slot") == {"n1": 2, "n2": 2, "n3": 1}
    assert decision.after is not None
    assert all(row == {"slot": 1} for row in decision.after.rows.values())
    # there is no room for a sixth: it runs on five, says so, and asks again in the next pass
    wants_six = replace(one, slots=6)
    (fewer,) = plan_pass(FleetSnapshot(nodes, [wants_six]))
    assert len(rows_of(fewer.after)) == 5
    assert "needs 6 slots, closest is the whole cluster with 5 (1 missing)" in fewer.rejected[0]
    (again,) = plan_pass(FleetSnapshot([*nodes, node("n4", 1)], [replace(wants_six, current=fewer.after)]))
    assert len(rows_of(again.after)) == 6
    assert again.moves.moved == 0


def test_slots_and_memory_of_other_applications_are_not_free() -> None:
    nodes = [node("n1", 2), node("n2", 2)]
    one = pipeline("p", declared(), "compact", engine=FUSED, slots=2, slot_memory_mb=3000.0)
    used = {"n2": {MEMORY: 4000.0}}
    (decision,) = plan_pass(FleetSnapshot(nodes, [one], held=[Slot("n1", 0)], used=used))
    assert decision.after is not None
    assert set(decision.after.rows) == {Slot("n1", 1), Slot("n2", 0)}


def test_nothing_starts_on_a_closed_node_and_what_runs_there_stays() -> None:
    nodes = [node("n1"), node("n2")]
    one = pipeline("p", declared())
    first = after([one], plan_pass(FleetSnapshot(nodes[:1], [one])))
    snapshot = FleetSnapshot(nodes, [first[0], pipeline("q", declared())], closed=frozenset({"n1"}))
    p, q = plan_pass(snapshot)
    assert p.outcome is PassOutcome.KEPT
    assert set(threads_on(q.after, "a")) == {"n2"}


def test_other_resources_are_kept_as_memory_is() -> None:
    dimensions = (*DEFAULT_DIMENSIONS, Dimension("gpu", hard=True, weight=1.0))
    wanted = (
        penstock.pipeline("p")
        .source("s", threads=1, cpu=10, memory_mb=10)
        .then("a", threads=2, cpu=10, memory_mb=10, resources={"gpu": 1})
        .sink("k", threads=1, cpu=10, memory_mb=10)
        .build()
    )
    nodes = [node("n1", 8), node("n2", 8, gpu=1.0), node("n3", 8, gpu=1.0)]
    (decision,) = plan_pass(FleetSnapshot(nodes, [pipeline("p", wanted)], dimensions=dimensions))
    assert threads_on(decision.after, "a") == {"n2": 1, "n3": 1}


def test_a_share_of_slots_limits_the_plan() -> None:
    nodes = [node(f"n{n}", 4, 4 * 3584.0) for n in range(6)]
    one = OnlinePipeline("p", find_pipeline("linear"), find_models(None), 100.0, placer="sam", slot_memory_mb=3584.0)
    (whole,) = plan_pass(FleetSnapshot(nodes, [one]))
    (part,) = plan_pass(FleetSnapshot(nodes, [replace(one, max_slots=4)]))
    assert whole.after is not None
    assert part.after is not None
    assert len(part.after.rows) <= 4 < len(whole.after.rows)
    assert part.after.rate < 100.0 <= whole.after.rate * (1 + 1e-9)


def test_a_slot_that_is_given_up_for_missing_threads_is_named() -> None:
    # each of its two slots runs a thread of 60 points; a third has room on neither, and its share has no other slot
    nodes = [node("n1"), node("n2")]
    one = pipeline("p", declared(2, cpu=60.0), "round-robin", slot_memory_mb=4000.0)
    (first,) = plan_pass(FleetSnapshot(nodes, [one]))
    assert len(rows_of(first.after)) == 2
    more = replace(one, pipeline=declared(3, cpu=60.0), max_slots=2, current=first.after)
    (decision,) = plan_pass(FleetSnapshot(nodes, [more]))
    assert decision.outcome is PassOutcome.PLANNED
    assert len(rows_of(decision.after)) == 2
    assert decision.required == 0
    assert decision.rejected == ("beside 2 of its 2 slots: its share of 2 slots is full",)


def test_a_placed_pipeline_has_a_whole_plan() -> None:
    nodes = [node(f"n{n}", 4, 4 * 3584.0) for n in range(6)]
    one = OnlinePipeline("p", find_pipeline("linear"), find_models(None), 50.0, placer="sam", slot_memory_mb=3584.0)
    (decision,) = plan_pass(FleetSnapshot(nodes, [one]))
    plan = full_plan(one, decision, {n.name: n for n in nodes})
    assert plan is not None
    assert decision.after is not None
    assert plan.placement.by_slot() == decision.after.rows
    assert plan.prediction.supported.rate == pytest.approx(decision.after.rate)
    assert plan.forecast.max_rate is not None


def test_a_policy_that_fails_harms_nobody_else() -> None:
    nodes = [node("n1")]
    bad = [
        pipeline("unknown", declared(), "no-such-placer"),
        pipeline("rate", declared(), rate=float("nan")),
        OnlinePipeline("model", find_pipeline("linear"), NOTHING, 5.0),
    ]
    *failed, fine = plan_pass(FleetSnapshot(nodes, [*bad, pipeline("fine", declared())]))
    assert [decision.outcome for decision in failed] == [PassOutcome.WAITS] * 3
    assert "no-such-placer" in str(failed[0].shortage)
    assert "rate" in str(failed[1].shortage)
    assert fine.outcome is PassOutcome.PLANNED


def test_a_cluster_without_nodes() -> None:
    (decision,) = plan_pass(FleetSnapshot([], [pipeline("p", declared())]))
    assert decision.outcome is PassOutcome.WAITS
    assert decision.shortage == "the cluster has no node"


# ------------------------------------------------------------------------------------------------ any fleet


@st.composite
def histories(draw: st.DrawFn) -> list[FleetSnapshot]:
    """A fleet over a few passes: rates, shares and demands change, nodes come, go and shrink. Plans are filled in."""
    placers = PLACERS.names()
    count = draw(st.integers(1, 5))
    kinds = [declared(n, memory) for n, memory in ((1, 100.0), (2, 700.0), (4, 1500.0))]
    pipelines = []
    for n in range(count):
        placer = draw(st.sampled_from(placers))
        engine = FUSED if draw(st.integers(0, 3)) == 0 else "placed"
        modelled = draw(st.booleans())
        pipelines.append(
            OnlinePipeline(
                f"p{n}",
                find_pipeline("linear") if modelled else draw(st.sampled_from(kinds)),
                find_models(None),
                draw(st.sampled_from([1.0, 5.0, 20.0])),
                allocator=ALLOCATOR_OF.get(placer, "mba"),
                placer=placer,
                engine=engine,
                slot_memory_mb=draw(st.sampled_from([1024.0, 3584.0])),
            )
        )
    nodes = [
        node(f"n{n}", draw(st.integers(1, 8)), draw(st.sampled_from([900.0, 4000.0, 16000.0])), f"r{n // 2}")
        for n in range(draw(st.integers(1, 8)))
    ]
    snapshots = [FleetSnapshot(nodes, pipelines)]
    for _ in range(draw(st.integers(1, 3))):
        pipelines = [
            replace(
                one,
                rate=draw(st.sampled_from([one.rate, 2.0, 10.0, 40.0])),
                max_slots=draw(st.sampled_from([None, None, 2, 6])),
            )
            if draw(st.booleans())
            else one
            for one in pipelines
        ]
        there = [one for one in nodes if draw(st.integers(0, 4)) > 0]
        there = [
            node(one.name, one.slots, one.capacity[MEMORY] / 2, one.rack) if draw(st.integers(0, 5)) == 0 else one
            for one in there
        ]
        snapshots.append(FleetSnapshot(there, pipelines))
    return snapshots


@given(histories())
@tries(8)
def test_any_fleet_keeps_memory_and_moves_only_what_it_must(history: list[FleetSnapshot]) -> None:
    plans: dict[str, RunningPlan | None] = {}
    for snapshot in history:
        pipelines = [replace(one, current=plans.get(one.name)) for one in snapshot.pipelines]
        decisions = plan_pass(replace(snapshot, pipelines=pipelines))
        check_hard_limits(snapshot, decisions)
        for one, decision in zip(pipelines, decisions, strict=True):
            note(f"{one.name} {one.placer} {one.engine}: {decision.outcome} {decision.why} {decision.rejected}")
            check_one(one, decision, {node.name for node in snapshot.nodes})
        plans = {decision.pipeline: decision.after for decision in decisions}
        # a second look at the same world changes nothing that has a plan
        settled = [replace(one, current=plans[one.name]) for one in snapshot.pipelines]
        for decision in plan_pass(replace(snapshot, pipelines=settled)):
            assert decision.moves.moved == 0
            if decision.before is not None and decision.before.whole and decision.before.asked == settled[0].asked:
                assert decision.after is decision.before


def check_hard_limits(snapshot: FleetSnapshot, decisions: Sequence[PlanDecision]) -> None:
    """No slot twice, none that does not exist, and no node with more memory demanded than it has."""
    nodes = {node.name: node for node in snapshot.nodes}
    slots = [slot for decision in decisions if decision.after for slot in decision.after.rows]
    assert len(slots) == len(set(slots))
    used = dict.fromkeys(nodes, 0.0)
    for decision in decisions:
        for slot in decision.after.rows if decision.after else ():
            assert slot.number < nodes[slot.node].slots
            assert decision.after is not None
            used[slot.node] += decision.after.amount(slot)[1]
    assert all(amount <= nodes[name].capacity[MEMORY] * (1 + 1e-6) for name, amount in used.items())


def check_one(one: OnlinePipeline, decision: PlanDecision, alive: set[str]) -> None:
    before, plan = decision.before, decision.after
    if decision.outcome is PassOutcome.WAITS:
        assert plan is None
        assert decision.shortage
        return
    assert plan is not None
    if decision.outcome in (PassOutcome.KEPT, PassOutcome.LAST_GOOD) and before is not None:
        assert plan.rows == before.rows
    if decision.outcome is PassOutcome.PLANNED:
        assert decision.allocation is not None
        # all of it is placed
        for operator in decision.allocation.operators:
            assert sum(row.get(operator.name, 0) for row in plan.rows.values()) == operator.threads
        if one.max_slots is not None:
            assert len(plan.rows) <= one.max_slots
        # unless all had to be placed anew, what did not have to move stays
        if before is not None and not decision.rejected:
            assert decision.moves.moved <= decision.required
