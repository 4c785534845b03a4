"""The topologies of R-Storm's evaluation. The document draws them (Figs 7 and 11) and says nothing of their threads,
costs and demands: those are chosen here, and every choice is told with the results (`CHOICES`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_lab.declared import Declared, Topology, chain, racked_cluster

if TYPE_CHECKING:
    from penstock.cluster.topology import Cluster

CORES, MEMORY_MB, BANDWIDTH_MBPS, RACKS = 1.0, 2048.0, 100.0, 2
"""A machine of section 6.1."""
SAME_NODE_MS = 0.05
RACK_MS = 2.0
"""Half of the round trip of 4 ms between the racks (section 6.1)."""
IN_RACK_MS = 4.5
"""One hop between nodes of a rack, through the messaging layers of both. Not stated; calibrated: with it Linear bound
by the network comes to the gain of Fig 8a."""
PENDING_PER_SPOUT_THREAD = 2
PENDING_FACTOR_CPU = 10
"""So many times more where threads, not the network, are to be the limit."""

CHOICES = (
    "Shapes, threads, costs, demands and tuples in flight are not in the text. Linear: a spout and three bolts in a "
    "row; Diamond: a spout, three bolts side by side, a sink; Star: two spouts, a centre, two sinks; PageLoad: a row "
    "of seven operators; Processing: eight, with two branches after the second.",
    "Network bound and Yahoo: 12 threads per operator, 0.05 ms of CPU a tuple, 100 bytes; declared 10 points and "
    "170 MB, for Yahoo's longer pipelines 6 points and 120 MB, so that either fits into a rack; "
    f"{PENDING_PER_SPOUT_THREAD} tuples in flight per spout thread. Tuples are dealt to threads at random.",
    "CPU bound: a tuple takes a thread 10 ms (Diamond's sink a third of that), half of it on the processor; declared "
    "are 50 points and 1024 MB a thread, the document's own example of its interface (section 5.2). Threads: Linear 3 "
    "per operator; Diamond 2, 3, 3, 3, 3; Star 2, 2, 2, 3, 3; ten times as many tuples in flight.",
    f"A hop inside a rack takes {IN_RACK_MS:g} ms: calibrated with the gain of Linear in Fig 8a, which is therefore no "
    "result. Between racks it takes 2 ms more (stated: 4 ms for a round trip).",
    "Both together: Processing is submitted after PageLoad.",
)


def storm_cluster(nodes: int) -> Cluster:
    return racked_cluster(nodes, RACKS, CORES, MEMORY_MB, BANDWIDTH_MBPS)


def _light(name: str, cpu: float = 10.0, memory_mb: float = 170.0) -> Declared:
    return Declared(name, threads=12, service_ms=0.05, cpu=cpu, memory_mb=memory_mb)


def _yahoo(name: str) -> Declared:
    return _light(name, cpu=6.0, memory_mb=120.0)


def _heavy(name: str, threads: int, service_ms: float = 10.0) -> Declared:
    return Declared(name, threads, service_ms, cpu_share=0.5, cpu=50.0, memory_mb=1024.0)


DIAMOND = (*(("spout", f"bolt{n}") for n in (1, 2, 3)), *((f"bolt{n}", "sink") for n in (1, 2, 3)))
STAR = (("spout1", "centre"), ("spout2", "centre"), ("centre", "sink1"), ("centre", "sink2"))
PAGE_LOAD = ("spout", "transform", "filter", "join", "filter2", "aggregate", "sink")
PROCESSING = ("spout", "transform", "filter", "join1", "sink1", "join2", "normalise", "sink2")


def network_bound() -> dict[str, Topology]:
    row = ("spout", "bolt1", "bolt2", "bolt3")
    star = ("spout1", "spout2", "centre", "sink1", "sink2")
    return {
        "linear": Topology("linear", tuple(map(_light, row)), chain(*row), ("spout",)),
        "diamond": Topology("diamond", tuple(map(_light, (*row, "sink"))), DIAMOND, ("spout",)),
        "star": Topology("star", tuple(map(_light, star)), STAR, ("spout1", "spout2")),
    }


def yahoo() -> dict[str, Topology]:
    branches = chain("spout", "transform", "filter", "join1", "sink1")
    branches += chain("transform", "join2", "normalise", "sink2")
    return {
        "pageload": Topology("pageload", tuple(map(_yahoo, PAGE_LOAD)), chain(*PAGE_LOAD), ("spout",)),
        "processing": Topology("processing", tuple(map(_yahoo, PROCESSING)), branches, ("spout",)),
    }


def cpu_bound() -> dict[str, Topology]:
    linear = tuple(_heavy(name, 3) for name in ("spout", "bolt1", "bolt2", "bolt3"))
    sink = _heavy("sink", 3, 10.0 / 3)
    diamond = (_heavy("spout", 2), *(_heavy(f"bolt{n}", 3) for n in (1, 2, 3)), sink)
    star = (("spout1", 2), ("spout2", 2), ("centre", 2), ("sink1", 3), ("sink2", 3))
    return {
        "linear": Topology("linear", linear, chain("spout", "bolt1", "bolt2", "bolt3"), ("spout",)),
        "diamond": Topology("diamond", diamond, DIAMOND, ("spout",)),
        "star": Topology("star", tuple(_heavy(name, threads) for name, threads in star), STAR, ("spout1", "spout2")),
    }


PARTS = ("network", "cpu", "yahoo", "both")


def topologies_of(part: str, name: str) -> list[Topology]:
    """The topologies that run at the same time."""
    if part == "both":
        return list(yahoo().values())
    table = {"network": network_bound, "cpu": cpu_bound, "yahoo": yahoo}[part]()
    return [table[name]]


def names_of(part: str) -> tuple[str, ...]:
    return {
        "network": ("linear", "diamond", "star"),
        "cpu": ("linear", "diamond", "star"),
        "yahoo": ("pageload", "processing"),
        "both": ("both",),
    }[part]
