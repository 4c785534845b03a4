"""Fig 12 of P-Deployer as a table and a chart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from penstock.pictures.chart import Chart, Panel, Series
from penstock_lab.contract import Agreement, Line
from penstock_lab.judging import Good, claimed, compared, not_comparable
from penstock_lab.p_deployer.pipelines import BUDGET, TARGETS, WAYS

if TYPE_CHECKING:
    from penstock_lab.contract import Results
    from penstock_lab.published_file import Published

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
    where, chosen = "Section 7.2, linear at 2,000", "the CPU-bound profile was chosen for that"
    nodes, threads = published["linear.2000.first.nodes"], published["linear.2000.first.threads"]
    return [
        compared(where, "nodes of the first plan", nodes, first["nodes"], within=0.0, note=chosen),
        compared(where, "threads of the first plan", threads, sum(first["threads"].values()), within=0.0, note=chosen),
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
    loop = "the loop that raises profiles until the target is met comes later"
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
