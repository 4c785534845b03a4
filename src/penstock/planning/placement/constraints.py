"""Which nodes an operator may be on, for its labels and taints and for who else is there."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import BadInputError, Refusal, nearest
from penstock.base.tolerance import TOLERANCE
from penstock.dataflow.pipeline import SharedPer
from penstock.planning.placement.contract import KeepsConstraints, Placement, shared_mb
from penstock.planning.placement.slots import slot_limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Cluster, Node, Slot
    from penstock.planning.placement.contract import OperatorRequest, PlacementRequest, Placer, Room


class Constraint(StrEnum):
    """A constraint that a placer may be asked to keep, named as in the files."""

    LABELS = "labels"
    PREFERRED_LABELS = "preferred_labels"
    TAINTS = "taints"
    APART_ON_NODES = "apart_on_nodes"
    APART_ON_SLOTS = "apart_on_slots"
    MOST_PER_NODE = "most_per_node"
    MOST_PER_RACK = "most_per_rack"
    ONE_OPERATOR_PER_SLOT = "one_operator_per_slot"
    SHARED_MEMORY = "shared_memory"
    OFF_HEAP_MB = "off_heap_mb"


EVERY_CONSTRAINT = frozenset(Constraint)
OF_NODES = frozenset({Constraint.LABELS, Constraint.TAINTS, Constraint.PREFERRED_LABELS})
"""Constraints that only select or prefer nodes for an operator."""


def asked(request: PlacementRequest) -> Iterator[tuple[Constraint, str]]:
    """Yield the constraints that a placer must check itself, and the operator or pipeline that sets each.

    Not among them: excluded nodes and isolation, which hold for a pipeline's whole room. Off-heap memory is part of
    every declared demand, so only placers of bundles, which use those instead, must know it.
    """
    for operator in request.operators:
        own = operator.constraints
        if own.required_labels or own.forbidden_labels:
            yield Constraint.LABELS, operator.name
        if own.preferred_labels:
            yield Constraint.PREFERRED_LABELS, operator.name
        if own.tolerates:
            yield Constraint.TAINTS, operator.name
        if own.off_heap_mb and operator.bundles:
            yield Constraint.OFF_HEAP_MB, operator.name
        if own.most_per_node is not None:
            yield Constraint.MOST_PER_NODE, operator.name
        if own.most_per_rack is not None:
            yield Constraint.MOST_PER_RACK, operator.name
    whole = request.constraints
    for constraint, given in (
        (Constraint.APART_ON_NODES, bool(whole.apart_on_nodes)),
        (Constraint.APART_ON_SLOTS, bool(whole.apart_on_slots)),
        (Constraint.ONE_OPERATOR_PER_SLOT, whole.one_operator_per_slot),
        (Constraint.SHARED_MEMORY, bool(whole.shared_memory)),
    ):
        if given:
            yield constraint, request.pipeline


def constrained(request: PlacementRequest, room: Room) -> bool:
    """Return whether anything but free resources restricts its threads: labels and taints do not if all nodes of the
    room are equal in them."""
    wishes = {constraint for constraint, _ in asked(request)}
    if wishes - OF_NODES:
        return True
    if not wishes and not room.cluster.tainted:
        return False
    return any(not mask.all() for mask in allowed(request, room)) or any(
        len(set(preference(operator, room).tolist())) > 1
        for operator in request.operators
        if operator.constraints.preferred_labels
    )


def may_be_on(node: Node, operator: OperatorRequest, request: PlacementRequest) -> bool:
    own = operator.constraints
    return (
        node.labels.issuperset(own.required_labels)
        and node.labels.isdisjoint(own.forbidden_labels)
        and node.taints <= {*own.tolerates, *request.constraints.tolerates}
    )


def allowed(request: PlacementRequest, room: Room) -> list[NDArray[np.bool_]]:
    """Return, for every operator, the nodes whose labels and taints admit it."""
    nodes = room.cluster.nodes
    known: dict[object, NDArray[np.bool_]] = {}
    kinds: dict[object, list[int]] = {}
    for position, node in enumerate(nodes):
        kinds.setdefault((node.labels, node.taints), []).append(position)
    masks = []
    for operator in request.operators:
        own = operator.constraints
        key = own.required_labels, own.forbidden_labels, own.tolerates
        if key not in known:
            mask = np.zeros(len(nodes), dtype=bool)
            for positions in kinds.values():
                mask[positions] = may_be_on(nodes[positions[0]], operator, request)
            known[key] = mask
        masks.append(known[key])
    return masks


def preference(operator: OperatorRequest, room: Room) -> NDArray[np.int64]:
    """Return how many of its preferred labels every node has."""
    wanted = set(operator.constraints.preferred_labels)
    return np.array([len(wanted & node.labels) if wanted else 0 for node in room.cluster.nodes], dtype=np.int64)


def open_to(request: PlacementRequest, room: Room) -> NDArray[np.bool_]:
    """Return the nodes that a pipeline may enter at all: not nodes isolated for another and, if it is isolated, only
    empty ones."""
    mask: NDArray[np.bool_] = ~room.reserved
    return mask & (room.slots_taken == 0) if request.constraints.isolated else mask


# Check a finished placement against its constraints.


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
    """Return whether a placement that was made without regard to constraints keeps them all the same."""
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
    """Return the heap of one slot: its threads' memory without the off-heap part, and memory they share."""
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


