"""Which bundle of the receiving operator gets a tuple: one function per grouping.

Dealing is the same whenever the same tuples of the same ticket are dealt again.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from penstock.dataflow.pipeline import Grouping
from penstock.spark.tuples import Tuple, mixed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GOLDEN = 0.6180339887498949
"""Multiples of it, without their whole part, are spread evenly: leftovers do not always fall to the same bundle."""

THREAD_FIELD = "thread"
"""With grouping direct, the field of the payload that names the thread (from 0)."""


@dataclass(frozen=True, slots=True)
class Target:
    """One bundle of the receiving operator."""

    bundle: str
    threads: int
    able: float
    """Tuples/s it supports; any unit that is the same for all targets of a route."""
    local: bool
    """On the sender's slot."""


@dataclass(frozen=True, slots=True)
class Route:
    """One stream out of a bundle. `stream` numbers it where paths must tell it apart, else 0."""

    sender: str
    stream: int
    grouping: Grouping
    key: str | None
    targets: tuple[Target, ...]


Dealt = dict[str, list[Tuple]]
"""By bundle."""


class DirectError(ValueError):
    """A tuple that should name its thread does not."""


def deal(items: Sequence[Tuple], route: Route, ticket: int) -> Dealt:
    if route.stream:
        items = [item.along(route.stream) for item in items]
    targets, grouping = route.targets, route.grouping
    if grouping is Grouping.ALL:
        return _to_all(items, targets)
    if grouping is Grouping.GLOBAL:
        return {targets[0].bundle: list(items)}
    if grouping in _BY_THREAD:
        return _by_thread(items, targets, _BY_THREAD[grouping](items, route))
    if grouping is Grouping.LOCAL_OR_SHUFFLE:
        targets = tuple(target for target in targets if target.local) or targets
    weights = [target.able if grouping is Grouping.SLOT_AWARE else target.threads for target in targets]
    return _in_proportion(items, targets, weights, ticket)


def _in_proportion(items: Sequence[Tuple], targets: Sequence[Target], weights: Sequence[float], ticket: int) -> Dealt:
    """Consecutive runs whose lengths follow the weights: `edge_k = floor(n * (w_1 + ... + w_k) / w + phase)`.

    The phase turns with the ticket, so that over many tickets every target gets its exact share.
    """
    if len(targets) == 1:
        return {targets[0].bundle: list(items)}
    total = sum(weights)
    phase = ticket * GOLDEN % 1.0
    edges = [min(len(items), int(len(items) * reached / total + phase)) for reached in accumulate(weights)]
    edges[-1] = len(items)
    dealt: Dealt = {}
    first = 0
    for target, last in zip(targets, edges, strict=True):
        if last > first:
            dealt[target.bundle] = list(items[first:last])
        first = max(first, last)
    return dealt


def _by_thread(items: Sequence[Tuple], targets: Sequence[Target], choices: Sequence[int]) -> Dealt:
    owners = [target.bundle for target in targets for _ in range(target.threads)]
    dealt: Dealt = {}
    for item, choice in zip(items, choices, strict=True):
        dealt.setdefault(owners[choice % len(owners)], []).append(item)
    return dealt


def _by_key(items: Sequence[Tuple], route: Route) -> list[int]:
    return [_hash(item.payload.get(route.key or "")) for item in items]


def _less_loaded_of_two(items: Sequence[Tuple], route: Route) -> list[int]:
    """Every key has two threads; each of its tuples goes to the one that got fewer of this ticket's so far."""
    threads = sum(target.threads for target in route.targets)
    got = [0] * threads
    choices = []
    for first in _by_key(items, route):
        one, other = first % threads, (first // threads) % threads
        chosen = one if got[one] <= got[other] else other
        got[chosen] += 1
        choices.append(chosen)
    return choices


def _as_named(items: Sequence[Tuple], _route: Route) -> list[int]:
    return [named_thread(item.payload) for item in items]


_BY_THREAD: dict[Grouping, Callable[[Sequence[Tuple], Route], list[int]]] = {
    Grouping.FIELDS: _by_key,
    Grouping.PARTIAL_KEY: _less_loaded_of_two,
    Grouping.DIRECT: _as_named,
}


def _to_all(items: Sequence[Tuple], targets: Sequence[Target]) -> Dealt:
    """A copy for every thread; copies get paths of their own."""
    if sum(target.threads for target in targets) == 1:
        return {targets[0].bundle: list(items)}
    dealt: Dealt = {}
    thread = 0
    for target in targets:
        copies = dealt.setdefault(target.bundle, [])
        for _ in range(target.threads):
            thread += 1
            copies += [Tuple(item.id, item.due, mixed(item.path, -thread), item.payload) for item in items]
    return dealt


def named_thread(payload: dict[str, Any]) -> int:
    thread = payload.get(THREAD_FIELD)
    if not isinstance(thread, int) or thread < 0:
        raise DirectError(f"grouping direct: expected field '{THREAD_FIELD}' with a thread from 0, found {thread!r}")
    return thread


def _hash(value: Any) -> int:
    """The same in every process."""
    return zlib.crc32(json.dumps(value, sort_keys=True, default=str).encode())
