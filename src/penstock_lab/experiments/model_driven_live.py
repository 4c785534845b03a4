"""Model-driven scheduling's five policy pairs on Spark: planned, predicted and measured rates of placed plans.

Operators are profiled first, on this machine, in the same case; nothing comes from the document's models. Plans are
made for two nodes of two slots and run placed, one process after the other, offered more than they can do.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import penstock
from penstock import Kind, Operator, Pipeline, Stream
from penstock.plugins import Chart, Panel, Series, Style, pause, temporary_folder
from penstock.types import Logic
from penstock_lab.contract import Case, Experiment, Line, Measures, Results
from penstock_lab.experiments.live_processes import answer, completed, started
from penstock_lab.experiments.model_driven_cases import MICRO, PAIRS, policies
from penstock_lab.verdicts import claimed, compared, not_comparable, r_squared, r_squared_of_identity, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock_lab.published_values import Published

NODES, SLOTS, MEMORY_MB = 2, 2, 768.0
STEP = 10.0
"""Tuples/s by which the planned rate is raised, as in the document."""
OVERLOAD = 1.4
"""Offered rate over the predicted rate."""
PROFILE_SECONDS = 12.0
"""Seconds for each operator."""
RUN_SECONDS, WARM_UP = 9.0, 3.0
PATIENCE_SECONDS = 240.0
NAME = "five-pairs"
"""One name for all shapes, so that a model of an operator is that of any of them."""
SCHEMA = "value bigint"
_HERE = "penstock_lab.experiments.model_driven_live"


def ask(row: dict[str, Any]) -> dict[str, Any]:
    """Wait as for a blob."""
    pause(0.02)
    return row


def look(row: dict[str, Any]) -> dict[str, Any]:
    """Wait as for a row of a table."""
    pause(0.005)
    return row


def spin(row: dict[str, Any]) -> dict[str, Any]:
    """Compute."""
    return {"value": sum(row["value"] % number for number in range(1, 12_000))}


def parse(row: dict[str, Any]) -> dict[str, Any]:
    """Parse a document of a hundred numbers."""
    return {"value": int(json.loads(json.dumps({"value": row["value"], "more": list(range(100))}))["value"])}


CODE = {"parse": parse, "spin": spin, "look": look, "ask": ask}


def _pipeline(*streams: tuple[str, str]) -> Pipeline:
    operators = [
        Operator(name="source", kind=Kind.SOURCE),
        *(Operator(name=name, logic=Logic(code, schema=SCHEMA)) for name, code in CODE.items()),
        Operator(name="sink", kind=Kind.SINK),
    ]
    return Pipeline.of(NAME, operators, [Stream(sender=sender, receiver=receiver) for sender, receiver in streams])


linear = _pipeline(("source", "parse"), ("parse", "spin"), ("spin", "look"), ("look", "ask"), ("ask", "sink"))
diamond = _pipeline(
    ("source", "parse"), *(("parse", name) for name in ("spin", "look", "ask")),
    *((name, "sink") for name in ("spin", "look", "ask")),
)  # fmt: skip
star = _pipeline(
    ("source", "parse"), ("source", "spin"), ("parse", "look"), ("spin", "look"), ("look", "ask"), ("look", "sink"),
    ("ask", "sink"),
)  # fmt: skip


def run_shape(name: str) -> Measures:
    """Profile the operators, then plan and run a shape by every pair of policies."""
    from penstock.testing import running_cluster  # noqa: PLC0415 - needs Spark

    subject = f"{_HERE}:{name}"
    with temporary_folder("five-pairs") as folder:
        models = folder / "models.json"
        words = ["profile", subject, "-o", str(models), "--quick", "--budget", str(PROFILE_SECONDS), "--json"]
        completed(started(words), f"profile of {name}", PATIENCE_SECONDS)
        with running_cluster(NODES, SLOTS, folder=folder / "state", memory_mb=MEMORY_MB) as cluster:
            environment = {"PENSTOCK_STATE": str(cluster.folder), "PENSTOCK_RUNS": str(folder / "runs")}
            pairs = {
                pair: _run_pair(subject, pair, models, cluster.cluster_file, folder, environment) for pair in PAIRS
            }
        return {"models": json.loads(models.read_text("utf-8")), "load": os.getloadavg()[1], "pairs": pairs}


def _run_pair(
    subject: str, pair: str, models: Path, cluster: Path, folder: Path, environment: Mapping[str, str]
) -> Measures:
    allocator, placer = policies(pair)
    (found,) = penstock.capacity(
        subject, cluster, step=STEP, allocator=allocator, placer=placer, models=models
    ).values()
    if not found.placed:
        return {"planned": None, "allocated_rate": found.allocated}
    path = folder / f"{pair}.json"
    asked = ["--rate", str(found.placed), "--allocator", allocator, "--placer", placer, "--models", str(models)]
    words = ["plan", subject, *asked, "--cluster", str(cluster), "-o", str(path), "--json"]
    plan = answer(started(words, environment), f"plan by {pair}", PATIENCE_SECONDS)
    offered = ["--rate", str(OVERLOAD * found.predicted), "--seconds", str(RUN_SECONDS), "--warm-up", str(WARM_UP)]
    run = ["run", str(path), "--engine", "placed", "--models", str(models), *offered]
    report = answer(
        started([*run, "--folder", str(folder / f"{pair}-run"), "--json"], environment), f"run by {pair}",
        PATIENCE_SECONDS,
    )  # fmt: skip
    return {
        "planned": found.placed,
        "allocated_rate": found.allocated,
        "predicted": found.predicted,
        "engine_predicted": report["predicted_rate"],
        "actual": report["sustained_rate"],
        "threads": {name: sum(row["threads"].get(name, 0) for row in plan["placement"]) for name in CODE},
        "predicted_slots": report["predicted_slots"],
        "slots": report["slots"],
        "lost": report["lost"],
        "doubled": report["duplicated"],
    }


@dataclass(frozen=True)
class ModelDrivenLive(Experiment):
    name: ClassVar[str] = "model-driven-live"
    title: ClassVar[str] = "Five allocator and placer pairs on Spark, placed"
    figures: ClassVar[str] = "Figs 9-12 (what prediction is worth)"
    published: ClassVar[str | None] = "model-driven-live"
    choices: ClassVar[tuple[str, ...]] = (
        f"{NODES} nodes with {SLOTS} slots that share two cores, instead of five machines with four. Operators: two "
        "wait, 20 and 5 ms, one computes, one parses; they are profiled in the same case, "
        f"{PROFILE_SECONDS:g} s each, alone and fused.",
        "The planned rate is the highest that the pair places on the four slots; the predicted rate is the sum of what "
        f"an operator's slots support; {OVERLOAD:g} times that is offered, and the rate sustained is the actual one. "
        f"{RUN_SECONDS:g} s each.",
        "Tuples go to threads in turn, by the number of threads of a slot.",
    )
    gaps: ClassVar[tuple[str, ...]] = (
        "Rates are those of other operators on another machine: only what can be said of any is compared.",
        "One run of each plan, of seconds; the document's run for 15 minutes.",
    )

    def cases(self, *, quick: bool) -> Sequence[Case]:
        return [{"pipeline": name} for name in (MICRO[:1] if quick else MICRO)]

    def run_case(self, case: Case) -> Measures:
        return run_shape(case["pipeline"])

    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        made: list[Line] = []
        for done in results:
            made += _lines_of(done.case["pipeline"], done.measures["pairs"], published)
        return made

    def charts(self, results: Results, published: Published) -> Sequence[Chart]:
        panels = []
        for kind in ("planned", "predicted"):
            for done in results:
                series = tuple(
                    Series(pair, (float(measures[kind]),), Style.POINTS, x=(float(measures["actual"]),))
                    for pair, measures in done.measures["pairs"].items()
                    if measures["planned"]
                )
                title = f"{done.case['pipeline']}: {kind}"
                panels.append(Panel(title, "measured, tuples/s", f"{kind}, tuples/s", series, diagonal=True))
        note = "On the dotted line both are the same."
        return [Chart("rates", "Planned and predicted against measured rate on Spark", tuple(panels), note)]


def _lines_of(name: str, pairs: Mapping[str, Measures], published: Published) -> list[Line]:
    ran = {pair: measures for pair, measures in pairs.items() if measures["planned"]}
    actual = [measures["actual"] for measures in ran.values()]
    planned, predicted = ([measures[kind] for measures in ran.values()] for kind in ("planned", "predicted"))
    told = "; ".join(
        f"{pair} {shown(each['planned'])}, {shown(each['predicted'])}, {shown(each['actual'])}"
        for pair, each in ran.items()
    )
    lines = []
    for figure, kind, rates in (("fig9", "planned", planned), ("fig10", "predicted", predicted)):
        value, found = published[f"{figure}.r2"], r_squared(actual, rates)
        where, what = f"Fig {figure[3:]}, {name}", f"R2 of {kind} and actual rate"
        if found is None:
            lines.append(not_comparable(where, what, value, told, "one of the two does not vary"))
        else:
            lines.append(compared(where, what, value, found, within=0.0, why=f"{len(ran)} plans on other operators"))
    near = [r_squared_of_identity(actual, rates) for rates in (planned, predicted)]
    lines.append(
        claimed(
            f"Figs 9, 10, {name}",
            "whether prediction beats plan (planned, predicted, actual)",
            published["fig10.better"],
            holds=near[0] is not None and near[1] is not None and near[1] > near[0],
            ours=told,
            why="the plan is nearer, as 1 - sum of squared errors over variance",
        )
    )
    gains = [
        100 * (ran[mba]["actual"] / ran[lsa]["actual"] - 1)
        for mba in PAIRS[2:]
        for lsa in PAIRS[:2]
        if mba in ran and lsa in ran and ran[lsa]["actual"]
    ]
    if gains:
        lines.append(
            not_comparable(
                f"Fig 10, {name}", "actual rate of MBA over LSA", published["fig10.mba-over-lsa"],
                f"{min(gains):.0f} to {max(gains):.0f} % more", "it depends on the operators, which are others here",
            )
        )  # fmt: skip
    for figure, key, unit in (("fig11", "cpu", "cpu"), ("fig12", "memory", "memory_mb")):
        seen = [_by_slot(measures["slots"], unit) for measures in ran.values()]
        said = [_by_slot(measures["predicted_slots"], key) for measures in ran.values()]
        both = [(a[slot], b[slot]) for a, b in zip(seen, said, strict=True) for slot in a if slot in b]
        found = r_squared([a for a, _ in both], [b for _, b in both])
        value, where, what = published[f"{figure}.r2"], f"Fig {figure[3:]}, {name}", f"R2 of predicted and actual {key}"
        if found is None:
            lines.append(not_comparable(where, what, value, "-", "one of the two does not vary"))
        else:
            lines.append(compared(where, f"{what} per slot", value, found, within=0.0, why=f"{len(both)} slots"))
    return lines


def _by_slot(rows: Sequence[Mapping[str, Any]], key: str) -> dict[tuple[str, int], float]:
    return {(row["node"], row["slot"]): float(row[key]) for row in rows}
