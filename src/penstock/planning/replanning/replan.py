"""Re-plan a running pipeline: threads stay unless moving them keeps more of the rate, or pays.

Two plans are made. One that keeps the rate (with its routing, then with the groupings as declared) wins; of two that
do, or that miss it alike, the one with the lower `slots paid for + move_cost x threads moved`:

* fewest moves: the allocation of the new rate on the current placement (`penstock.planning.replanning.keeping`).
  Threads that are too many stop, missing ones start beside what runs or where the placer puts them.
* fresh: the plan of the policies from nothing, its slots exchanged among equals so that as many threads as possible are
  where they were.

Placers that weigh moves themselves (`KeepsCurrent`) are asked once, knowing what runs, and their answer stands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import BadInputError, Refusal
from penstock.base.tolerance import TOLERANCE, covers, tie_key
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Catalogue, Cluster, Node, Slot, rent
from penstock.planning.allocation.contract import ElasticAllocator
from penstock.planning.placement.constraints import broken
from penstock.planning.placement.contract import KeepsCurrent, PlacedBundle, Placement
from penstock.planning.plan import Considered
from penstock.planning.replanning.keeping import Offer, keep, part_of_request
from penstock.planning.replanning.plan_changes import by_operator, exchanged, running

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.planning.allocation.contract import Allocator
    from penstock.planning.files import SavedPlan
    from penstock.planning.placement.contract import PlacementRequest, Placer
    from penstock.planning.plan import Plan
    from penstock.planning.planner import Planner
    from penstock.planning.replanning.keeping import KeptPlan, Rows

DEFAULT_MOVE_COST = 0.01
"""In slots for every thread that moves: a hundred threads moved are worth one slot saved."""

ALIKE = 0.98
"""Two plans miss the rate alike if the one does at least this part of what the other does."""


def replan(
    planner: Planner,
    rate: float,
    allocator: Allocator,
    placer: Placer,
    current: SavedPlan,
    move_cost: float | None = None,
    *,
    utilisation: float = 1.0,
) -> Plan | Refusal:
    """Return the better of keeping what runs and planning anew, or a refusal if neither is possible.

    `move_cost` is what a thread that moves counts, in slots (`DEFAULT_MOVE_COST`).
    """
    if current.pipeline != planner.pipeline.name:
        raise BadInputError(
            f"current plan: it is of pipeline '{current.pipeline}', and '{planner.pipeline.name}' is to be planned"
        )
    planner = replace(planner, current=current)
    if isinstance(allocator, ElasticAllocator):
        hosts = by_operator(current.threads_by_slot())
        allocator = allocator.beside({name: sum(threads.values()) for name, threads in hosts.items()})
    if isinstance(placer, KeepsCurrent):
        if move_cost is not None:
            raise BadInputError(
                f"placer '{placer.name}' weighs moves by its own rule, so a move cost means nothing to it; leave it out"
            )
        return planner.plan(rate, allocator, placer, utilisation=utilisation)
    fresh = planner.plan(rate, allocator, placer, utilisation=utilisation)
    if not isinstance(fresh, Refusal):
        # CPU may be pooled on a node; a slot above 1 relies on its neighbours
        pooled = any(max(slot.cpu, slot.memory) > 1 + TOLERANCE for slot in fresh.prediction.slots.values())
        alike = not (planner.nodes_matter or pooled)
        placement = exchanged(fresh.placement, fresh.cluster, running(current, fresh.cluster), alike=alike)
        fresh = planner.finish(rate, fresh.allocation, fresh.cluster, fresh.slots_asked, placement, utilisation)
    kept = _kept(planner, rate, current, utilisation, allocator, placer)
    plans = {"fewest moves": kept, "fresh": fresh}
    made = {name: plan for name, plan in plans.items() if plan is not None and not isinstance(plan, Refusal)}
    if not made:
        return fresh
    price = DEFAULT_MOVE_COST if move_cost is None else move_cost
    rented = isinstance(planner.offer, Catalogue)
    as_routed = _best(made, rate, lambda plan: plan.prediction.supported.rate)
    candidates = _best(as_routed, rate, lambda plan: plan.prediction.declared.rate)
    chosen = min(candidates, key=lambda name: tie_key(_cost(made[name], price, rented=rented), 1.0))
    considered = tuple(Considered.of(name, plan, chosen=name == chosen) for name, plan in made.items())
    return replace(made[chosen], considered=considered)


def _best(made: Mapping[str, Plan], rate: float, predicted: Callable[[Plan], float]) -> dict[str, Plan]:
    """Return the plans that keep the rate by this prediction; if there is none, those that come nearest alike."""
    best = max(predicted(plan) for plan in made.values())
    enough = rate if covers(best, rate) else ALIKE * best
    return {name: plan for name, plan in made.items() if covers(predicted(plan), enough)}


def _cost(plan: Plan, move_cost: float, *, rented: bool) -> float:
    paid = len(plan.cluster.slots) if rented else plan.slots_used
    return paid + move_cost * (plan.moves.moved if plan.moves else 0)


def _held_cluster(planner: Planner, current: SavedPlan, more: int) -> Cluster | None:
    """The machines there are, and rented ones for so many more slots; None where the offer does not have them."""
    offer = planner.offer
    if not isinstance(offer, Catalogue):
        return offer if more == 0 else None
    sizes = {size.name: size for size in offer.sizes}
    nodes = []
    for node in current.nodes:
        size = sizes.get(node.size or "")
        if size is None or size.slots != node.slots:
            return None
        capacity = {CPU: CPU_POINTS_PER_SLOT * size.slots, MEMORY: size.memory_mb}
        nodes.append(Node(node.name, node.rack, node.slots, capacity, node.size, size.price))
    taken = {node.name for node in nodes}
    names = (name for name in (f"n{number}" for number in range(1, 10**9)) if name not in taken)
    added = rent(more, offer, planner.acquisition).nodes if more else ()
    return Cluster((*nodes, *(replace(node, name=next(names)) for node in added)))


def _kept(
    planner: Planner, rate: float, current: SavedPlan, utilisation: float, allocator: Allocator, placer: Placer
) -> Plan | None:
    """Keep the current placement: start and stop what the new allocation asks for, on as few more slots as possible."""
    allocation = planner.allocate(rate / utilisation, allocator)
    more = 0
    while (cluster := _held_cluster(planner, current, more)) is not None and more <= 2 * len(current.nodes) + 16:
        request = planner.request(allocation, cluster)
        rows = _beside_what_runs(request, keep(running(current, cluster), allocation), cluster, placer)
        if rows is None:
            more += 1
            continue
        used = {slot.node for slot in rows}
        if isinstance(planner.offer, Catalogue):
            cluster = Cluster(tuple(node for node in cluster.nodes if node.name in used), cluster.dimensions)
        placement = Placement(
            planner.pipeline.name,
            placer.name,
            tuple(
                PlacedBundle(name, threads, slot, "runs here, or beside it")
                for slot, row in rows.items()
                for name, threads in row.items()
            ),
        )
        if next(broken(cluster, request, placement), None) is not None:
            return None
        return planner.finish(rate, allocation, cluster, len(rows), placement, utilisation)
    return None


def _beside_what_runs(request: PlacementRequest, kept: KeptPlan, cluster: Cluster, placer: Placer) -> Rows | None:
    """Return the threads that stay and the missing ones by the pipeline's placer; None if there is no room."""
    demands = {operator.name: operator.demand for operator in request.operators}
    names = [dimension.name for dimension in cluster.dimensions]
    free = {node.name: np.array([node.capacity[name] for name in names]) for node in cluster.nodes}
    hard = [axis for axis, dimension in enumerate(cluster.dimensions) if dimension.hard]

    def takes(slot: Slot, name: str, threads: int) -> bool:
        left = free[slot.node] - np.multiply(demands[name], threads)
        if any(left[axis] < -TOLERANCE * cluster.node(slot.node).capacity[names[axis]] for axis in hard):
            return False
        free[slot.node] = left
        return True

    for slot, row in kept.rows.items():
        if not all(takes(slot, name, threads) for name, threads in row.items()):
            return None
    kept.fill(takes)
    rows = {slot: dict(row) for slot, row in kept.rows.items()}
    if not kept.missing:
        return rows
    nodes = [node for node in cluster.nodes if node.name not in cluster.excluded]
    numbers = [[n for n in range(node.slots) if Slot(node.name, n) not in rows] for node in nodes]
    offered = np.array([free[node.name] for node in nodes])
    placed = Offer(nodes, offered, numbers, cluster.dimensions).place(placer, part_of_request(request, kept.missing))
    return None if isinstance(placed, Refusal) else rows | placed
