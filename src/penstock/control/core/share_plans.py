"""Plan every pipeline on its share: its own allocator and placer, on a snapshot of the nodes and of what runs there.

shares ──► snapshot ──► plan_pass ──► a plan for every pipeline, or the shortage that prevents one

A share is a number of units. Where a unit is one slot, pipelines may use slots of one node together; where a unit is
several slots (a whole node, unless the controller divides nodes further) a unit belongs to one pipeline, and the pass
sees every unit as a node of its own with its part of the node's memory and CPU.

The rate a plan is made for: of a pipeline with a number of units, or whose size follows its load, the highest rate its
share can keep by its models; of one with a fixed target that rate, if its share can keep it. An elastic allocator
(`e-stream`) adds and removes threads as the rate moves, so it is asked for the present rate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, frexp, isfinite, ldexp
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, DEFAULT_DIMENSIONS, MEMORY, Dimension, Node, Slot
from penstock.control.core.division import SEPARATOR
from penstock.control.core.records import EngineName, NodePhase, PipelinePlan, PlannedSlot
from penstock.control.core.turn import Blamable, BlamedError, Culprit, working_on
from penstock.modelling.library import ModelLibrary
from penstock.planning.allocation.contract import ElasticAllocator
from penstock.planning.registry import ALLOCATORS, DEFAULT_ALLOCATOR, DEFAULT_PLACED_SEGMENTER, DEFAULT_PLACER
from penstock.planning.replanning.online import PassError, plan_pass
from penstock.planning.replanning.snapshot import FUSED, PLACED, SLOT, FleetSnapshot, OnlinePipeline, RunningPlan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from penstock.control.core.records import NodeRecord, PipelineRecord, PlanChoices, Policy, Submission
    from penstock.control.core.turn import Turn
    from penstock.planning.replanning.snapshot import PlanDecision

DEFAULT_EXECUTOR_MB = 1024.0
"""Memory of an executor, unless its submission says another."""
STEPS_OF_RATE = 50
"""Rates an elastic allocator is asked for differ by at least 1/50: smaller changes of the load are noise."""
UNKNOWN_RATE = 1.0
"""Tuples/s a pipeline is planned for of which no rate is known."""
NO_MODELS = ModelLibrary.of([])


@dataclass(frozen=True, slots=True)
class SharePlan:
    """The result of a pass for one pipeline."""

    decision: PlanDecision
    plan: PipelinePlan | None
    """None: it waits, or its executors are its own."""
    assigned: tuple[Slot, ...]
    """Slots of the units that its plan uses."""

    @property
    def shortage(self) -> str | None:
        return self.decision.shortage


def choices_of(submission: Submission, policy: Policy) -> PlanChoices:
    """Return the policies a pipeline is planned by: its own, or the controller's, or the product's."""
    own = submission.choices
    return replace(
        own,
        allocator=own.allocator or policy.allocator or DEFAULT_ALLOCATOR,
        placer=own.placer or policy.placer or DEFAULT_PLACER,
        segmenter=own.segmenter or policy.segmenter or DEFAULT_PLACED_SEGMENTER,
    )


def executor_mb(choices: PlanChoices) -> float:
    return DEFAULT_EXECUTOR_MB if choices.executor_memory_mb is None else choices.executor_memory_mb


def chosen(submission: Submission, policy: Policy) -> Submission:
    """Return the submission with all its choices, as `Sizing` takes it."""
    return replace(submission, choices=choices_of(submission, policy))


def plan_shares(turn: Turn, shares: Mapping[str, int], last: Collection[str] = ()) -> dict[str, SharePlan]:
    """Plan every pipeline with a share of at least one unit: those of the highest priority first, `last` at the end."""
    units = _Units.of(turn)
    order = sorted(
        (name for name, share in shares.items() if share),
        key=lambda name: (turn.pipelines[name].priority, turn.pipelines[name].number),
    )
    # running pipelines come first: a plan that was submitted with slots of its own gets free ones
    order.sort(key=lambda name: (name in last, turn.pipelines[name].plan is None))
    pipelines = []
    for name in order:
        with working_on(name):
            pipelines.append(_online(turn, turn.pipelines[name], shares[name], units))
    try:
        decisions = plan_pass(FleetSnapshot(units.nodes, pipelines, units.dimensions, exclusive=units.slots > 1))
    except PassError as failed:
        raise BlamedError(Culprit(Blamable.PIPELINE, failed.pipeline), failed.error) from failed
    made = {}
    for pipeline, decision in zip(pipelines, decisions, strict=True):
        with working_on(pipeline.name):
            made[pipeline.name] = _share_plan(turn, turn.pipelines[pipeline.name], pipeline, decision, units)
    return made


# Nodes and units.


@dataclass(frozen=True)
class _Units:
    """Nodes as the pass sees them, one for every unit."""

    slots: int
    """Of a unit."""
    nodes: tuple[Node, ...]
    dimensions: tuple[Dimension, ...]
    origin: Mapping[str, tuple[str, int]]
    """Name of the node of each unit, and the number of its first slot there."""
    unit_at: Mapping[tuple[str, int], str]

    @classmethod
    def of(cls, turn: Turn) -> _Units:
        size = turn.state.unit_slots
        nodes: list[Node] = []
        origin: dict[str, tuple[str, int]] = {}
        for record in turn.nodes.values():
            if record.state is not NodePhase.ALIVE:
                continue  # what runs on a node that is leaving moves away, as if it had died
            units = _units_of(record, size)
            nodes += units
            origin.update({unit.name: (record.name, number * size) for number, unit in enumerate(units)})
        more = sorted({key for node in nodes for key in node.capacity} - {CPU, MEMORY})
        dimensions = (*DEFAULT_DIMENSIONS, *(Dimension(key, hard=True, weight=1.0) for key in more))
        unit_at = {place: name for name, place in origin.items()}
        return cls(size, tuple(nodes), dimensions, origin, unit_at)

    def inside(self, slot: Slot) -> Slot | None:
        """Return a slot as one of its unit; None if its node has left."""
        base = 0 if self.slots == 1 else slot.number // self.slots * self.slots
        unit = self.unit_at.get((slot.node, base))
        return None if unit is None else Slot(unit, slot.number - base)

    def outside(self, slot: Slot) -> Slot:
        node, base = self.origin[slot.node]
        return Slot(node, base + slot.number)

    def whole(self, slots: Iterable[Slot]) -> tuple[Slot, ...]:
        """Return all slots of the units that these slots are of."""
        if self.slots == 1:
            return tuple(slots)
        units = dict.fromkeys((slot.node, slot.number // self.slots * self.slots) for slot in slots)
        return tuple(Slot(node, base + offset) for node, base in units for offset in range(self.slots))


def _units_of(record: NodeRecord, size: int) -> list[Node]:
    """Return the units of a node, each with its part of what the node has.

    A node that does not tell its CPU or memory has those of the usual slot for each of its slots.
    """
    usual = {CPU: CPU_POINTS_PER_SLOT * record.slots, MEMORY: DEFAULT_SLOT_MEMORY_MB * record.slots}
    capacity = {**usual, **record.capacity}
    if size == 1:
        return [Node(record.name, record.rack, record.slots, capacity)]
    count = record.slots // size
    part = {resource: amount / count for resource, amount in capacity.items()} if count else {}
    names = [record.name] if count == 1 else [f"{record.name}{SEPARATOR}{number}" for number in range(count)]
    return [Node(name, record.rack, size, part) for name in names]


# Pipelines.


def _online(turn: Turn, record: PipelineRecord, share: int, units: _Units) -> OnlinePipeline:
    submission = chosen(record.submission, turn.state.policy)
    choices = submission.choices
    placed = submission.engine is EngineName.PLACED
    known = None if submission.engine is EngineName.ATTACHED else turn.sizing.definition(submission)
    pipeline, library = (None, NO_MODELS) if known is None else known
    memory_mb = executor_mb(choices)
    cores = 1.0 if choices.executor_cores is None else choices.executor_cores
    if submission.engine is EngineName.ATTACHED:
        memory_mb = cores = 0.0  # what its executors take is not known here
    slots = share * units.slots
    made = OnlinePipeline(
        record.name,
        pipeline,
        library,
        planned_rate(turn, record, submission, share),
        str(choices.allocator),
        str(choices.placer),
        str(choices.segmenter),
        PLACED if placed and pipeline is not None else FUSED,
        slot_memory_mb=DEFAULT_SLOT_MEMORY_MB if placed else memory_mb,
        min_executor_mb=memory_mb if placed else 0.0,
        slot_cpu=cores * CPU_POINTS_PER_SLOT,
        priority=record.priority,
        max_slots=slots,
        max_nodes=share if units.slots > 1 else None,
        slots=slots,
    )
    return replace(made, current=_running(record, made, units))


def planned_rate(turn: Turn, record: PipelineRecord, submission: Submission, share: int) -> float:
    """Return the rate that a pipeline is planned for on its share; see above."""
    could = turn.sizing.rate_on(submission, share)
    target = record.target.rate
    follows = submission.desired is None and submission.engine is not EngineName.ATTACHED
    if follows and isinstance(ALLOCATORS.create(str(submission.choices.allocator)), ElasticAllocator):
        memory = record.following.memory
        present = memory.smoothed.level if memory is not None and memory.smoothed is not None else target
        if present is not None and present > 0:
            return present if could is None or not could else min(in_steps(present), could)
    if follows and record.elastic_units is None and target is not None:
        return target if not could else min(target, could)
    return could or target or UNKNOWN_RATE


def in_steps(rate: float) -> float:
    """Round a rate up, so that noise asks for nothing new: ceil(rate / step) * step.

    step = 2^e / 50, where 2^e is the power of two above the rate.
    """
    step = ldexp(1 / STEPS_OF_RATE, frexp(rate)[1])
    return ceil(rate / step) * step


def _running(record: PipelineRecord, asked: OnlinePipeline, units: _Units) -> RunningPlan | None:
    plan = record.plan if record.assigned else None
    if plan is None and record.submission.plan is not None:
        return _submitted(record.submission.plan, asked, units)
    if plan is None:
        if not record.assigned:
            return None
        # kept by a store of an earlier version, or executors of its own: its slots are known, and nothing else
        return _slots_only(record.assigned, asked, units)
    rows: dict[Slot, Mapping[str, int]] = {
        units.inside(slot.place) or slot.place: slot.threads or {SLOT: 1} for slot in plan.slots
    }
    was = replace(
        asked,
        rate=plan.rate,
        allocator=plan.allocator,
        placer=plan.placer,
        segmenter=plan.segmenter,
        engine=str(plan.engine),
        slot_cpu=plan.executor_cores * CPU_POINTS_PER_SLOT,
        max_slots=plan.limit * units.slots,
        max_nodes=plan.limit if units.slots > 1 else None,
        slots=plan.limit * units.slots,
    )
    if plan.engine is EngineName.PLACED:
        was = replace(was, min_executor_mb=plan.executor_memory_mb)
    else:
        was = replace(was, slot_memory_mb=plan.executor_memory_mb)
    demands = {
        name: tuple(amounts.get(dimension.name, 0.0) for dimension in units.dimensions)
        for name, amounts in plan.demands.items()
    }
    floor = tuple(
        plan.executor_memory_mb if dimension.name == MEMORY and plan.engine is EngineName.PLACED else 0.0
        for dimension in units.dimensions
    )
    rate = float("inf") if plan.predicted_rate is None else plan.predicted_rate
    running = RunningPlan(rows, demands, was.asked, rate, floor, whole=plan.whole)
    if plan.engine is not EngineName.PLACED:
        return running
    # executors have the memory that was ordered, which may be that of an earlier plan
    memory = [dimension.name == MEMORY for dimension in units.dimensions]
    sizes = {
        place: tuple(np.where(memory, slot.memory_mb, running.amount(place)))
        for place, slot in zip(rows, plan.slots, strict=True)
    }
    return replace(running, sizes=sizes)


def _slots_only(assigned: Sequence[Slot], asked: OnlinePipeline, units: _Units) -> RunningPlan:
    amounts = {CPU: asked.slot_cpu, MEMORY: asked.slot_memory_mb if asked.engine == FUSED else asked.min_executor_mb}
    rows = {units.inside(slot) or slot: {SLOT: 1} for slot in assigned}
    demand = tuple(amounts.get(dimension.name, 0.0) for dimension in units.dimensions)
    is_same = asked.engine == FUSED and len(rows) == asked.slots
    return RunningPlan(rows, {SLOT: demand}, asked.asked if is_same else (), asked.rate)


def _submitted(document: Mapping[str, Any], asked: OnlinePipeline, units: _Units) -> RunningPlan | None:
    """Return the plan that was submitted as if it ran: it is kept as it is if its slots are free and large enough."""
    rows: dict[Slot, Mapping[str, int]] = {}
    for row in document["placement"]:
        place = units.inside(Slot(row["node"], row["slot"]))
        if place is None:
            return None
        rows[place] = dict(row["threads"]) if asked.engine == PLACED else {SLOT: 1}
    nodes = {slot.node for slot in rows}
    if len(rows) > (asked.max_slots or 0) or (asked.max_nodes is not None and len(nodes) > asked.max_nodes):
        return None
    if asked.engine == FUSED:
        demand = tuple({CPU: asked.slot_cpu, MEMORY: asked.slot_memory_mb}.get(it.name, 0.0) for it in units.dimensions)
        return RunningPlan(rows, {SLOT: demand}, asked.asked, asked.rate)
    operators = document["operators"]
    demands = {}
    for name, operator in operators.items():
        threads = max(1, operator["threads"])
        amounts = {
            CPU: CPU_POINTS_PER_SLOT * operator["cpu"] / threads,
            MEMORY: DEFAULT_SLOT_MEMORY_MB * operator["memory"] / threads,
        }
        demands[name] = tuple(amounts.get(dimension.name, 0.0) for dimension in units.dimensions)
    floor = tuple(asked.min_executor_mb if it.name == MEMORY else 0.0 for it in units.dimensions)
    rates = document.get("prediction", {}).get("rate") or {}
    predicted = rates.get(asked.routing.value.replace("-", "_"))
    return RunningPlan(rows, demands, asked.asked, float("inf") if predicted is None else float(predicted), floor)


# Results.


def _share_plan(
    turn: Turn, record: PipelineRecord, asked: OnlinePipeline, decision: PlanDecision, units: _Units
) -> SharePlan:
    after = decision.after
    if after is None:
        return SharePlan(decision, None, ())
    places = [units.outside(slot) for slot in after.rows]
    assigned = units.whole(places)
    if record.submission.engine is EngineName.ATTACHED:
        return SharePlan(decision, None, assigned)
    if after is decision.before and record.plan is not None:
        return SharePlan(decision, record.plan, assigned)
    fused = asked.engine == FUSED
    names = [dimension.name for dimension in units.dimensions]
    axis = names.index(MEMORY)
    planned = tuple(
        PlannedSlot(
            place.node,
            place.number,
            MappingProxyType({} if fused else dict(row)),
            round(float(after.amount(slot)[axis]), 1),
        )
        for place, (slot, row) in zip(places, after.rows.items(), strict=True)
    )
    if fused:
        predicted = turn.sizing.rate_on(chosen(record.submission, turn.state.policy), len(assigned) // units.slots)
    else:
        predicted = after.rate if isfinite(after.rate) else None
    demands = {
        name: MappingProxyType({key: float(amount) for key, amount in zip(names, amounts, strict=True) if amount})
        for name, amounts in after.demands.items()
    }
    plan = PipelinePlan(
        EngineName.FUSED if fused else EngineName.PLACED,
        asked.allocator,
        asked.placer,
        asked.segmenter,
        asked.rate,
        predicted,
        planned,
        MappingProxyType(demands),
        asked.slot_cpu / CPU_POINTS_PER_SLOT,
        asked.slot_memory_mb if fused else asked.min_executor_mb,
        (asked.max_slots or 0) // units.slots,
        after.whole,
    )
    return SharePlan(decision, plan, assigned)


def change_document(before: PipelinePlan | None, after: PipelinePlan | None, decision: PlanDecision) -> dict[str, Any]:
    """Return what a decision shows: the plan before, the plan after, what moved and why."""
    moves = decision.moves
    return {
        "why": decision.why,
        "before": None if before is None else plan_document(before),
        "after": None if after is None else plan_document(after),
        "threads": {"kept": moves.kept, "moved": moves.moved, "started": moves.started, "stopped": moves.stopped},
        "required": decision.required,
    }


def plan_document(plan: PipelinePlan) -> dict[str, Any]:
    """Return a plan as plain values: policies, rates, and the threads and memory of every slot."""
    return {
        "engine": str(plan.engine),
        "allocator": plan.allocator,
        "placer": plan.placer,
        "rate": plan.rate,
        "predicted_rate": plan.predicted_rate,
        "slots": {f"{slot.node}/{slot.slot}": {**slot.threads, "memory_mb": slot.memory_mb} for slot in plan.slots},
    }


def runs_alike(first: PipelinePlan | None, second: PipelinePlan | None) -> bool:
    """Return whether executors that run one plan run the other too."""
    if first is None or second is None:
        return first is second
    return (first.engine, first.segmenter, first.executor_cores, sorted(map(_slot_key, first.slots))) == (
        second.engine,
        second.segmenter,
        second.executor_cores,
        sorted(map(_slot_key, second.slots)),
    )


def _slot_key(slot: PlannedSlot) -> tuple[str, int, tuple[tuple[str, int], ...], float]:
    return slot.node, slot.slot, tuple(sorted(slot.threads.items())), slot.memory_mb


def part_of_plan(plan: PipelinePlan, places: Sequence[Slot]) -> PipelinePlan:
    """Return a fused plan on some of its slots."""
    given = set(places)
    return replace(plan, slots=tuple(slot for slot in plan.slots if slot.place in given))
