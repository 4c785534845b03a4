"""What a world in memory is made of: a graph, its layout, processes, and those who conduct them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from penstock.cluster.topology import Slot
from penstock.engines.placed.flow import events as ev
from penstock.engines.placed.flow import instructions as do
from penstock.engines.placed.flow.bundle import BundleFlow
from penstock.engines.placed.flow.layout import Bundle, Channel, Groups, Layout, ranges
from penstock.engines.placed.flow.run import FlowRun

LINK_HOLDS = 3
GROUPS = 8
SOURCE = "source"


@dataclass(frozen=True)
class Graph:
    """Operators by name with the streams (number, receiver) they send; those without are sinks."""

    streams: tuple[tuple[str, str], ...]
    sources: tuple[str, ...]

    @property
    def operators(self) -> list[str]:
        return list(dict.fromkeys([*self.sources, *(end for stream in self.streams for end in stream)]))

    def out_of(self, operator: str) -> list[int]:
        return [number for number, (sender, _) in enumerate(self.streams) if sender == operator]

    @property
    def sinks(self) -> list[str]:
        return [name for name in self.operators if not self.out_of(name)]

    def paths(self, operator: str, source: str) -> int:
        """Ways from a source to an operator: so many deliveries of each of its tuples."""
        if operator == source:
            return 1
        return sum(self.paths(sender, source) for sender, receiver in self.streams if receiver == operator)


MEMORIES = (None, None, 600)


def lay_out(graph: Graph, where: dict[str, list[Slot]], plan: str) -> Layout:
    """Every operator a bundle on each of its slots; sources have one. The memory of a slot differs by plan."""
    names = {op: [f"{op}@{slot}" for slot in slots] for op, slots in where.items()}
    bundles = []
    for op, slots in where.items():
        for slot, name, (first, end) in zip(slots, names[op], ranges([1] * len(slots), GROUPS), strict=True):
            sources = (op,) if op in graph.sources else ()
            memory = MEMORIES[crc32(f"{plan} {slot}".encode()) % len(MEMORIES)]
            bundles.append(Bundle(name, slot, (op,), (1,), sources, (Groups(op, first, end),), memory))
    channels = [
        Channel(number, sender, receiver)
        for number, (a, b) in enumerate(graph.streams)
        for sender in names[a]
        for receiver in names[b]
    ]
    return Layout(plan, tuple(bundles), tuple(channels))


Row = tuple[str, int, tuple[int, ...], int]
"""Source, id, path, and something that is different whenever it is computed again."""


class Broken:
    """A link's end: whoever reads it finds out."""


@dataclass
class Process:
    """What a Spark task would be."""

    bundle: Bundle
    start: int
    connection: int
    office: Office
    flow: BundleFlow = field(default_factory=BundleFlow)
    orders: deque[Any] = field(default_factory=deque)
    alive: bool = True
    frozen: bool = False
    form: do.Form | None = None
    inputs: dict[Channel, deque[Any]] = field(default_factory=dict)
    outputs: dict[Channel, deque[Any] | None] = field(default_factory=dict)
    unsent: deque[tuple[Channel, Any]] = field(default_factory=deque)
    rows: list[Row] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    offset: int = 0


@dataclass
class Office:
    """One conductor: its machine, its processes, and the events on their way to it."""

    number: int
    run: FlowRun
    processes: dict[int, Process] = field(default_factory=dict)
    awaited: list[do.StartBundle] = field(default_factory=list)
    inbox: list[deque[ev.Event]] = field(default_factory=list)
    write: do.WriteCommit | None = None
    answers: dict[str, str | None] = field(default_factory=dict)
    dead: bool = False
    stopped: do.Stop | None = None
    said: list[str] = field(default_factory=list)
