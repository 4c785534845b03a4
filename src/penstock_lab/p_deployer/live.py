"""P-Deployer's loop on Spark: rounds to a target (Figs 10 and 11), at rates that two cores can take."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.control.deploying.costs import costlier
from penstock.files import temporary_folder, write_text
from penstock.jobs.find import find_models, find_pipeline
from penstock.modelling.file import models_document
from penstock.pictures.chart import Chart, Panel, Series, Style
from penstock_lab.command import answer, started
from penstock_lab.contract import Agreement, Case, Experiment, Line, Measures, Results
from penstock_lab.judging import not_comparable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_lab.published_file import Published

TARGETS = {"micro-linear": 2000.0, "micro-diamond": 1000.0, "micro-star": 2000.0, "twitter-sentiment": 2000.0}
"""The document's, which one to two slots do by the models shipped, but for what waits: half of it."""
PUBLISHED = {
    "micro-linear": ("Fig 10, Linear", "fig10.linear.first"),
    "micro-diamond": ("Fig 10, Diamond", "fig10.diamond.first"),
    "micro-star": ("Fig 10, Star", "fig10.star.first"),
    "twitter-sentiment": ("Fig 11, Twitter", "fig11.twitter.first"),
}
BELIEVED_COST = 0.5
"""Of what tuples cost by the models shipped: what the models of one case say, so that the first plan is too small and
the rounds have something to correct."""
MISJUDGED = "micro-linear"
"""It takes two nodes by the models shipped, and one where they say half."""
BUDGET = 4
STABILISE_SECONDS, READ_SECONDS = 12.0, 15.0
PATIENCE_SECONDS = 900.0


@dataclass(frozen=True)
class PDeployerLive(Experiment):
    name: ClassVar[str] = "p-deployer-live"
    title: ClassVar[str] = "Rounds to a target on Spark"
    figures: ClassVar[str] = "Figs 10 and 11 (rounds, and what the first one reaches)"
    published: ClassVar[str | None] = "p-deployer-live"
    choices: ClassVar[tuple[str, ...]] = (
        f"A node is a slot of a fused run on embedded Spark, and {BUDGET} the budget. Targets are "
        + ", ".join(f"{rate:g} tuples/s ({name})" for name, rate in TARGETS.items())
        + ", where the document's are 2,000.",
        f"A round settles for {STABILISE_SECONDS:g} s and is read for {READ_SECONDS:g} s; the document's take 15 and "
        "5 minutes.",
        "The first plan is made from the models shipped, later ones with costs as they were measured. One case gets "
        f"models that say {BELIEVED_COST:g} of the costs, so that the first plan cannot do.",
    )
    gaps: ClassVar[tuple[str, ...]] = (
        "Two cores hold two slots that compute: how many nodes a higher target takes cannot be seen here, and slots "
        "beyond the cores add nothing. The document's nodes have cores of their own.",
    )

    def cases(self, *, quick: bool) -> Sequence[Case]:
        if quick:
            return [_case(name) for name in ("micro-linear", "twitter-sentiment")]
        return [*map(_case, TARGETS), {**_case(MISJUDGED), "believed_cost": BELIEVED_COST}]

    def run_case(self, case: Case) -> Measures:
        seconds = ["--stabilise", str(STABILISE_SECONDS), "--read", str(READ_SECONDS)]
        words = ["deploy", case["pipeline"], "--rate", str(case["rate"]), "--budget", str(BUDGET), "--node-slots", "1"]
        with temporary_folder("deploying") as folder:
            models: list[str] = []
            if "believed_cost" in case:
                file = folder / "models.json"
                write_text(file, json.dumps(believed_models(case["pipeline"], case["believed_cost"])))
                models = ["--models", str(file)]
            process = started([*words, *seconds, *models, "--json"])
            document = answer(process, case["pipeline"], PATIENCE_SECONDS)
        kept = ("round", "nodes", "throughput", "part_of_target", "shortage", "short")
        return {
            "met": document["met"],
            "why": document["why"],
            "rounds": [{key: done[key] for key in kept} for done in document["rounds"]],
        }

    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        made = []
        for done in results:
            rounds = done.measures["rounds"]
            courses = ", ".join(f"{100 * each['part_of_target']:.0f} % on {each['nodes']}" for each in rounds)
            ours = f"{courses}; {'met' if done.measures['met'] else done.measures['why']}"
            what = f"part of {done.case['rate']:g} tuples/s reached, round by round, and on how many nodes"
            if "believed_cost" in done.case:
                made.append(Line(_label(done.case), what, "", ours, Agreement.NOT_COMPARABLE, "nothing is published"))
                continue
            where, value = PUBLISHED[done.case["pipeline"]]
            why = "other machines, targets and operators' costs"
            made.append(not_comparable(where, what, published[value], ours, why))
        return made

    def charts(self, results: Results, published: Published) -> Sequence[Chart]:
        most = max((len(done.measures["rounds"]) for done in results), default=0)
        series = tuple(
            Series(
                _label(done.case),
                tuple(100 * each["part_of_target"] for each in done.measures["rounds"]),
                Style.LINE,
                tuple(float(each["round"]) for each in done.measures["rounds"]),
            )
            for done in results
        )
        if most < 2:  # one round is no course
            return []
        return [Chart("rounds", "Rounds to a target, on Spark", (Panel("", "round", "% of the target", series),))]


def believed_models(pipeline: str, cost: float) -> dict[str, Any]:
    """The file of models by which tuples of `pipeline` cost so much of what they do by the models shipped."""
    known = find_pipeline(pipeline)
    library = costlier(find_models().of_pipeline(known), known, dict.fromkeys(known.operators, cost))
    return models_document(library.models.values(), profiles=library.profiles.values())


def _case(pipeline: str) -> Case:
    return {"pipeline": pipeline, "rate": TARGETS[pipeline]}


def _label(case: Case) -> str:
    believed = f", models that say {case['believed_cost']:g} of the costs" if "believed_cost" in case else ""
    return f"{case['pipeline']}{believed}"
