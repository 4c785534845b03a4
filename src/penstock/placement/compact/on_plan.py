"""Compact placement in a plan, where a slot is an equal share of its node and takes no more than that of
anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.cluster.resources import CPU, MEMORY
from penstock.dataflow.tolerance import TOLERANCE
from penstock.placement.compact.arrange import arrange, improve
from penstock.placement.compact.layout import largest_first
from penstock.placement.refusals import no_slot
from penstock.placement.slots import bundled, slot_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.errors import Refusal
    from penstock.placement.compact.graph import Talk
    from penstock.placement.contract import PlacedBundle, PlacementRequest, Room


def place_on_slots(by: str, request: PlacementRequest, room: Room, talk: Talk) -> tuple[PlacedBundle, ...] | Refusal:
    free_slots = room.slots - room.slots_taken
    node = np.repeat(np.arange(len(free_slots)), free_slots)
    index = np.arange(len(node)) - np.repeat(np.cumsum(free_slots) - free_slots, free_slots)
    index += room.slots_taken[node]
    offer = _offer(request, room, free_slots)[node]
    _deal_whole(request, room, node, offer)
    groups = [node, room.rack[node]]
    held, missing = arrange(talk, talk.threads, talk.demand, offer, groups, spare=0)
    if _first_fit(talk, missing, offer, held) is not None:
        held = np.zeros_like(held)
        stuck = _first_fit(talk, talk.threads, offer, held)
        if stuck is not None:
            return no_slot(by, request, room, stuck, offer - held @ talk.demand, node)
        improve(talk, talk.demand, offer, held, groups)
    slots, operators = np.nonzero(held)
    counts = held[slots, operators].astype(np.int64)
    slots, operators = np.repeat(slots, counts), np.repeat(operators, counts)
    return bundled(request, room, operators, node[slots], index[slots])


def _offer(request: PlacementRequest, room: Room, free_slots: NDArray[np.int64]) -> NDArray[np.float64]:
    """What one free slot of each node may take: an equal share of the node, or of what others left of it."""
    share = room.capacity / np.maximum(room.slots, 1)[:, None]
    share = np.minimum(share, room.free.clip(min=0.0) / np.maximum(free_slots, 1)[:, None])
    if room.memory_axis is not None:
        share[:, room.memory_axis] = np.minimum(share[:, room.memory_axis], slot_limit(request, room))
    return share


def _deal_whole(request: PlacementRequest, room: Room, node: NDArray[np.int64], offer: NDArray[np.float64]) -> None:
    """Of resources beyond cpu and memory a slot gets no equal share, which might be half a GPU: the first slots of a
    node get what one thread asks for at most, as long as there is some."""
    for axis, dimension in enumerate(room.dimensions):
        unit = max((operator.demand[axis] for operator in request.operators), default=0.0)
        if dimension.name in (CPU, MEMORY) or unit <= 0:
            continue
        for position in np.unique(node):
            slots = np.flatnonzero(node == position)
            units = int(room.free[position, axis] / unit + TOLERANCE)
            offer[slots, axis] = unit * (units // len(slots) + (np.arange(len(slots)) < units % len(slots)))


def _first_fit(talk: Talk, missing: Sequence[int], offer: NDArray[np.float64], held: NDArray[np.float64]) -> int | None:
    """Add the missing threads to `held`, the largest first, each to the first slot with room. Returns the
    operator that finds none, if one does not."""
    left = offer - held @ talk.demand + TOLERANCE * offer.max(axis=0, initial=0.0)
    for operator in largest_first(talk, left, missing):
        demand = talk.demand[operator]
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = np.where(demand > 0, left / demand, float(missing[operator])).min(axis=1, initial=np.inf)
        fits = np.floor(np.clip(fits, 0.0, missing[operator]))
        taken = np.diff(np.minimum(np.cumsum(fits), missing[operator]), prepend=0.0)
        held[:, operator] += taken
        left -= taken[:, None] * demand
        if taken.sum() < missing[operator]:
            return operator
    return None
