"""R-Storm: resource-aware placement with hard and soft limits (R-Storm, Algorithms 1 to 4).

The reference node is the node with the most left in the rack with the most left. It takes the first thread if
that fits; every further thread goes to the feasible node with the smallest

    sum over dimensions of weight x (free - demand)^2  +  network_weight x net(reference, node)

where net is 0 on the reference node, 0.5 in its rack and 1 elsewhere. Feasible means that every hard
dimension and one slot's memory suffice; a soft dimension may go below zero. The square is blind to its sign,
so a node that would be overloaded counts as much as one with room to spare: that is the published rule, kept
here as the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.dataflow.tolerance import first_largest
from penstock.placement.board import Board
from penstock.placement.contract import Placement
from penstock.placement.refusals import no_node
from penstock.placement.resource_aware.nearest import Nearest
from penstock.placement.resource_aware.order import breadth_first, thread_order
from penstock.placement.slots import bundled
from penstock.registry import Weight  # noqa: TC001 - options are checked by their annotations at run time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.errors import Refusal
    from penstock.placement.contract import PlacementRequest, Room


@dataclass(frozen=True, slots=True)
class RStorm:
    """The published rule. `strict` asks for more than the demand in hard dimensions, as printed; it refuses
    an exact fit."""

    strict: bool = False
    network_weight: Weight = 1.0

    name: ClassVar[str] = "r-storm"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        reference = reference_node(room)
        away = self.network_weight * network_distance(room, reference)
        board = Board(request, room)
        kinds = {demand: Nearest(board, demand, away, strict=self.strict) for demand in _demands(request)}
        nearest = [kinds[operator.demand] for operator in request.operators]
        order = breadth_first(len(request.operators), request.streams, request.sources)
        threads = thread_order(order, [operator.threads for operator in request.operators])
        nodes: list[int] = []
        slots: list[int] = []
        reasons: list[str] = []
        for operator in threads:
            kind = nearest[operator]
            first = not nodes and reference is not None and kind.fits.now(reference)
            node = reference if first else kind.node()
            if node is None:
                return no_node(self.name, request, board, operator, [axis for axis, _ in kind.fits.least])
            if request.explain:
                reasons.append("the reference node takes the first thread" if first else kind.reason(node))
            nodes.append(node)
            slots.append(board.assign(node, kind.fits))
        return Placement(request.pipeline, self.name, bundled(request, room, threads, nodes, slots, reasons))


def _demands(request: PlacementRequest) -> dict[tuple[float, ...], None]:
    return dict.fromkeys(operator.demand for operator in request.operators)


def reference_node(room: Room) -> int | None:
    """The node with the most left (sum over dimensions of free / the cluster's total capacity) in the rack
    with the most left; ties go to what was declared first. None where there is no node."""
    if not len(room.free):
        return None
    total = room.capacity.sum(axis=0)
    share = (room.free / np.where(total > 0, total, 1.0)).sum(axis=1)
    by_rack: NDArray[np.float64] = np.bincount(room.rack, weights=share).astype(float)
    rack = first_largest(by_rack, float(by_rack.max()))
    return first_largest(np.where(room.rack == rack, share, -np.inf), float(share.max()))


def network_distance(room: Room, reference: int | None) -> NDArray[np.float64]:
    """How far each node is from the reference node: 0 itself, 0.5 in its rack, 1 in another rack."""
    if reference is None:
        return np.zeros(0)
    distance = np.where(room.rack == room.rack[reference], 0.5, 1.0)
    distance[reference] = 0.0
    return distance
