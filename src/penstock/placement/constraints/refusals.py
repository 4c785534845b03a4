"""Refusals for constraints: which one kept an operator out, and whether more nodes of these kinds would let it in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import Refusal
from penstock.placement.constraints.where import Constraint, may_be_on

if TYPE_CHECKING:
    from penstock.placement.contract import PlacementRequest, Room


def not_kept(by: str, constraint: Constraint, who: str, request: PlacementRequest, detail: str = "") -> Refusal:
    """A placer that does not look at a constraint says so by name."""
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
