"""Whether a placement keeps its constraints, told from the placement alone, whoever made it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from penstock.dataflow.constraints import SharedPer
from penstock.dataflow.tolerance import TOLERANCE
from penstock.placement.constraints.where import may_be_on
from penstock.placement.contract import shared_mb
from penstock.placement.slots import slot_limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.cluster.topology import Cluster, Slot
    from penstock.placement.contract import Placement, PlacementRequest, Room


def broken(cluster: Cluster, request: PlacementRequest, placement: Placement) -> Iterator[str]:
    """Every constraint of one pipeline that is not kept, in words."""
    on_slot = placement.by_slot()
    on_node: dict[str, Counter[str]] = {}
    on_rack: dict[str, Counter[str]] = {}
    for slot, row in on_slot.items():
        on_node.setdefault(slot.node, Counter()).update(row)
        on_rack.setdefault(cluster.node(slot.node).rack, Counter()).update(row)
    wanted = {operator.name: operator for operator in request.operators}
    whole = request.constraints
    for node, there in on_node.items():
        for name in there:
            if not may_be_on(cluster.node(node), wanted[name], request):
                yield f"operator '{name}' is on node '{node}' in spite of its labels or taints"
    yield from (f"node '{node}' is excluded" for node in on_node if node in cluster.excluded)
    node_limits = {name: operator.constraints.most_per_node for name, operator in wanted.items()}
    rack_limits = {name: operator.constraints.most_per_rack for name, operator in wanted.items()}
    yield from _too_many("on node", on_node, node_limits)
    yield from _too_many("in rack", on_rack, rack_limits)
    yield from _together("node", on_node, whole.apart_on_nodes)
    yield from _together("slot", on_slot, whole.apart_on_slots)
    for slot, row in on_slot.items():
        if whole.one_operator_per_slot and len(row) > 1:
            yield f"slot {slot} has threads of {len(row)} operators"


def kept(request: PlacementRequest, placement: Placement, room: Room) -> bool:
    """Whether a placement on what is left of a cluster, made without a look at constraints, keeps them all the same."""
    if next(broken(room.cluster, request, placement), None) is not None:
        return False
    axis = room.memory_axis
    if axis is None or not request.constraints.shared_memory:
        return True
    position = room.cluster.position
    limit = slot_limit(request, room) * (1 + TOLERANCE)
    if any(heap_mb(request, row, axis) > limit[position(s.node)] for s, row in placement.by_slot().items()):
        return False
    memory = {operator.name: operator.demand[axis] for operator in request.operators}
    taken = shared_mb(placement, request.constraints)
    for bundle in placement.bundles:
        taken[bundle.slot.node] = taken.get(bundle.slot.node, 0.0) + bundle.threads * memory[bundle.operator]
    return all(amount <= room.free[position(node), axis] * (1 + TOLERANCE) for node, amount in taken.items())


def _too_many(where: str, rows: Mapping[str, Mapping[str, int]], limits: Mapping[str, int | None]) -> Iterator[str]:
    for place, row in rows.items():
        for name, threads in row.items():
            most = limits[name]
            if most is not None and threads > most:
                yield f"operator '{name}' has {threads} threads {where} '{place}', at most {most} allowed"


def _together(
    what: str,
    rows: Mapping[str, Mapping[str, int]] | Mapping[Slot, Mapping[str, int]],
    pairs: Sequence[tuple[str, str]],
) -> Iterator[str]:
    for place, row in rows.items():
        for a, b in pairs:
            if a in row and b in row:
                yield f"operators '{a}' and '{b}' share {what} '{place}'"


def not_isolated(requests: Sequence[PlacementRequest], placements: Mapping[str, Placement]) -> Iterator[str]:
    """Nodes of isolated pipelines that run others too."""
    alone = {request.pipeline for request in requests if request.constraints.isolated}
    holders: dict[str, set[str]] = {}
    for name, placement in placements.items():
        for bundle in placement.bundles:
            holders.setdefault(bundle.slot.node, set()).add(name)
    for node, names in holders.items():
        if len(names) > 1 and names & alone:
            yield f"node '{node}' of isolated pipeline '{min(names & alone)}' runs others too"


def heap_mb(request: PlacementRequest, row: Mapping[str, int], memory_axis: int | None) -> float:
    """What one slot has in its heap: its threads' memory without what is off-heap, and what they share."""
    if memory_axis is None:
        return 0.0
    total = 0.0
    for operator in request.operators:
        own = max(operator.demand[memory_axis] - operator.constraints.off_heap_mb, 0.0)
        total += row.get(operator.name, 0) * own
    for shared in request.constraints.shared_memory:
        if shared.per is SharedPer.SLOT and shared.heap and any(name in row for name in shared.operators):
            total += shared.mb
    return total
