"""001's two pipelines on one cluster (Fig 13), for real: PageLoad and Processing placed side by side on Spark."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.clock import Stopwatch, pause
from penstock.errors import RunError
from penstock.files import temporary_folder
from penstock.pictures.chart import Chart, Panel, Series
from penstock_lab.command import answer, started
from penstock_lab.contract import Agreement, Case, Experiment, Line, Measures, Results
from penstock_lab.judging import shown

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock_lab.published_file import Published

PIPELINES = ("page-load", "processing")
PLACERS = ("round-robin", "r-storm")
NODES, SLOTS, RACKS = 4, 2, 2
SECONDS, WARM_UP = 30.0, 10.0
RATE = 200.0
LONGEST_SECONDS = 3600.0
PATIENCE_SECONDS = 240.0
KEPT = 0.95
"""Of its rate: a pipeline that does less suffers from the other."""


@dataclass(frozen=True)
class RStormLive(Experiment):
    name: ClassVar[str] = "r-storm-live"
    title: ClassVar[str] = "PageLoad and Processing on one Spark cluster"
    figures: ClassVar[str] = "Fig 13 (whether both get through)"
    published: ClassVar[str | None] = "r-storm"
    choices: ClassVar[tuple[str, ...]] = (
        f"{NODES} nodes with {SLOTS} slots in {RACKS} racks instead of 24 machines; each pipeline gets {RATE:g} "
        "tuples/s, the second is planned on what the first one leaves.",
        f"Processing runs for {SECONDS:g} s, PageLoad from before until after that; every operator where its plan puts "
        "it.",
    )
    gaps: ClassVar[tuple[str, ...]] = (
        "All nodes share two cores and one memory: a machine that is overloaded while others idle, which starves "
        "Processing in the document, cannot happen here. What shows is whether two placed pipelines leave each other "
        "alone, and what hops between nodes add to latency without a network between them.",
    )

    def cases(self, *, quick: bool) -> Sequence[Case]:
        return [{"placer": placer, "rate": RATE, "seconds": SECONDS} for placer in PLACERS]

    def run_case(self, case: Case) -> Measures:
        from penstock.spark.standalone.cluster import running_cluster  # noqa: PLC0415 - needs Spark

        with (
            temporary_folder("sharing") as folder,
            running_cluster(NODES, SLOTS, racks=RACKS, folder=folder / "state"),
        ):
            environment = {**os.environ, "PENSTOCK_STATE": str(folder / "state"), "PENSTOCK_RUNS": str(folder / "runs")}
            return _side_by_side(case, folder, environment)

    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        made = []
        for name, key in (("page-load", "pageload"), ("processing", "processing")):
            for placer, by in (("round-robin", "default"), ("r-storm", "r_storm")):
                measures = results.only(placer=placer)[name]
                holds = measures["rate"] >= KEPT * RATE
                made.append(
                    Line(
                        f"Fig 13, {name}, {placer}",
                        f"tuples/s beside the other pipeline, of {RATE:g} asked for here",
                        str(published[f"both_{key}_{by}"]),
                        f"{shown(measures['rate'])}; p50 {shown(measures['p50_ms'])} ms; on {measures['nodes']} nodes; "
                        f"{measures['lost']} lost, {measures['doubled']} doubled",
                        Agreement.NOT_COMPARABLE,
                        "gets its rate; nodes share two cores" if holds else "does not get its rate on two cores",
                    )
                )
        return made

    def charts(self, results: Results, published: Published) -> Sequence[Chart]:
        panels = tuple(
            Panel(
                title,
                "",
                unit,
                tuple(
                    Series(placer, tuple(results.only(placer=placer)[name][key] for name in PIPELINES))
                    for placer in PLACERS
                ),
                PIPELINES,
            )
            for title, unit, key in (("throughput", "tuples/s", "rate"), ("latency", "ms, median", "p50_ms"))
        )
        return [Chart("sharing", "Two pipelines on one Spark cluster", panels)]


def _side_by_side(case: Case, folder: Path, environment: Mapping[str, str]) -> Measures:
    """Each in a process of its own: a process has one Spark. The second is planned when the first holds its slots, and
    the first goes on until the second is done."""
    running: dict[str, subprocess.Popen[str]] = {}
    nodes: dict[str, int] = {}
    held = 0
    first, second = PIPELINES
    try:
        for name in PIPELINES:
            plan = folder / f"{name}.json"
            asked = ["--rate", str(case["rate"]), "--placer", case["placer"], "--cluster", "live", "-o", str(plan)]
            made = answer(started(["plan", name, *asked, "--json"], environment), f"plan {name}", PATIENCE_SECONDS)
            nodes[name] = len({part["node"] for part in made["placement"]})
            held += len(made["placement"])
            seconds = LONGEST_SECONDS if name == first else case["seconds"]
            words = ["run", str(plan), "--placed", "--seconds", str(seconds), "--warm-up", str(WARM_UP)]
            running[name] = started([*words, "--folder", str(folder / f"{name}-run"), "--json"], environment)
            _await_held(folder / "state", held, name, running[name])
        reports = {second: answer(running[second], second, PATIENCE_SECONDS)}
        ended = started(["drain", str(folder / f"{first}-run"), "--stop", "--json"], environment)
        answer(ended, f"drain {first}", PATIENCE_SECONDS)
        reports[first] = answer(running[first], first, PATIENCE_SECONDS)
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
    return {
        name: {
            "rate": report["sustained_rate"],
            "p50_ms": report["latency_ms"]["p50"],
            "lost": report["lost"],
            "doubled": report["duplicated"],
            "nodes": nodes[name],
        }
        for name, report in reports.items()
    }


def _await_held(state: Path, slots: int, name: str, process: subprocess.Popen[str]) -> None:
    """Until so many slots of the cluster are taken."""
    from penstock.spark.standalone.cluster import cluster_status  # noqa: PLC0415 - needs Spark

    watch = Stopwatch()
    while sum(node.used for node in cluster_status(state).nodes) < slots:
        if process.poll() is not None:
            answer(process, name, PATIENCE_SECONDS)
            raise RunError(f"{name}: it ended before it had its slots")
        if watch.seconds() > PATIENCE_SECONDS:
            raise RunError(f"{name}: its slots were not there after {PATIENCE_SECONDS:g} s")
        pause(0.5)
