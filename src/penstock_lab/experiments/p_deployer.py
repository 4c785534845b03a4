"""P-Deployer (Liu and Buyya), section 7.4: nodes needed for a target by its packing and by the Metis scheduler."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import penstock
from penstock import Cluster, ModelLibrary, Node, PipelineBuilder, RefusedError, TaskProfile
from penstock.plugins import CPU, CPU_POINTS_PER_SLOT, MEMORY, PLACERS, Bound, Chart, Panel, Series, covers, exceeds
from penstock_lab.contract import Agreement, Experiment, Line
from penstock_lab.verdicts import Good, claimed, compared, not_comparable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock import Pipeline, Plan
    from penstock_lab.contract import Case, Measures, Results
    from penstock_lab.published_values import Published


# The pipelines P-Deployer was evaluated with, and what a tuple costs their operators.
#
# The document states the shapes in words, what the operators do (30,000 random numbers; parsing JSON; sleeping 10 ms;
# keeping a window of 300 s), and one result of its own profiles: Linear of CPU-bound operators at 2,000 tuples/s is
# planned with one thread each on three nodes of two cores. The profiles themselves it does not print. Those here are
# chosen: the sojourn-bound one as stated, the CPU-bound one so that the stated plan comes out, the others freely.


NODE_SLOTS = 2
NODE_MEMORY_MB = 4096.0
"""m1.medium: two cores and 4 GB."""
BUDGET = 16
"""Nodes the document may use."""
METIS_SOJOURN_THREADS = 5
"""The document gives sojourn-bound operators five times the threads under Metis."""

TARGETS = {
    "word-count": (2000, 4000, 6000),
    "linear": (1000, 2000, 3000, 4000),
    "diamond": (1000, 2000, 3000, 4000),
    "star": (1000, 2000, 3000, 4000),
}
"""Tuples/s. 2,000 and Word Count's 6,000 are stated; the others are only drawn, and chosen."""
WAYS = {"packing": ("profiled", "packing"), "metis": ("per-node", "metis")}

PROFILES = (
    TaskProfile(
        name="spout", sojourn_seconds=0.0001, processing_cpu=0.005, moving_cpu=0.004, memory_mb=0.02, bound=Bound.IO
    ),
    TaskProfile(
        name="cpu", sojourn_seconds=0.0005, processing_cpu=0.05, moving_cpu=0.004, memory_mb=0.02, bound=Bound.CPU
    ),
    TaskProfile(
        name="io", sojourn_seconds=0.0001, processing_cpu=0.01, moving_cpu=0.004, memory_mb=0.02, bound=Bound.IO
    ),
    TaskProfile(
        name="sojourn", sojourn_seconds=0.01, processing_cpu=0.01, moving_cpu=0.004, memory_mb=0.02, bound=Bound.SOJOURN
    ),
    TaskProfile(
        name="memory", sojourn_seconds=0.0002, processing_cpu=0.01, moving_cpu=0.004, memory_mb=0.3, bound=Bound.MEMORY
    ),
    TaskProfile(
        name="json", sojourn_seconds=0.0003, processing_cpu=0.025, moving_cpu=0.004, memory_mb=0.02, bound=Bound.CPU
    ),
    TaskProfile(
        name="split", sojourn_seconds=0.0002, processing_cpu=0.015, moving_cpu=0.004, memory_mb=0.02, bound=Bound.CPU
    ),
    TaskProfile(
        name="count", sojourn_seconds=0.00002, processing_cpu=0.0015, moving_cpu=0.0008, memory_mb=0.01, bound=Bound.CPU
    ),
)


def library(*, for_metis: bool) -> ModelLibrary:
    """The profiles; under Metis a thread of a sojourn-bound operator stands for five."""
    profiles = list(PROFILES)
    if for_metis:
        profiles = [
            profile.model_copy(update={"sojourn_seconds": profile.sojourn_seconds / METIS_SOJOURN_THREADS})
            if profile.bound is Bound.SOJOURN
            else profile
            for profile in profiles
        ]
    return ModelLibrary.of((), profiles)


def nodes(count: int) -> Cluster:
    capacity = MappingProxyType({CPU: CPU_POINTS_PER_SLOT * NODE_SLOTS, MEMORY: NODE_MEMORY_MB})
    first = Node("n1", "r1", NODE_SLOTS, capacity, "m1.medium")
    return Cluster(tuple(replace(first, name=f"n{number}") for number in range(1, count + 1)))


