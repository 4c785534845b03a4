"""Compact: no overload in any dimension, and the least network cost within that.

A pipeline goes to one node if one can take it whole, else into one rack, else into as few racks as possible.
Inside, operators that talk are kept together (`graph`), nodes are filled (`fill`) and threads
are moved and swapped while the cost falls (`search`). The threads of each node are then dealt to
slots the same way. Where room is too fragmented for that, threads are placed first fit, the largest first,
and at last thread by thread with moves, before the pipeline is refused; so is a pipeline whose constraints would be
broken otherwise. On a whole cluster pipelines are placed together: `penstock.planning.placement.group_placement`.
"""

from __future__ import annotations

from bisect import bisect_left
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.base.errors import Refusal
from penstock.base.files import Share  # noqa: TC001 - read when options are validated
from penstock.base.tolerance import TOLERANCE, settled
from penstock.cluster.topology import CPU, MEMORY
from penstock.planning.placement.board import Board, no_node, no_slot
from penstock.planning.placement.communication import Talk, blended, stream_weights
from penstock.planning.placement.constraints import EVERY_CONSTRAINT, Constraint, asked, constrained, kept, kept_out
from penstock.planning.placement.contract import Placement
from penstock.planning.placement.insertion import STEPS, Effort, Inserter, scarcity
from penstock.planning.placement.ledger import Ledger
from penstock.planning.placement.placers.compact_layout import NodeLayout, arrange, improve, largest_first
from penstock.planning.placement.slots import bundled, slot_limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.planning.placement.contract import PlacedBundle, PlacementRequest, Room
    from penstock.planning.placement.insertion import Stuck


# Compact placement in a plan: a slot is an equal share of its node and takes no more than that of any resource.


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
    """Return the max amounts one free slot of each node takes: an equal share of the node, or of its remainder."""
    share = room.capacity / np.maximum(room.slots, 1)[:, None]
    share = np.minimum(share, room.free.clip(min=0.0) / np.maximum(free_slots, 1)[:, None])
    if room.memory_axis is not None:
        share[:, room.memory_axis] = np.minimum(share[:, room.memory_axis], slot_limit(request, room))
    return share


def _deal_whole(request: PlacementRequest, room: Room, node: NDArray[np.int64], offer: NDArray[np.float64]) -> None:
    """Offer resources beyond cpu and memory whole. A slot gets no equal share of them, which might be half a GPU: the
    first slots of a node get the max demand of one thread, until none is left."""
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


# A pipeline placed thread by thread: within its constraints, or where room is too fragmented for anything else.
#
# The largest threads go first, each near those it talks to, and threads of the same pipeline move out of the way of one
# that finds no room (`penstock.planning.placement.repair`).


def place_carefully(by: str, request: PlacementRequest, room: Room) -> tuple[PlacedBundle, ...] | Refusal:
    ledger = Ledger(room, [request])
    threads = np.array([operator.threads for operator in request.operators], dtype=float)
    inserter = Inserter(ledger, scarcity(ledger, threads @ ledger.demand))
    if inserter.insert(0, Effort(STEPS), close=True):
        return ledger.placements([0], by)[0].bundles
    return _refusal(by, request, room, inserter.stuck) if inserter.stuck else _too_much(by, request, room)


def _too_much(by: str, request: PlacementRequest, room: Room) -> Refusal:
    """Return the refusal for a demand above the total remainder, naming the operator that needs the most of the scarce
    resource."""
    board = Board(request, room)
    needs = np.array([np.multiply(o.demand, o.threads) for o in request.operators])
    short = int(np.argmax(needs.sum(axis=0) / np.maximum(room.free.clip(min=0.0).sum(axis=0), 1e-300)))
    return no_node(by, request, board, int(np.argmax(needs[:, short])), range(len(room.dimensions)))


def _refusal(by: str, request: PlacementRequest, room: Room, stuck: Stuck) -> Refusal:
    if not stuck.may_enter.any():
        return kept_out(by, request, room, stuck.operator)
    part = room.only(stuck.may_enter)
    board = Board(request, part)
    board.free = stuck.free[stuck.may_enter].T
    board.largest = np.where(stuck.free_slots[stuck.may_enter] > 0, slot_limit(request, part), -np.inf)
    refusal = no_node(by, request, board, stuck.operator, range(len(room.dimensions)))
    if all(shortage.offered >= shortage.needed for shortage in refusal.shortages):
        name = request.operators[stuck.operator].name
        why = "no slot takes one more thread with what its pipeline shares, or keeps apart, on slots"
        return replace(refusal, shortages=(), notes=(f"operator '{name}': {why}",))
    return refusal


# Choice of nodes: one that takes the whole pipeline, else one rack, else as few racks as possible.


NODES_TRIED = 2
RACKS_TRIED = 3
LARGE_NODE_WORTH = 0.02
"""Streams, per squared size in nodes, above which a pipeline prefers large nodes."""
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
    # Part of the pipeline each node takes if its rack is filled in order, and the share of pairs that meet there.
    before = np.cumsum(part) - part
    before -= np.repeat(before[starts], ends - starts)
    met = np.add.reduceat(np.clip(1.0 - before, 0.0, part) ** 2, starts).round(6)
    ranked = np.lexsort((sums, met if modest else -met))
    for rack in ranked[sums[ranked] >= 1.0][:RACKS_TRIED].tolist():
        yield order[starts[rack] : ends[rack]]
    for racks in _several(sums, np.maximum.reduceat(part, starts), modest=modest):
        yield np.concatenate([order[starts[rack] : ends[rack]] for rack in racks])


def _several(sums: NDArray[np.float64], node: NDArray[np.float64], *, modest: bool) -> Iterator[list[int]]:
    """Yield sets of several racks by their numbers: the smallest set that suffices; if modest, up to a fifth more racks
    of small nodes. `sums` is the part of the pipeline each rack has room for, `node` that of its largest node."""
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
    """Return the largest number of racks of small nodes among `allowed` racks that suffice; the others are the largest.
    Empty if none of them may be small."""
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
    """Part of a stream's weight that depends on its volume (bytes/s, tuples/s, pairs of threads); the rest is the same
    for all. Of 0.1 to 0.9 the default lowers the cost weighted by thread pairs about as far as higher values do, and
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
        """Place without regard to constraints, if the result keeps them: limits are often wide. Preferences would be
        lost."""
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
