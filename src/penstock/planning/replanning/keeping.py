"""Keep running threads: match them with a new allocation, and place only those that are missing.

Threads of an operator are interchangeable. Running threads of a slot take over bundles of the allocation, equal sizes
first; a bundle that is larger than what runs on a slot is divided, the rest of it is missing. Running threads for which
no bundle is left stop. Missing bundles go on slots the pipeline has if there is room; its own placer
places the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import Refusal
from penstock.base.tolerance import TOLERANCE
from penstock.cluster.topology import Cluster, Node, Slot
from penstock.planning.allocation.contract import ThreadBundle
from penstock.planning.placement.constraints import ask
from penstock.planning.placement.contract import Room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Dimension
    from penstock.planning.allocation.contract import Allocation
    from penstock.planning.placement.contract import Beside, Placement, PlacementRequest, Placer

Rows = dict[Slot, dict[str, int]]
"""Threads by operator on every used slot."""
Bundles = dict[str, list[ThreadBundle]]

MAX_ROUNDS = 12
"""Times a placer that overlooks a hard limit is asked for what did not fit."""


@dataclass
class KeptPlan:
    """Running threads that stay, what their bundles use of each slot (cpu, memory), and the bundles to start."""

    rows: Rows
    used: dict[Slot, tuple[float, float]] = field(default_factory=dict)
    missing: Bundles = field(default_factory=dict)

    def fill(self, room: Callable[[Slot, str, int], bool]) -> None:
        """Start missing bundles beside what runs, on the first slot with room; `room` checks and takes it."""
        for name, bundles in self.missing.items():
            left = []
            for bundle in bundles:
                slot = next(
                    (slot for slot in self.rows if self._fits(slot, bundle) and room(slot, name, bundle.threads)), None
                )
                if slot is None:
                    left.append(bundle)
                    continue
                self._add(slot, name, bundle)
            self.missing[name] = left
        self.missing = {name: bundles for name, bundles in self.missing.items() if bundles}

    def _fits(self, slot: Slot, bundle: ThreadBundle) -> bool:
        cpu, memory = self.used.get(slot, (0.0, 0.0))
        limit = 1 + TOLERANCE
        return not bundle.exclusive and cpu + bundle.cpu <= limit and memory + bundle.memory <= limit

    def _add(self, slot: Slot, name: str, bundle: ThreadBundle) -> None:
        row = self.rows.setdefault(slot, {})
        row[name] = row.get(name, 0) + bundle.threads
        cpu, memory = self.used.get(slot, (0.0, 0.0))
        full = 1.0 if bundle.exclusive else 0.0
        self.used[slot] = (cpu + max(bundle.cpu, full), memory + max(bundle.memory, full))


def keep(running: Mapping[Slot, Mapping[str, int]], allocation: Allocation) -> KeptPlan:
    """Match running threads with the bundles of an allocation."""
    kept = KeptPlan({})
    for operator in allocation.operators:
        wanted = Counter({bundle: 0 for _, bundle in operator.bundles})
        for count, bundle in operator.bundles:
            wanted[bundle] += count
        hosts = {slot: row[operator.name] for slot, row in running.items() if row.get(operator.name)}
        # equal sizes first, so that no bundle is divided that runs as it is
        for slot, threads in sorted(hosts.items(), key=lambda host: -host[1]):
            if (same := next((b for b, left in wanted.items() if left and b.threads == threads), None)) is not None:
                wanted[same] -= 1
                kept._add(slot, operator.name, same)
                del hosts[slot]
        for slot, threads in sorted(hosts.items(), key=lambda host: -host[1]):
            for bundle in _taken_over(wanted, threads):
                kept._add(slot, operator.name, bundle)
        missing = [bundle for bundle, left in wanted.items() for _ in range(left)]
        if missing:
            kept.missing[operator.name] = missing
    # in the order of the slots that run, so that the first of equal ones is always the same
    kept.rows = {slot: kept.rows[slot] for slot in running if slot in kept.rows}
    return kept


def _taken_over(wanted: Counter[ThreadBundle], threads: int) -> Iterator[ThreadBundle]:
    """Take bundles for running threads: the largest that fit, then a part of the smallest that does not."""
    while threads:
        whole = max((b for b, left in wanted.items() if left and b.threads <= threads), key=_size, default=None)
        if whole is None:
            break
        times = min(wanted[whole], threads // whole.threads)
        wanted[whole] -= times
        threads -= times * whole.threads
        yield part_of_bundle(whole, times * whole.threads) if times > 1 else whole
    larger = min((b for b, left in wanted.items() if left), key=_size, default=None) if threads else None
    if larger is not None:
        wanted[larger] -= 1
        wanted[part_of_bundle(larger, larger.threads - threads)] += 1
        yield part_of_bundle(larger, threads)


def _size(bundle: ThreadBundle) -> int:
    return bundle.threads


def part_of_bundle(bundle: ThreadBundle, threads: int) -> ThreadBundle:
    """Return a bundle of `threads` threads with their share of the needs of the whole."""
    share = threads / bundle.threads
    return replace(bundle, threads=threads, cpu=bundle.cpu * share, memory=bundle.memory * share)


def part_of_request(request: PlacementRequest, bundles: Bundles, beside: Beside | None = None) -> PlacementRequest:
    """Return the request for some of its threads alone; operators without an input among them count as sources.

    `beside` has the threads that stay.
    """
    position = {o.name: index for index, o in enumerate(request.operators)}
    chosen = [name for name in position if bundles.get(name)]
    new = {position[name]: index for index, name in enumerate(chosen)}
    operators = tuple(
        replace(
            request.operators[position[name]],
            threads=sum(bundle.threads for bundle in bundles[name]),
            bundles=tuple((count, bundle) for bundle, count in Counter(bundles[name]).items()),
        )
        for name in chosen
    )
    inside = [index for index, (a, b) in enumerate(request.streams) if a in new and b in new]
    streams = tuple((new[request.streams[i][0]], new[request.streams[i][1]]) for i in inside)
    receivers = {receiver for sender, receiver in streams if sender != receiver}
    sources = tuple(index for index in range(len(chosen)) if index not in receivers) or (0,)
    return replace(
        request,
        operators=operators,
        streams=streams,
        sources=sources,
        rates=tuple(request.rates[i] for i in inside) if request.rates else (),
        traffic=tuple(request.traffic[i] for i in inside) if request.traffic else (),
        current={},
        patterns=(),
        beside=beside or request.beside,
    )


def renumbered(rows: Rows, running: Rows) -> Rows:
    """Exchange slots within nodes so that more threads are on the slot they run on."""
    out: Rows = {}
    for node in dict.fromkeys(slot.node for slot in rows):
        new = [slot for slot in rows if slot.node == node]
        old = [slot for slot in running if slot.node == node]
        pairs = sorted(
            (
                (-sum(min(n, running[b].get(name, 0)) for name, n in rows[a].items()), i, j)
                for i, a in enumerate(new)
                for j, b in enumerate(old)
            ),
        )
        target: dict[int, Slot] = {}
        used: set[Slot] = set()
        for common, i, j in pairs:
            if common < 0 and i not in target and old[j] not in used:
                target[i] = old[j]
                used.add(old[j])
        spare = [slot for slot in dict.fromkeys([*new, *old]) if slot not in used]
        for i, slot in enumerate(new):
            if i not in target:
                target[i] = slot if slot in spare else spare[0]
                spare.remove(target[i])
            out[target[i]] = rows[slot]
    return out


class Offer:
    """Nodes with their free amounts, shown to a placer as a cluster of its own whose slots are the free ones."""

    def __init__(
        self,
        nodes: Sequence[Node],
        free: NDArray[np.float64],
        numbers: Sequence[Sequence[int]],
        dimensions: tuple[Dimension, ...],
        floor: Sequence[float] = (),
    ) -> None:
        """`floor`: what every slot takes at least of its node, by dimension."""
        self._nodes = list(nodes)
        self._floor = np.array(floor or [0.0] * len(dimensions))
        self._dimensions = dimensions
        self._hard = [axis for axis, dimension in enumerate(dimensions) if dimension.hard]
        self._free = np.maximum(free, 0.0).reshape(len(nodes), len(dimensions))
        self._numbers = [list(own) for own in numbers]
        self._open = [bool(own) for own in numbers]
        self.size = sum(map(len, self._numbers))

    def _cluster(self) -> tuple[Cluster, dict[str, int]]:
        shown = [index for index in range(len(self._nodes)) if self._open[index] and self._numbers[index]]
        nodes = tuple(
            replace(
                self._nodes[index],
                slots=len(self._numbers[index]),
                capacity=dict(zip((d.name for d in self._dimensions), self._free[index].tolist(), strict=True)),
            )
            for index in shown
        )
        return Cluster(nodes, self._dimensions), {self._nodes[index].name: index for index in shown}

    def _shown(self, current: Mapping[str, Mapping[Slot, int]]) -> dict[str, dict[Slot, int]]:
        """Return the threads that run, on the slots of the cluster that is shown: slots of a node are alike."""
        held = sorted({slot for row in current.values() for slot in row})
        number = {self._nodes[index].name: len(own) for index, own in enumerate(self._numbers) if self._open[index]}
        places: dict[Slot, Slot] = {}
        taken: Counter[str] = Counter()
        for slot in held:
            if taken[slot.node] < number.get(slot.node, 0):
                places[slot] = Slot(slot.node, taken[slot.node])
                taken[slot.node] += 1
        return {
            name: {places[slot]: threads for slot, threads in row.items() if slot in places}
            for name, row in current.items()
        }

    def place(self, placer: Placer, request: PlacementRequest, *, own_slots: bool = False) -> Rows | Refusal:
        """Return where every thread goes, all of them or a refusal; no placer exceeds a hard limit.

        A placer that overlooks memory is asked again for the threads that did not fit, on the nodes that have room.
        With `own_slots` every thread gets a slot of its own.
        """
        rows: Rows = {}
        for _ in range(MAX_ROUNDS):
            cluster, index = self._cluster()
            if not cluster.nodes:
                break
            shown = replace(request, current=self._shown(request.current)) if request.current else request
            answer = ask(placer, shown, Room(cluster, slot_memory_shared=True))
            if isinstance(answer, Refusal):
                return answer
            left = self._accept(answer, request, index, rows, own_slots=own_slots)
            if not left:
                return rows
            request = part_of_request(request, left)
        more = ", ".join(f"{operator.threads} of '{operator.name}'" for operator in request.operators)
        return Refusal(placer.name, (), notes=(f"no room within memory and slots for {more} threads",))

    def _accept(
        self, answer: Placement, request: PlacementRequest, index: Mapping[str, int], rows: Rows, *, own_slots: bool
    ) -> Bundles:
        """Take the threads that keep the hard limits of their node, close the other nodes; return the threads left."""
        demands = {operator.name: operator.demand for operator in request.operators}
        bundles = {
            o.name: next((b for _, b in o.bundles), None) or ThreadBundle(1, 0.0, 0.0) for o in request.operators
        }
        left: Bundles = {}
        taken: dict[int, list[int]] = {}
        on: dict[Slot, NDArray[np.float64]] = {}
        for name, threads, slot, _ in answer.bundles:
            node = index[slot.node]
            demand = np.array(demands[name])
            free = self._free[node]
            # a slot takes max(floor, sum of its threads): the rest of its floor is free to its own threads
            has = on.get(slot, np.zeros(len(demand)))
            took = np.maximum(has, self._floor) if slot in on else has
            room = free + took - has
            fit = threads if slot in on or (room * (1 + TOLERANCE) + TOLERANCE >= self._floor)[self._hard].all() else 0
            for axis in self._hard:
                if demand[axis] > 0:
                    fit = min(fit, int((room[axis] * (1 + TOLERANCE) + TOLERANCE) / demand[axis]))
            if own_slots:
                fit = min(fit, len(self._numbers[node]) - len(taken.get(node, ())))
            if fit < threads:
                self._open[node] = False
                left.setdefault(name, []).append(part_of_bundle(bundles[name], threads - fit))
            if fit <= 0:
                continue
            if own_slots:
                free -= fit * np.maximum(demand, self._floor)
            else:
                on[slot] = has + fit * demand
                free -= np.maximum(on[slot], self._floor) - took
            held = taken.setdefault(node, [])
            for count, number in (
                [(1, len(held) + added) for added in range(fit)] if own_slots else [(fit, slot.number)]
            ):
                held.append(number)
                row = rows.setdefault(Slot(slot.node, self._numbers[node][number]), {})
                row[name] = row.get(name, 0) + count
        for node, used in taken.items():
            own = set(used)
            self._numbers[node] = [n for position, n in enumerate(self._numbers[node]) if position not in own]
        return left
