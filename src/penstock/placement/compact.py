"""Compact: no overload in any dimension, and the least network cost within that.

A pipeline goes to one node if one can take it whole, else into one rack, else into as few racks as possible.
Inside, operators that talk are kept together (`compact_graph`), nodes are filled (`compact_fill`) and threads
are moved and swapped while the cost falls (`compact_search`). The threads of each node are then dealt to
slots the same way. Where room is too fragmented for that, threads are placed first fit, the largest first,
before the pipeline is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.errors import Refusal
from penstock.placement.board import Board
from penstock.placement.compact_arrange import arrange
from penstock.placement.compact_choices import node_choices
from penstock.placement.compact_graph import Talk
from penstock.placement.compact_plan import place_on_slots
from penstock.placement.compact_slots import Layout
from penstock.placement.contract import Placement
from penstock.placement.refusals import no_node

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.placement.contract import PlacedBundle, Request, Room


@dataclass(frozen=True, slots=True)
class Compact:
    """All of a pipeline within every limit, soft ones too, or a refusal. In a plan a slot is a share of its
    node, and no slot takes more than its share of anything."""

    name: ClassVar[str] = "compact"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True

    def place(self, request: Request, room: Room) -> Placement | Refusal:
        talk = Talk(request, len(room.dimensions))
        answer = (
            place_on_slots(self.name, request, room, talk)
            if room.slot_memory_shared
            else self._place_on_nodes(request, room, talk)
        )
        if isinstance(answer, Refusal):
            return answer
        bundles = _with_reasons(request, answer) if request.explain else answer
        return Placement(request.pipeline, self.name, bundles)

    def _place_on_nodes(self, request: Request, room: Room, talk: Talk) -> tuple[PlacedBundle, ...] | Refusal:
        for nodes in node_choices(request, room, talk) if request.threads else ():
            layout = _within(request, room, talk, nodes)
            if layout is not None:
                return layout.bundles(request)
        layout = Layout(request, room, talk)
        stuck = layout.first_fit(talk.threads, _roomiest_racks_first(room))
        if stuck is None:
            return layout.bundles(request)
        board = Board(request, room)
        board.free, board.largest = layout.free.T, layout.largest()
        return no_node(self.name, request, board, stuck, range(len(room.dimensions)))


def _roomiest_racks_first(room: Room) -> NDArray[np.int64]:
    share = (room.free / np.maximum(room.capacity.sum(axis=0), 1e-300)).sum(axis=1)
    return np.lexsort((-share, -np.bincount(room.rack, weights=share)[room.rack])).astype(np.int64)


def _within(request: Request, room: Room, talk: Talk, nodes: NDArray[np.int64]) -> Layout | None:
    """Place the pipeline on some of `nodes`, opened in their order."""
    layout = Layout(request, room, talk)
    demand, offer = layout.node_demand(), layout.node_room(nodes)
    held, missing = arrange(talk, talk.threads, demand, offer, [room.rack[nodes]], spare=0)
    used = np.flatnonzero(held.any(axis=1))
    for bin_ in used.tolist():
        if held[bin_].any():
            for operator, count in enumerate(layout.deal(int(nodes[bin_]), held[bin_])):
                missing[operator] += count
    return layout if layout.first_fit(missing, nodes) is None else None


def _with_reasons(request: Request, bundles: tuple[PlacedBundle, ...]) -> tuple[PlacedBundle, ...]:
    """Which operators a bundle talks to sit on its slot, on its node, or elsewhere."""
    names = [operator.name for operator in request.operators]
    partners: dict[str, set[str]] = {name: set() for name in names}
    for sender, receiver in request.streams:
        partners[names[sender]].add(names[receiver])
        partners[names[receiver]].add(names[sender])
    on_slot: dict[object, set[str]] = {}
    for bundle in bundles:
        on_slot.setdefault(bundle.slot, set()).add(bundle.operator)
        on_slot.setdefault(bundle.slot.node, set()).add(bundle.operator)

    def reason(bundle: PlacedBundle) -> str:
        slot = [name for name in names if name in partners[bundle.operator] & on_slot[bundle.slot]]
        node = [name for name in names if name in partners[bundle.operator] & on_slot[bundle.slot.node]]
        if slot:
            return f"shares the slot with {', '.join(slot)}, which it talks to"
        if node:
            return f"shares the node with {', '.join(node)}, which it talks to"
        return "fits here; whom it talks to did not fit beside it" if partners[bundle.operator] else "fits here"

    return tuple(bundle._replace(reason=reason(bundle)) for bundle in bundles)