# Reject constraints that no cluster can keep, before placing.


def check_words(request: PlacementRequest, cluster: Cluster, where: str = "") -> None:
    """Reject labels and taints that no node has: they are more likely misspelt than meant.

    And memory shared in a slot's heap must leave room for a thread: a limit below it contradicts it."""
    labels = sorted({label for node in cluster.nodes for label in node.labels})
    taints = sorted({taint for node in cluster.nodes for taint in node.taints})
    at = f"{where}: " if where else ""
    for operator in request.operators:
        own = operator.constraints
        for label in (*own.required_labels, *own.preferred_labels, *own.forbidden_labels):
            if label not in labels:
                raise BadInputError(
                    f"{at}operator '{operator.name}': unknown label '{label}': no node has it; {nearest(label, labels)}"
                )
        for taint in own.tolerates:
            if taint not in taints:
                raise BadInputError(
                    f"{at}operator '{operator.name}': unknown taint '{taint}': no node has it; {nearest(taint, taints)}"
                )
    for taint in request.constraints.tolerates:
        if taint not in taints:
            raise BadInputError(f"{at}constraints: unknown taint '{taint}': no node has it; {nearest(taint, taints)}")
    in_heap = [s for s in request.constraints.shared_memory if s.per is SharedPer.SLOT and s.heap]
    for shared in in_heap if request.slot_memory is not None else ():
        if shared.mb > (request.slot_memory or 0.0):
            raise BadInputError(
                f"{at}constraints: shared_memory of {shared.mb:g} MB in one slot contradicts "
                f"worker_max_heap_mb {request.slot_memory:g}; one of them must change"
            )


# Refusals for constraints: the one that kept an operator out, and whether more nodes of these kinds would help.


def not_kept(by: str, constraint: Constraint, who: str, request: PlacementRequest, detail: str = "") -> Refusal:
    """Return the refusal of a placer that does not support a constraint, with the name of the constraint."""
    kind = "pipeline" if who == request.pipeline else "operator"
    note = f"placer '{by}' cannot keep {constraint}{f' {detail}' if detail else ''}, asked for by {kind} '{who}'"
    return Refusal(by, (), more_slots_may_help=False, notes=(f"{note}; use compact",))


def kept_out(by: str, request: PlacementRequest, room: Room, operator: int) -> Refusal:
    """No node may take one more thread of an operator, whatever it has left."""
    wanted = request.operators[operator]
    own = wanted.constraints
    nodes = [node for node in room.cluster.nodes if node.name not in room.cluster.excluded]
    if not any(may_be_on(node, wanted, request) for node in nodes):
        why = "no node that is not excluded has its labels, and only taints it tolerates"
        return Refusal(by, (), more_slots_may_help=False, notes=(f"operator '{wanted.name}': {why}",))
    limits = [f"{most} per {per}" for most, per in ((own.most_per_node, "node"), (own.most_per_rack, "rack")) if most]
    pairs = [pair for pair in request.constraints.apart_on_nodes if wanted.name in pair]
    if request.constraints.isolated:
        why = "no node is left that nobody else is on"
    elif limits:
        why = f"every node it may be on has its most threads ({' and '.join(limits)})"
    elif pairs:
        why = f"no node is left without {', '.join(b if a == wanted.name else a for a, b in pairs)}"
    else:
        why = "every node it may be on belongs to an isolated pipeline"
    return Refusal(by, (), notes=(f"operator '{wanted.name}': {why}",))


# Call a placer; constraints it does not know are enforced for it, or rejected with a reason.
#
# Some constraints only restrict the nodes of a pipeline: if all its operators ask for the same, a placer keeps those by
# never seeing the other nodes. All other constraints the placer must check itself (`keeps`).


def ask(placer: Placer, request: PlacementRequest, room: Room) -> Placement | Refusal:
    """Return the placer's answer for the pipeline within all its constraints."""
    wishes = dict(asked(request))
    keeps = placer.keeps if isinstance(placer, KeepsConstraints) else frozenset()
    mask = open_to(request, room)
    if room.cluster.excluded and not placer.whole_cluster:
        mask = mask & (room.slots > 0)  # those that fill slots of the cluster one by one do not ask who is excluded
    if wishes or room.cluster.tainted:
        for constraint, who in wishes.items():
            if constraint not in keeps and constraint not in OF_NODES:
                return not_kept(placer.name, constraint, who, request)
        masks = allowed(request, room)
        preferred = {frozenset(operator.constraints.preferred_labels) for operator in request.operators}
        if masks and len(preferred) == 1 and all((own == masks[0]).all() for own in masks):
            mask = mask & masks[0]
            wanted = preference(request.operators[0], room)
            best = mask & (wanted == wanted[mask].max(initial=0))
            if wanted.any() and best.any():
                answer = placer.place(request, room.only(best))
                if isinstance(answer, Placement):
                    return answer
        elif masks and not keeps >= OF_NODES:
            constraint, who = next(
                ((c, who) for c, who in wishes.items() if c in OF_NODES), (Constraint.TAINTS, request.pipeline)
            )
            return not_kept(placer.name, constraint, who, request, "that differ within one pipeline")
    if mask.all():
        return placer.place(request, room)
    if not mask.any() and request.operators:
        return kept_out(placer.name, request, room, 0)
    return placer.place(request, room.only(mask))
