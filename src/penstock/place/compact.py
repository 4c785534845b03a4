"""Compact: no overload in any dimension, and the least network cost within that.

A pipeline goes to one node if one can take it whole, else into one rack, else into as few racks as possible. Inside,
operators that talk are kept together (`compact_graph`), nodes are filled (`compact_fill`) and threads are moved and
swapped while the cost falls (`compact_search`). The threads of each node are then dealt to slots the same way. Where
room is too fragmented for that, threads are placed first fit, the largest first, before the pipeline is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.place.board import Board, Fits
from penstock.place.compact_fill import fill
from penstock.place.compact_graph import Talk
from penstock.place.compact_search import Search
from penstock.place.compact_slots import Layout
from penstock.place.contract import Placement
from penstock.place.refusals import no_node
from penstock.place.slots import bundled, slot_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.errors import Refusal
    from penstock.place.contract import Request, Room

RACKS_TRIED = 3
SEARCH_CELLS = 6000
"""Bins x operators up to which local search runs; beyond, shares per bin are small and so is what it could gain."""
SEARCH_TRIES = 1500


@dataclass(frozen=True, slots=True)
class Compact:
    name: ClassVar[str] = "compact"
    whole_cluster: ClassVar[bool] = True

    def place(self, request: Request, room: Room) -> Placement | Refusal:
        talk = Talk(request, len(room.dimensions))
        layout: Layout | None = None
        for nodes in _choices(request, room, talk):
            layout = _within(request, room, talk, nodes)
            if layout is not None:
                break
        return Placement(request.pipeline, self.name, layout.bundles(request)) if layout else None


def _choices(request: Request, room: Room, talk: Talk) -> Iterator[NDArray[np.int64]]:
    """Sets of nodes to try, the most promising first."""
    share = _share(request, room, talk)
    fullness = (room.free / np.maximum(room.capacity.max(axis=0), 1e-300)).sum(axis=1)
    whole = np.flatnonzero(share >= 1)
    if len(whole):
        yield whole[np.argsort(fullness[whole], kind="stable")[:1]]
    order = np.lexsort((np.arange(len(share)), -share, room.rack))
    racks = []
    for rack in range(int(room.rack.max(initial=-1)) + 1):
        nodes = order[room.rack[order] == rack]
        reach = np.cumsum(share[nodes])
        if len(reach) and reach[-1] >= 1:
            racks.append((int(np.searchsorted(reach, 1.0)), float(reach[-1]), rack, nodes))
    racks.sort(key=lambda entry: entry[:3])
    for _, _, _, nodes in racks[:RACKS_TRIED]:
        yield nodes[share[nodes] > 0]
    total = np.bincount(room.rack, weights=share)
    chosen = []
    covered = 0.0
    for rack in np.argsort(-total, kind="stable").tolist():
        nodes = order[room.rack[order] == rack]
        chosen.append(nodes[share[nodes] > 0])
        covered += total[rack]
        if covered >= 1.0:
            yield np.concatenate(chosen)


def _share(request: Request, room: Room, talk: Talk) -> NDArray[np.float64]:
    """The part of the whole pipeline each node has room for, if its operators were mixed evenly."""
    slots = room.slots - room.slots_taken
    share = np.where(slots > 0, np.inf, 0.0)
    for axis, amount in enumerate(talk.total.tolist()):
        if amount > 0:
            share = np.minimum(share, np.maximum(room.free[:, axis], 0.0) / amount)
    if room.memory_axis is not None and talk.total[room.memory_axis] > 0:
        limit = slot_limit(request, room) * slots
        share = np.minimum(share, limit / talk.total[room.memory_axis])
    return np.asarray(share)


def _within(request: Request, room: Room, talk: Talk, nodes: NDArray[np.int64]) -> Layout | None:
    """Place the pipeline on some of `nodes`, opened in their order."""
    layout = Layout(request, room, talk)
    demand, offer = layout.node_demand(), layout.node_room(nodes)
    held, missing = fill(talk, talk.threads, demand, offer)
    used = np.flatnonzero(held.any(axis=1))
    if len(used) > 1 and len(used) * talk.size <= SEARCH_CELLS:
        levels = [np.arange(len(used)), np.unique(room.rack[nodes[used]], return_inverse=True)[1]]
        search = Search(talk, demand, offer[used], held[used], levels)
        search.run(SEARCH_TRIES)
        held[used] = search.held
    for bin_ in used.tolist():
        if held[bin_].any():
            for operator, count in enumerate(layout.deal(int(nodes[bin_]), held[bin_])):
                missing[operator] += count
    return layout if layout.first_fit(missing, nodes) else None
