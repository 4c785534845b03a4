"""R-Storm as the plain loop: for every thread, the distance of every node.

The baseline for speed, and the reference that `penstock.planning.placement.placers.r_storm` must equal thread by
thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.planning.placement.board import Board, Fits, no_node
from penstock.planning.placement.contract import Placement
from penstock.planning.placement.placers.r_storm import breadth_first, network_distance, reference_node, thread_order
from penstock.planning.placement.slots import bundled

if TYPE_CHECKING:
    from penstock.base.errors import Refusal
    from penstock.planning.placement.contract import PlacementRequest, Room


@dataclass(frozen=True, slots=True)
class PlainRStorm:
    strict: bool = False
    network_weight: float = 1.0

    name: ClassVar[str] = "r-storm"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        reference = reference_node(room)
        away = self.network_weight * network_distance(room, reference)
        board = Board(request, room)
        hard = [axis for axis, dimension in enumerate(room.dimensions) if dimension.hard]
        order = breadth_first(len(request.operators), request.streams, request.sources)
        threads = thread_order(order, [operator.threads for operator in request.operators])
        nodes: list[int] = []
        slots: list[int] = []
        for operator in threads:
            demand = request.operators[operator].demand
            fits = Fits(board, demand, hard, strict=self.strict)
            board.write()
            feasible = fits.every()
            if not feasible.any():
                return no_node(self.name, request, board, operator, hard)
            distance = np.zeros(len(room.free))
            for axis, dimension in enumerate(room.dimensions):
                gap = board.free[axis] - demand[axis]
                distance += dimension.weight * (gap * gap)
            distance += away
            distance[~feasible] = np.inf
            first = not nodes and reference is not None and bool(feasible[reference])
            node = reference if first and reference is not None else int(np.argmin(distance))
            nodes.append(node)
            slots.append(board.assign(node, fits))
        return Placement(request.pipeline, self.name, bundled(request, room, threads, nodes, slots))
