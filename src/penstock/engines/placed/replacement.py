"""A plan on other slots than it names, by its own allocator and placer: where nodes were lost, or slots added."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, ClusterError, Refusal
from penstock.cluster.topology import Cluster, Slot
from penstock.inputs.finders import planner_of
from penstock.planning.capacity import capacity
from penstock.planning.files import SavedBundles, SavedNode, SavedPlan
from penstock.planning.registry import ALLOCATORS, DEFAULT_ALLOCATOR, DEFAULT_PLACER, PLACERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.engines.placed.preparation import PlacedJob
    from penstock.planning.plan import Plan
    from penstock.planning.planner import Planner

Threads = dict[Slot, dict[str, int]]

LOWER_RATES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05)
"""Parts of the planned rate, tried one after the other where slots were lost."""
CAPACITY_STEPS = 20
"""Steps a planned rate is cut into when the highest rate of some slots is looked for."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """Threads by slot, and a sentence on what they were planned for."""

    threads: Threads
    note: str


def on_slots_left(job: PlacedJob, cluster: Cluster, usable: Sequence[Slot]) -> Replaced:
    """For the planned rate, or the highest part of it that the plan's own policies find room for on these slots. Where
    they find none at all, threads stay where they can and the others go where the fewest are."""
    if not usable:
        raise ClusterError("no slot is left")
    planner = _planner(job, cluster, usable)
    policies = ALLOCATORS.create(_allocator(job)), PLACERS.create(_placer(job))
    for part in LOWER_RATES:
        planned = planner.plan(part * job.plan.rate, *policies)
        if not isinstance(planned, Refusal):
            note = f"placed anew by {_placer(job)} for {planned.rate:,.4g} tuples/s"
            return Replaced(_threads(planned, usable), note)
    return Replaced(spread(job.threads, usable), f"{_placer(job)} finds no room; placed where the fewest threads are")


def on_many_slots(job: PlacedJob, cluster: Cluster, usable: Sequence[Slot]) -> Replaced:
    """For the highest rate that the plan's own policies find room for on these slots."""
    planner = _planner(job, cluster, usable)
    policies = ALLOCATORS.create(_allocator(job)), PLACERS.create(_placer(job))
    rate = job.plan.rate
    if planner.grows_with_rate:
        rate = capacity(planner, planner_cluster(planner), *policies, rate / CAPACITY_STEPS).placed
    planned = planner.plan(rate, *policies) if rate > 0 else None
    if planned is None or isinstance(planned, Refusal):
        why = f": {planned}" if planned is not None else ""
        raise BadInputError(f"slots: the plan's own policies find no room on {len(usable)}{why}")
    return Replaced(_threads(planned, usable), f"planned anew by {_placer(job)} for {planned.rate:,.4g} tuples/s")


def planner_cluster(planner: Planner) -> Cluster:
    if not isinstance(planner.offer, Cluster):
        raise TypeError("a run's planner has a cluster")
    return planner.offer


def spread(threads: Mapping[Slot, Mapping[str, int]], usable: Sequence[Slot]) -> Threads:
    """The plan's threads with those of unusable slots on others: on the one with the fewest threads."""
    kept: Threads = {slot: dict(row) for slot, row in threads.items() if slot in usable}
    for slot, row in threads.items():
        if slot in usable:
            continue
        refuge = min(usable, key=lambda other: (sum(kept.get(other, {}).values()), usable.index(other)))
        target = kept.setdefault(refuge, {})
        for operator, count in row.items():
            target[operator] = target.get(operator, 0) + count
    return kept


def with_threads(plan: SavedPlan, threads: Threads, cluster: Cluster) -> SavedPlan:
    """The plan with these threads, for whoever goes on with the run; what it predicted was for others."""
    counts: Counter[str] = Counter()
    for row in threads.values():
        counts.update(row)
    return plan.model_copy(
        update={
            "operators": {n: o.model_copy(update={"threads": counts[n]}) for n, o in plan.operators.items()},
            "placement": tuple(
                SavedBundles(node=slot.node, slot=slot.number, threads=row) for slot, row in sorted(threads.items())
            ),
            "nodes": tuple(SavedNode(name=n.name, rack=n.rack, slots=n.slots) for n in cluster.nodes),
            "prediction": {},
        }
    )


def _planner(job: PlacedJob, cluster: Cluster, usable: Sequence[Slot]) -> Planner:
    return planner_of(job.pipeline, models=job.library, cluster=_part(cluster, usable), routing=job.routing)


def _part(cluster: Cluster, usable: Sequence[Slot]) -> Cluster:
    """The nodes with as many slots as can be used, and their part of everything else."""
    counts = Counter(slot.node for slot in usable)
    nodes = tuple(
        replace(
            node,
            slots=counts[node.name],
            capacity=MappingProxyType({name: a * counts[node.name] / node.slots for name, a in node.capacity.items()}),
        )
        for node in cluster.nodes
        if counts[node.name]
    )
    return Cluster(nodes, cluster.dimensions)


def _threads(plan: Plan, usable: Sequence[Slot]) -> Threads:
    """The plan's slots are numbered among those that can be used."""
    numbers: dict[str, list[int]] = {}
    for slot in sorted(usable):
        numbers.setdefault(slot.node, []).append(slot.number)
    placed = plan.placement.by_slot()
    return {Slot(slot.node, numbers[slot.node][slot.number]): dict(row) for slot, row in placed.items() if row}


def _allocator(job: PlacedJob) -> str:
    """A plan that was kept as it was names none: then the default."""
    return job.plan.allocator if job.plan.allocator in ALLOCATORS.names() else DEFAULT_ALLOCATOR


def _placer(job: PlacedJob) -> str:
    return job.plan.placer if job.plan.placer in PLACERS.names() else DEFAULT_PLACER