def pipelines() -> Mapping[str, Pipeline]:
    """By name: Word Count, and Linear, Diamond and Star with the kinds of operators section 7.2 gives them."""
    word_count = (
        PipelineBuilder("word-count")
        .source("spout", model="spout")
        .then("parse", model="json")
        .then("split", model="split")
        .then("count", model="count", selectivity=9)
        .build()
    )
    linear = PipelineBuilder("linear").source("op1", model="spout")
    for number in (2, 3, 4):
        linear = linear.then(f"op{number}", model="cpu")
    diamond = PipelineBuilder("diamond").source("op1", model="spout")
    kinds = ("cpu", "io", "sojourn", "memory")
    for number, kind in enumerate(kinds, start=2):
        diamond = diamond.then(f"op{number}", reads="op1", model=kind)
    diamond = diamond.then("op6", reads=[f"op{number}" for number in range(2, 2 + len(kinds))], model="io")
    star = PipelineBuilder("star").source("op1", model="spout").source("op2", model="spout")
    star = star.then("hub", reads=["op1", "op2"], model="io", selectivity=2)
    star = star.then("op4", reads="hub", model="io", selectivity=2).then("op5", reads="hub", model="io", selectivity=2)
    return {pipeline.name: pipeline for pipeline in (word_count, linear.build(), diamond.build(), star.build())}


CHOSEN = "profiles are chosen"
MISSING = "Metis is not installed: pip install 'penstock[metis]'"


def _nodes(results: Results, name: str, target: int, way: str) -> int | None:
    nodes: int | None = results.only(pipeline=name, target=target, way=way)["nodes"]
    return nodes


def _count(nodes: int | None) -> str:
    return "more than the budget" if nodes is None else str(nodes)


def lines(results: Results, published: Published) -> list[Line]:
    if "metis" in results.values("way"):
        against = _against_metis(results, published)
    else:
        fig12 = [value for value in published.values if value.id.startswith("fig12.")]
        against = [not_comparable("Fig 12", "packing against metis", value, "-", MISSING) for value in fig12]
    return [*_first_plan(results, published), *against, *_later(results, published)]


def _first_plan(results: Results, published: Published) -> list[Line]:
    first = results.only(pipeline="linear", target=2000, way="packing")
    where = "Section 7.2, linear at 2,000"
    nodes, threads = published["linear.2000.first.nodes"], published["linear.2000.first.threads"]
    return [
        compared(where, "nodes of the first plan", nodes, first["nodes"], within=0.0),
        compared(where, "threads of the first plan", threads, sum(first["threads"].values()), within=0.0),
    ]


def _against_metis(results: Results, published: Published) -> list[Line]:
    pairs = [
        (_nodes(results, name, target, "packing"), _nodes(results, name, target, "metis"))
        for name, targets in TARGETS.items()
        for target in targets
    ]
    fewer = sum(1 for ours, theirs in pairs if ours is not None and (theirs is None or ours < theirs))
    same = sum(1 for ours, theirs in pairs if ours == theirs)
    highest = [(name, TARGETS[name][-1]) for name in ("linear", "diamond", "star")]
    made = [
        claimed(
            "Fig 12",
            "packing against metis",
            published["fig12.fewer"],
            holds=2 * fewer > len(pairs),
            ours=f"fewer in {fewer}, as many in {same} of {len(pairs)} cases",
            why=CHOSEN,
        ),
        _difference(results, published, "word-count", 6000, "fig12.word-count.6000.more"),
        *(_difference(results, published, *case, "fig12.micro.highest.more") for case in highest),
    ]
    count = results.only(pipeline="word-count", target=6000, way="metis")
    where = "Section 7.4.2, word-count at 6,000 under metis"
    for what, value, ours in (
        ("mean CPU of a node", published["fig12.metis.node-cpu"], 100 * count.get("mean_node_cpu", 0.0)),
        ("busiest operator", published["fig12.metis.capacity"], 6000 / count.get("supported_rate", math.inf)),
    ):
        if count["nodes"] is None:
            made.append(not_comparable(where, what, value, "-", f"it takes more than {BUDGET} nodes here"))
        else:
            made.append(compared(where, what, value, ours, why=CHOSEN))
    return made


def _later(results: Results, published: Published) -> list[Line]:
    """What is stated and cannot be repeated yet."""
    first = results.only(pipeline="linear", target=2000, way="packing")["nodes"]
    loop = "the loop that raises profiles until the target is met is `penstock plans deploy`, not this experiment"
    unknown = "nothing is published of the profiles of its eleven operators"
    where = "Section 7.3, Twitter Sentiment Analysis"
    return [
        not_comparable(
            "Section 7.2, linear at 2,000",
            "nodes of the last plan",
            published["linear.2000.last.nodes"],
            f"{_count(first)} at first",
            loop,
        ),
        not_comparable(where, "nodes for 3,000", published["twitter.3000.nodes"], "-", unknown),
        not_comparable(where, "nodes for 6,000", published["twitter.6000.nodes"], "-", unknown),
    ]


