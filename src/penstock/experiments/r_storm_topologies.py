"""The topologies of R-Storm's evaluation. The document draws them (Figs 7 and 11) and says nothing of their threads,
costs and demands: those are chosen here, and every choice is told with the results (`CHOICES`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.experiments.declared import Declared, Topology, chain, racked_cluster

if TYPE_CHECKING:
    from penstock.cluster.topology import Cluster

CORES, MEMORY_MB, BANDWIDTH_MBPS, RACKS = 1.0, 2048.0, 100.0, 2
"""A machine of section 6.1."""
SAME_NODE_MS = 0.05
RACK_MS = 2.0
"""Half of the round trip of 4 ms between the racks (section 6.1)."""
IN_RACK_MS = 3.2
"""One hop between nodes of a rack, through the messaging layers of both. Not stated; calibrated: with it Linear bound
by the network comes to the gain of Fig 8a."""
PENDING_PER_SPOUT_THREAD = 2

CHOICES = (
    "Shapes, threads, costs, demands and tuples in flight are not in the text. Linear: a spout and three bolts in a "
    "row; "
    "Diamond: a spout, three bolts side by side, a sink; Star: two spouts, a centre, two sinks; PageLoad: a row of "
    "seven "
    "operators; Processing: eight, with two branches after the second.",
    "Network bound and Yahoo: 12 threads per operator, 0.05 ms of CPU a tuple, 100 bytes, declared 10 points and 170 "
    "MB "
    f"a thread; {PENDING_PER_SPOUT_THREAD} tuples in flight per spout thread.",
    "CPU bound: a tuple takes a thread 10 ms, half of that on the processor; declared are 50 points and 1024 MB a "
    "thread, "
    "the document's own example of its interface (section 5.2). Threads: Linear 3 per operator; Diamond 2, 3, 3, 3, 3; "
    "Star 1, 1, 4, 4, 4 with spouts of 100 points and 600 MB a thread.",
    f"A hop inside a rack takes {IN_RACK_MS:g} ms: calibrated with the gain of Linear in Fig 8a, which is therefore no "
    "result. Between racks it takes 2 ms more (stated: 4 ms for a round trip).",
    "Both together: Processing is submitted after PageLoad.",
)


def storm_cluster(nodes: int) -> Cluster:
    return racked_cluster(nodes, RACKS, CORES, MEMORY_MB, BANDWIDTH_MBPS)


def _light(name: str) -> Declared:
    return Declared(name, threads=12, service_ms=0.05, cpu=10.0, memory_mb=170.0)


def _heavy(
    name: str, threads: int, *, service_ms: float = 10.0, cpu: float = 50.0, memory_mb: float = 1024.0
) -> Declared:
    return Declared(name, threads, service_ms, cpu_share=cpu / 100, cpu=cpu, memory_mb=memory_mb)


DIAMOND = (*(("spout", f"bolt{n}") for n in (1, 2, 3)), *((f"bolt{n}", "sink") for n in (1, 2, 3)))
STAR = (("spout1", "centre"), ("spout2", "centre"), ("centre", "sink1"), ("centre", "sink2"))
PAGE_LOAD = ("spout", "transform", "filter", "join", "filter2", "aggregate", "sink")
PROCESSING = ("spout", "transform", "filter", "join1", "sink1", "join2", "normalise", "sink2")


def network_bound() -> dict[str, Topology]:
    return {
        "linear": _topology("linear", ("spout", "bolt1", "bolt2", "bolt3"), chain("spout", "bolt1", "bolt2", "bolt3")),
        "diamond": _topology("diamond", ("spout", "bolt1", "bolt2", "bolt3", "sink"), DIAMOND),
        "star": _topology("star", ("spout1", "spout2", "centre", "sink1", "sink2"), STAR, ("spout1", "spout2")),
    }


def yahoo() -> dict[str, Topology]:
    branches = chain("spout", "transform", "filter", "join1", "sink1") + chain(
        "transform", "join2", "normalise", "sink2"
    )
    return {
        "pageload": _topology("pageload", PAGE_LOAD, chain(*PAGE_LOAD)),
        "processing": _topology("processing", PROCESSING, branches),
    }


def _topology(
    name: str, operators: tuple[str, ...], streams: tuple[tuple[str, str], ...], sources: tuple[str, ...] = ("spout",)
) -> Topology:
    return Topology(name, tuple(map(_light, operators)), streams, sources)


def cpu_bound() -> dict[str, Topology]:
    linear = tuple(_heavy(name, 3) for name in ("spout", "bolt1", "bolt2", "bolt3"))
    sink = _heavy("sink", 3, service_ms=10.0 / 3)
    diamond = (_heavy("spout", 2), *(_heavy(f"bolt{n}", 3) for n in (1, 2, 3)), sink)
    spouts = tuple(_heavy(f"spout{n}", 1, cpu=100.0, memory_mb=600.0) for n in (1, 2))
    others = tuple(_heavy(name, 4, cpu=33.0, memory_mb=600.0) for name in ("centre", "sink1", "sink2"))
    return {
        "linear": Topology("linear", linear, chain("spout", "bolt1", "bolt2", "bolt3"), ("spout",)),
        "diamond": Topology("diamond", diamond, DIAMOND, ("spout",)),
        "star": Topology("star", spouts + others, STAR, ("spout1", "spout2")),
    }


PARTS = ("network", "cpu", "yahoo", "both")


def topologies_of(part: str, name: str) -> list[Topology]:
    """The topologies that run at the same time."""
    if part == "both":
        return list(yahoo().values())
    table = {"network": network_bound, "cpu": cpu_bound, "yahoo": yahoo}[part]()
    return [replace(table[name])]


def names_of(part: str) -> tuple[str, ...]:
    return {
        "network": ("linear", "diamond", "star"),
        "cpu": ("linear", "diamond", "star"),
        "yahoo": ("pageload", "processing"),
        "both": ("both",),
    }[part]
