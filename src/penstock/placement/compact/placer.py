"""Compact: no overload in any dimension, and the least network cost within that.

A pipeline goes to one node if one can take it whole, else into one rack, else into as few racks as possible.
Inside, operators that talk are kept together (`graph`), nodes are filled (`fill`) and threads
are moved and swapped while the cost falls (`search`). The threads of each node are then dealt to
slots the same way. Where room is too fragmented for that, threads are placed first fit, the largest first,
and at last thread by thread with moves, before the pipeline is refused; so is a pipeline whose constraints would be
broken otherwise. On a whole cluster pipelines are placed together: `penstock.placement.repair.together`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.dataflow.tolerance import settled
from penstock.errors import Refusal
from penstock.placement.board import Board
from penstock.placement.compact.arrange import arrange
from penstock.placement.compact.careful import place_carefully
from penstock.placement.compact.choices import node_choices
from penstock.placement.compact.graph import Talk, blended
from penstock.placement.compact.layout import NodeLayout
from penstock.placement.compact.on_plan import place_on_slots
from penstock.placement.constraints.check import kept
from penstock.placement.constraints.where import EVERY_CONSTRAINT, Constraint, asked, constrained
from penstock.placement.contract import Placement
from penstock.placement.refusals import no_node
from penstock.placement.weights import stream_weights
from penstock.registry import Share  # noqa: TC001 - read when options are validated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.placement.contract import PlacedBundle, PlacementRequest, Room


@dataclass(frozen=True, slots=True)
class Compact:
    """All of a pipeline within every limit, soft ones too, or a refusal. In a plan a slot is a share of its
    node, and no slot takes more than its share of anything."""

    name: ClassVar[str] = "compact"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True
    keeps: ClassVar[frozenset[Constraint]] = EVERY_CONSTRAINT
    repairs: ClassVar[bool] = True

    by_weight: Share = 0.3
    """How much of a stream's weight goes with what passes through it (bytes/s, tuples/s, pairs of threads); the rest is
    the same for all. Of 0.1 to 0.9 the default lowers the cost weighted by thread pairs about as far as more does, and
    the mean over streams hardly rises."""

    def weighing(self, part: float) -> Compact:
        return replace(self, by_weight=part)

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        room = _settled(room)
        answer = self._within_constraints(request, room) if constrained(request, room) else self._free(request, room)
        if isinstance(answer, Refusal):
            return answer
        bundles = _with_reasons(request, answer) if request.explain else answer
        return Placement(request.pipeline, self.name, bundles)

    def _within_constraints(self, request: PlacementRequest, room: Room) -> tuple[PlacedBundle, ...] | Refusal:
        """As if there were no constraints, where that keeps them: limits are often wide. Preferences would be lost."""
        if not room.slot_memory_shared and Constraint.PREFERRED_LABELS not in dict(asked(request)):
            answer = self._free(request, room)
            if not isinstance(answer, Refusal) and kept(request, Placement(request.pipeline, self.name, answer), room):
                return answer
        return place_carefully(self.name, request, room)

    def _free(self, request: PlacementRequest, room: Room) -> tuple[PlacedBundle, ...] | Refusal:
        if room.slot_memory_shared:
            return place_on_slots(self.name, request, room, Talk(request, len(room.dimensions)))
        talk = Talk(request, len(room.dimensions), blended(stream_weights(request), self.by_weight))
        return self._place_on_nodes(request, room, talk)

    def _place_on_nodes(self, request: PlacementRequest, room: Room, talk: Talk) -> tuple[PlacedBundle, ...] | Refusal:
        for nodes in node_choices(request, room, talk) if request.threads else ():
            layout = _within(request, room, talk, nodes)
            if layout is not None:
                return layout.bundles(request)
        layout = NodeLayout(request, room, talk)
        stuck = layout.first_fit(talk.threads, _roomiest_racks_first(room))
        if stuck is None:
            return layout.bundles(request)
        careful = place_carefully(self.name, request, room)
        if not isinstance(careful, Refusal):
            return careful
        board = Board(request, room)
        board.free, board.largest = layout.free.T, layout.largest()
        return no_node(self.name, request, board, stuck, range(len(room.dimensions)))


def _settled(room: Room) -> Room:
    """The search below compares sums everywhere: it starts from numbers that noise does not reach."""
    other = copy(room)
    other.capacity, other.slot_memory = room.settled_limits
    other.free = settled(room.free)
    return other


def _roomiest_racks_first(room: Room) -> NDArray[np.int64]:
    share = (room.free / np.maximum(room.capacity.sum(axis=0), 1e-300)).sum(axis=1)
    return np.lexsort((-share, -np.bincount(room.rack, weights=share)[room.rack])).astype(np.int64)


def _within(request: PlacementRequest, room: Room, talk: Talk, nodes: NDArray[np.int64]) -> NodeLayout | None:
    """Place the pipeline on some of `nodes`, opened in their order."""
    layout = NodeLayout(request, room, talk)
    demand, offer = layout.node_demand(), layout.node_room(nodes)
    held, missing = arrange(talk, talk.threads, demand, offer, [room.rack[nodes]], spare=0)
    used = np.flatnonzero(held.any(axis=1))
    for bin_ in used.tolist():
        if held[bin_].any():
            for operator, count in enumerate(layout.deal(int(nodes[bin_]), held[bin_])):
                missing[operator] += count
    return layout if layout.first_fit(missing, nodes) is None else None


def _with_reasons(request: PlacementRequest, bundles: tuple[PlacedBundle, ...]) -> tuple[PlacedBundle, ...]:
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
