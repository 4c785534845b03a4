"""Which nodes a pipeline should live on: one that takes it whole, else one rack, else the fewest racks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.placement.slots import TOLERANCE, slot_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.placement.compact_graph import Talk
    from penstock.placement.contract import Request, Room

NODES_TRIED = 2
RACKS_TRIED = 3
LARGE_NODE_WORTH = 0.02
"""How many streams, per squared size in nodes, make a pipeline want large nodes."""
SCRAP = 0.2
"""Below this part of the largest node, what a node has left is not worth spreading to."""
SPARE = 0.03
"""Room to have beyond the bare sum when several racks are taken."""


def node_choices(request: Request, room: Room, talk: Talk) -> Iterator[NDArray[np.int64]]:
    """Sets of nodes to try, each in the order in which to open them, the most promising set first."""
    share = _share(request, room, talk, room.free, room.slots - room.slots_taken)
    empty = _share(request, room, talk, room.capacity, room.slots)
    whole = np.flatnonzero(share >= 1)
    if len(whole):
        yield from whole[np.argsort(empty[whole] + share[whole], kind="stable")[:NODES_TRIED]][:, None]
    # D is the pipeline's size in nodes of the largest kind. Nodes of a fraction c of that size let its streams meet
    # in about c/D of their pairs, and use up D x c of what makes large nodes worth having for others. The first grows
    # with the number of streams, the second with D^2, both in c: it wants either large nodes or small ones.
    size = 1.0 / max(float(empty.max(initial=0.0)), 1e-300)
    modest = len(request.streams) < LARGE_NODE_WORTH * size * size
    share[share < SCRAP * float(empty.max(initial=0.0))] *= 0.0 if modest else 1.0
    order = np.lexsort((share if modest else -share, room.rack))
    order = order[share[order] > 0]
    if not len(order):
        return
    starts = np.flatnonzero(np.diff(room.rack[order], prepend=-1))
    ends = np.append(starts[1:], len(order))
    part = np.minimum(share[order], 1.0)
    sums = np.add.reduceat(part, starts)
    # What each node would take of the pipeline if its rack were filled in order, and in how many pairs it meets there.
    before = np.cumsum(part) - part
    before -= np.repeat(before[starts], ends - starts)
    met = np.add.reduceat(np.clip(1.0 - before, 0.0, part) ** 2, starts).round(6)
    ranked = np.lexsort((sums, met if modest else -met))
    for rack in ranked[sums[ranked] >= 1.0][:RACKS_TRIED].tolist():
        yield order[starts[rack] : ends[rack]]
    racks = np.split(order, starts[1:])
    yield from _several(racks, sums.tolist(), np.maximum.reduceat(part, starts).tolist(), modest=modest)


def _several(
    racks: list[NDArray[np.int64]], sums: list[float], node: list[float], *, modest: bool
) -> Iterator[NDArray[np.int64]]:
    """Nodes of several racks: the fewest racks that suffice; if modest, up to a fifth more racks of small
    nodes."""
    if sum(sums) < 1.0:
        return
    largest = sorted(range(len(racks)), key=lambda r: (-sums[r], r))
    smallest = sorted(range(len(racks)), key=lambda r: (node[r], r))
    reach = np.cumsum([sums[r] for r in largest])
    fewest = int(np.searchsorted(reach, 1.0 + SPARE)) + 1
    if modest:
        allowed = fewest + fewest // 5
        for small in range(allowed, 0, -1):
            chosen = smallest[:small]
            chosen += [r for r in largest if r not in chosen][: allowed - small]
            if sum(sums[r] for r in chosen) >= 1.0 + SPARE:
                yield np.concatenate([racks[r] for r in chosen])
                break
    for count in sorted({fewest, fewest + fewest // 5 + 1, len(racks)}):
        if count <= len(racks):
            yield np.concatenate([racks[r] for r in largest[:count]])


def _share(
    request: Request, room: Room, talk: Talk, free: NDArray[np.float64], slots: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The part of the whole pipeline each node has room for, if its operators were mixed evenly."""
    share: NDArray[np.float64] = np.where(slots > 0, np.inf, 0.0)
    for axis, amount in enumerate(talk.total.tolist()):
        if amount > 0:
            share = np.minimum(share, free[:, axis] / amount)
    if room.memory_axis is not None and talk.total[room.memory_axis] > 0:
        share = np.minimum(share, slot_limit(request, room) * slots / talk.total[room.memory_axis])
    # Whole threads only, for the operator that takes the most.
    of_total = talk.demand / np.where(talk.total > 0, talk.total, np.inf)
    main = int(np.argmax(of_total.max(axis=1) * talk.threads))
    threads = max(talk.threads[main], 1)
    for axis, amount in enumerate(talk.demand[main].tolist()):
        if amount > 0:
            share = np.minimum(share, np.floor(free[:, axis] * ((1 + TOLERANCE) / amount)) / threads)
    return np.maximum(share, 0.0)