def _difference(results: Results, published: Published, name: str, target: int, value_id: str) -> Line:
    ours, theirs = (_nodes(results, name, target, way) for way in ("packing", "metis"))
    where, what = f"Fig 12, {name} at {target:,}", "nodes metis takes more than packing"
    value = published[value_id]
    if ours is None or theirs is None:
        text = f"packing {_count(ours)}, metis {_count(theirs)}"
        return Line(where, what, str(value), text, Agreement.NOT_COMPARABLE, f"the budget is {BUDGET} nodes")
    line = compared(where, what, value, theirs - ours, within=0.0, good=Good.HIGH, why=_why(results, name, target))
    return Line(where, what, line.published, f"{theirs - ours} ({theirs} against {ours})", line.verdict, line.why)


def _why(results: Results, name: str, target: int) -> str:
    """How coarse the two are: threads are what can be packed."""
    threads = [sum(results.only(pipeline=name, target=target, way=way)["threads"].values()) for way in WAYS]
    return f"{CHOSEN}; {threads[0]} threads to pack, {threads[1]} under metis"


def chart(results: Results) -> Chart:
    ways = results.values("way")
    panels = []
    for name, targets in TARGETS.items():
        series = tuple(Series(way, tuple(_nodes(results, name, target, way) for target in targets)) for way in ways)
        panels.append(Panel(name, "target, tuples/s", "nodes", series, tuple(f"{target:,}" for target in targets)))
    note = "" if "metis" in ways else MISSING
    return Chart("nodes", "Nodes needed for a target (Fig 12)", tuple(panels), note, columns=4)


@dataclass(frozen=True)
class PDeployerEvaluation(Experiment):
    name: ClassVar[str] = "p-deployer"
    title: ClassVar[str] = "Nodes needed for a target by P-Deployer's packing and by the Metis scheduler"
    figures: ClassVar[str] = "Fig 12"
    published: ClassVar[str | None] = "p-deployer"
    choices: ClassVar[tuple[str, ...]] = (
        "Task profiles are not published. Sojourn-bound operators take the 10 ms the document states; the CPU-bound "
        "profile is chosen so that the stated first plan comes out (Linear at 2,000 tuples/s: one thread "
        "each on three nodes); the others are free choices (`PROFILES` of experiments/p_deployer.py).",
        "Targets other than 2,000 tuples/s and Word Count's 6,000 are only drawn in Fig 12; those here are chosen.",
        "A target counts as reached where every thread keeps up with its share and no node is asked for more CPU "
        "or memory than it has, moving tuples between nodes included (Eq. 3). The document ran its plans on "
        "Storm.",
        "Under Metis a thread of a sojourn-bound operator stands for five, as in the document.",
    )
    gaps: ClassVar[tuple[str, ...]] = (
        "The loop that raises profiles until a target is met (Figs 10, 11) is `penstock plans deploy`: node counts "
        "here are "
        "those of the first plan, and a Storm cluster needed more of them (Linear at 2,000: 3 nodes at first, 6 in the "
        "end).",
        "Twitter Sentiment Analysis (5 nodes for 3,000, 14 for 6,000) has eleven operators of which nothing is "
        "published.",
        "The bars of Fig 12 are only drawn: of its counts the text states differences.",
        "Linear of depth 5 and 10 (section 7.3) and both observations of section 3 are not repeated.",
    )

    def cases(self, *, quick: bool) -> Sequence[Case]:
        """All of them take seconds: `quick` has nothing to leave out. Without METIS its cases are left out."""
        ways = [way for way, (_, placer) in WAYS.items() if placer in PLACERS.names()]
        return [
            {"pipeline": name, "target": target, "way": way}
            for name, targets in TARGETS.items()
            for target in targets
            for way in ways
        ]

    def run_case(self, case: Case) -> Measures:
        return fewest_nodes(case["pipeline"], case["target"], case["way"])

    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        return lines(results, published)

    def charts(self, results: Results, published: Published) -> Sequence[Chart]:
        return (chart(results),)


def fewest_nodes(name: str, target: float, way: str) -> Measures:
    """The fewest nodes of the budget with which a plan reaches the target, and what that plan looks like."""
    allocator, placer = WAYS[way]
    models = library(for_metis=way == "metis")
    for count in range(1, BUDGET + 1):
        try:
            plan = penstock.plan(
                pipelines()[name], target, models=models, cluster=nodes(count), allocator=allocator, placer=placer
            )
        except RefusedError:
            continue
        if reaches(plan, target):
            used_cpu = [used.cpu / NODE_SLOTS for used in plan.prediction.nodes.values()]
            return {
                "nodes": count,
                "threads": {operator.name: operator.threads for operator in plan.allocation.operators},
                "busiest_node_cpu": max(used_cpu),
                "mean_node_cpu": sum(used_cpu) / count,
                "supported_rate": plan.prediction.shuffle.rate,
            }
    return {"nodes": None}


def reaches(plan: Plan, target: float) -> bool:
    """Every thread keeps up with its share, and no node is asked for more CPU than it has."""
    keeps_up = covers(plan.prediction.shuffle.rate, target)
    return keeps_up and all(not exceeds(used.cpu, NODE_SLOTS) for used in plan.prediction.nodes.values())
