"""Random placement within all limits: the baseline any placer should beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar
from zlib import crc32

import numpy as np
from pydantic import Field

from penstock.placement.board import Board, Fits
from penstock.placement.contract import Placement
from penstock.placement.refusals import no_node
from penstock.placement.slots import bundled

if TYPE_CHECKING:
    from penstock.errors import Refusal
    from penstock.placement.contract import PlacementRequest, Room


@dataclass(frozen=True, slots=True)
class RandomFeasible:
    """Each thread goes to a node drawn evenly from those with room in every dimension, soft ones too."""

    seed: Annotated[int, Field(ge=0)] = 0

    name: ClassVar[str] = "random"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        draw = np.random.default_rng([self.seed, crc32(request.pipeline.encode())])
        axes = range(len(room.dimensions))
        board = Board(request, room)
        operators: list[int] = []
        nodes: list[int] = []
        slots: list[int] = []
        for operator, wanted in enumerate(request.operators):
            board.write()
            fits = Fits(board, wanted.demand, axes)
            # Room only shrinks while a pipeline is placed: a node found full is dropped for good.
            open_nodes = np.flatnonzero(fits.every()).tolist()
            for _ in range(wanted.threads):
                while open_nodes:
                    pick = int(draw.random() * len(open_nodes))
                    node = open_nodes[pick]
                    if fits.now(node):
                        break
                    open_nodes[pick] = open_nodes[-1]
                    open_nodes.pop()
                else:
                    return no_node(self.name, request, board, operator, axes)
                operators.append(operator)
                nodes.append(node)
                slots.append(board.assign(node, fits))
        reasons = ["drawn at random from the nodes with room"] * len(nodes) if request.explain else []
        return Placement(request.pipeline, self.name, bundled(request, room, operators, nodes, slots, reasons))
