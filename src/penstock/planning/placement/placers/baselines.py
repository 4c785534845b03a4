"""Placers to compare with: `round-robin`, Storm's default (DSM, Shukla and Simmhan, Algorithm 4), and `random`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar
from zlib import crc32

import numpy as np
from pydantic import Field

from penstock.base.errors import Refusal, Shortage
from penstock.planning.placement.board import SLOTS, Board, Fits, no_node
from penstock.planning.placement.contract import Placement
from penstock.planning.placement.slots import bundled

if TYPE_CHECKING:
    from penstock.planning.placement.contract import PlacementRequest, Room


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """The published rule, in a plan: thread n (from 0, operators in topological order, as a plan's request has them)
    goes to slot n mod |S|, blind to resources. On a whole cluster threads are dealt to nodes instead, skipping those
    whose hard dimensions or slots have no room."""

    name: ClassVar[str] = "round-robin"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = False

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        return self._deal_slots(request, room) if room.slot_memory_shared else self._deal_nodes(request, room)

    def _deal_slots(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        free = room.slots - room.slots_taken
        total = int(free.sum())
        if not total:
            first = next((operator.name for operator in request.operators), request.pipeline)
            return Refusal(self.name, (Shortage(first, SLOTS, 1, 0, "the cluster"),))
        node = np.repeat(np.arange(len(free)), free)
        slot = np.arange(total) - np.repeat(np.cumsum(free) - free, free) + room.slots_taken[node]
        operators = np.repeat(np.arange(len(request.operators)), [o.threads for o in request.operators])
        turn = np.arange(len(operators)) % total
        reasons = [
            f"thread {n} of the pipeline: slot {n % total} of {total}" for n in range(len(turn) * request.explain)
        ]
        return Placement(
            request.pipeline,
            self.name,
            bundled(request, room, operators, node[turn], slot[turn], reasons),
        )

    def _deal_nodes(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        hard = [axis for axis, dimension in enumerate(room.dimensions) if dimension.hard]
        board = Board(request, room)
        operators: list[int] = []
        nodes: list[int] = []
        slots: list[int] = []
        turn = 0
        for operator, wanted in enumerate(request.operators):
            fits = Fits(board, wanted.demand, hard)
            ring = _NextFree(len(room.free))
            for _ in range(wanted.threads):
                node = ring.at_or_after(turn)
                while node is not None and not fits.now(node):
                    ring.take(node)
                    node = ring.at_or_after(turn)
                if node is None:
                    return no_node(self.name, request, board, operator, hard)
                operators.append(operator)
                nodes.append(node)
                slots.append(board.assign(node, fits))
                turn = node + 1
        reasons = ["the next node in turn with room"] * len(nodes) if request.explain else []
        return Placement(request.pipeline, self.name, bundled(request, room, operators, nodes, slots, reasons))


class _NextFree:
    """Places 0 to size - 1, all free at first. The next free one is found in almost constant time by following, and
    shortening, the links over those that are taken (a union-find)."""

    def __init__(self, size: int) -> None:
        self._links = list(range(size + 1))
        self._size = size

    def take(self, place: int) -> None:
        self._links[place] = place + 1

    def at_or_after(self, place: int) -> int | None:
        """The first free place from `place` on, then from the beginning; None: all are taken."""
        for start in (place, 0):
            free = self._find(start) if start < self._size else self._size
            if free < self._size:
                return free
        return None

    def _find(self, place: int) -> int:
        links = self._links
        root = place
        while links[root] != root:
            root = links[root]
        while links[place] != root:
            links[place], place = root, links[place]
        return root


@dataclass(frozen=True, slots=True)
class RandomFeasible:
    """Place each thread on a random node that has room in every dimension, soft ones too."""

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
