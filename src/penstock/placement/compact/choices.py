"""Which nodes a pipeline should live on: one that takes it whole, else one rack, else the fewest racks."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE
from penstock.placement.slots import slot_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.placement.compact.graph import Talk
    from penstock.placement.contract import PlacementRequest, Room

NODES_TRIED = 2
RACKS_TRIED = 3
LARGE_NODE_WORTH = 0.02
"""How many streams, per squared size in nodes, make a pipeline want large nodes."""
SCRAP = 0.2
"""Below this part of the largest node, what a node has left is not worth spreading to."""
SPARE = 0.03
"""Room to have beyond the bare sum when several racks are taken."""


def node_choices(request: PlacementRequest, room: Room, talk: Talk) -> Iterator[NDArray[np.int64]]:
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
    worth = len(request.streams) if request.streams_worth is None else request.streams_worth
    modest = worth < LARGE_NODE_WORTH * size * size
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
    for racks in _several(sums, np.maximum.reduceat(part, starts), modest=modest):
        yield np.concatenate([order[starts[rack] : ends[rack]] for rack in racks])


def _several(sums: NDArray[np.float64], node: NDArray[np.float64], *, modest: bool) -> Iterator[list[int]]:
    """Several racks, by their number: the fewest that suffice; if modest, up to a fifth more racks of small nodes.
    `sums` is the part of the pipeline each rack has room for, `node` that of its largest node."""
    if sums.sum() < 1.0:
        return
    largest = np.argsort(-sums, kind="stable")
    fewest = int(np.searchsorted(np.cumsum(sums[largest]), 1.0 + SPARE)) + 1
    if modest:
        chosen = small_and_large(largest, sums, node, fewest + fewest // 5)
        if chosen:
            yield chosen
    for count in sorted({fewest, fewest + fewest // 5 + 1, len(sums)}):
        if count <= len(sums):
            yield largest[:count].tolist()


def small_and_large(
    largest: NDArray[np.int64], sums: NDArray[np.float64], node: NDArray[np.float64], allowed: int
) -> list[int]:
    """As many racks of small nodes as can be among `allowed` racks that suffice; the others are the largest. Empty
    where none of them may be small."""
    small_first: list[int] = np.argsort(node, kind="stable")[:allowed].tolist()
    large_first: list[int] = largest[:allowed].tolist()

    def with_large(count: int) -> list[int]:
        chosen = small_first[: allowed - count]
        taken = set(chosen)
        return chosen + [rack for rack in large_first if rack not in taken][:count]

    # A large rack in place of a small one never takes away from the sum.
    count = bisect_left(range(allowed), True, key=lambda count: bool(sums[with_large(count)].sum() >= 1.0 + SPARE))
    return with_large(count) if count < allowed else []


def _share(
    request: PlacementRequest, room: Room, talk: Talk, free: NDArray[np.float64], slots: NDArray[np.int64]
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
