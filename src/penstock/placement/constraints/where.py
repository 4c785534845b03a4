"""Which nodes an operator may be on, for its labels and taints and for who else is there."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.cluster.topology import Node
    from penstock.placement.contract import OperatorRequest, PlacementRequest, Room


class Constraint(StrEnum):
    """What a placer may be asked to keep, by the words of the files."""

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
"""What only says which nodes an operator may be on, or had better be on."""


def asked(request: PlacementRequest) -> Iterator[tuple[Constraint, str]]:
    """What a placer must look at itself, and the operator or pipeline that asks for it.

    Not among them: excluded nodes and isolation, which hold for a pipeline's whole room. Off-heap memory is part of
    every declared demand, so only placers of bundles, which look at those instead, must know of it.
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
    """Whether anything but free resources decides where its threads may be: labels and taints do not where every node
    of the room is as good as any other."""
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
    """For every operator, the nodes whose labels and taints let it in."""
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
    """How many of its preferred labels every node has."""
    wanted = set(operator.constraints.preferred_labels)
    return np.array([len(wanted & node.labels) if wanted else 0 for node in room.cluster.nodes], dtype=np.int64)


def open_to(request: PlacementRequest, room: Room) -> NDArray[np.bool_]:
    """Nodes a pipeline may enter at all, for those that are there: not into another's isolation, and isolated only
    where nobody is."""
    mask: NDArray[np.bool_] = ~room.reserved
    return mask & (room.slots_taken == 0) if request.constraints.isolated else mask
