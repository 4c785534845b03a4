"""Both use cases of the priority thesis on Spark, under the controller, at a scale that two cores can take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.experiments.contract import Agreement, Case, Experiment, Line, Measures, Results
from penstock.experiments.judging import shown
from penstock.experiments.priority.experiment import (
    DYNAMIC,
    ISOLATION,
    OURS,
    SHORT,
    SHORT_2,
    STATIC,
    Priority,
    priority_cases,
)
from penstock.pictures.chart import Chart, Panel, Series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.experiments.published_file import Published

FIRST: Case = {"use": 1, "batches": 7, "BG": 22, "BL": 40, "EP": 0.7}
SECOND: Case = {"use": 2, "rate": 10.0, "rate2": 2.5, "r1": 0.8, "seconds": 110}
ORDERS = (
    (1, "TE", "BG=60", "Fig 10", "TE, seconds to infer a complex event", DYNAMIC, STATIC),
    (1, "TT high", "BG=60", "Fig 11", "TT, higher priority, seconds", DYNAMIC, STATIC),
    (1, "TT low", "Shigh=0.2", "Fig 15", "TT, lower priority, seconds", STATIC, DYNAMIC),
    (2, "TT high", "rate=40", "Fig 35", "TT, higher priority, seconds", DYNAMIC, STATIC),
    (2, "TT low", "rate=40", "Fig 37", "TT, lower priority, seconds", STATIC, DYNAMIC),
)
"""Use case, measure, where it is published, and who is lower there."""
POLICIES = (STATIC, DYNAMIC, OURS, ISOLATION)


@dataclass(frozen=True)
class PriorityLive(Experiment):
    name: ClassVar[str] = "priority-live"
    title: ClassVar[str] = "Both use cases on Spark, under the controller, at a quarter of their size"
    figures: ClassVar[str] = "Figs 10, 11, 35-37 (order only)"
    published: ClassVar[str | None] = "priority"
    choices: ClassVar[tuple[str, ...]] = (
        "Slots stand for nodes: 4 instead of 16 in use case 1 (2, 2, 1, 1 desired, 1 the minimum of each), 5 instead "
        "of 20 in use case 2 (4 and 2 desired, 2 and 1 the minimum). 2 producers of each topic; Feed1 has 4, Feed2 2.",
        "A tuple takes its service time by waiting: two cores cannot compute for four slots. S_high is 0.2 s, S_low "
        "half of it, as published.",
        f"Use case 1: {FIRST['batches']} batches of {FIRST['BL']}, {FIRST['BG']} s apart, {FIRST['EP']:.0%} of them "
        f"with events. Use case 2: {SECOND['rate']:g} tuples/s at the high rate, {SECOND['seconds']} s in all.",
        "T_E is from the end of sending until 80 % of a batch were at the sink, of the slower topic. O is what the "
        "controller measured of every change of priority: drained, placed, first tuple.",
        "Messages are in the embedded log, on one clock with the sinks.",
    )
    gaps: ClassVar[tuple[str, ...]] = (
        "Seconds are not those of a cluster: a change of slots starts Java processes on two busy cores. Runs of "
        "minutes have one change each way; the document's have one in an hour, so what it costs weighs more here.",
        "One repetition of each, at one point of every axis.",
    )

    def cases(self, *, quick: bool) -> Sequence[Case]:
        policies, uses = ((STATIC, DYNAMIC), (SECOND,)) if quick else (POLICIES, (FIRST, SECOND))
        return [{**use, "policy": policy} for policy in policies for use in uses]

    def run_case(self, case: Case) -> Measures:
        from penstock.experiments.priority.live import use_case_1_live, use_case_2_live  # noqa: PLC0415 - needs Spark

        measures = use_case_1_live(case) if case["use"] == 1 else use_case_2_live(case)
        return {**measures, "simulated": _simulated(case)}

    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        lines = []
        for use, measure, point, figure, what, lower, higher in ORDERS:
            if not results.where(use=use):
                continue
            nodes = SHORT if use == 1 else SHORT_2
            here = {policy: results.only(use=use, policy=policy) for policy in (lower, higher)}
            there = {policy: published[f"{measure} {point} {policy}@{nodes}"].number for policy in here}
            values = {policy: measures[measure] for policy, measures in here.items()}
            lines.append(_order_line(f"{figure}, {point}", what, there, values, here, measure))
        lines += [
            Line(
                f"use case {result.case['use']}, {result.case['policy']}",
                "slots with the trigger off, on; O, seconds; tuples not there once",
                "",
                f"{result.measures['nodes_off']}, {result.measures['nodes_on']}; {_seconds(result.measures['O'])}; "
                f"{result.measures['lost']}",
                Agreement.NOT_COMPARABLE,
                "at another scale",
            )
            for result in results
        ]
        return lines

    def charts(self, results: Results, published: Published) -> Sequence[Chart]:
        panels = []
        for use, measures in ((1, ("TE", "TT high", "TT low")), (2, ("TT high", "TT low", "O"))):
            of_use = results.where(use=use)
            if not of_use:
                continue
            policies = tuple(str(result.case["policy"]) for result in of_use)
            for measure in measures:
                series = Series("live", tuple(result.measures[measure] for result in of_use))
                panels.append(Panel(f"Use case {use}: {measure}", "", "seconds", (series,), policies))
        return [Chart("use-cases", "Use cases on Spark, at a quarter of their size", tuple(panels))]


def _order_line(
    where: str,
    what: str,
    there: dict[str, float],
    here: dict[str, float | None],
    measures: dict[str, Measures],
    measure: str,
) -> Line:
    """Whether who is lower in the document is lower here."""
    lower, higher = here
    simulated = ", ".join(f"{policy} {_seconds(measures[policy]['simulated'][measure])}" for policy in here)
    ours = ", ".join(f"{policy} {_seconds(value)}" for policy, value in here.items()) + f" (simulated: {simulated})"
    published = ", ".join(f"{policy} {shown(value)}" for policy, value in there.items())
    values = here[lower], here[higher]
    if values[0] is None or values[1] is None:
        return Line(where, what, published, ours, Agreement.NOT_COMPARABLE, "nothing came to its end")
    holds = values[0] < values[1]
    why = "the same order" if holds else "a change of slots costs more here than it gains in a run of minutes"
    return Line(where, what, published, ours, Agreement.AGREES if holds else Agreement.DIFFERS, why)


def _seconds(value: float | None) -> str:
    return "none" if value is None else shown(value)


def _simulated(case: Case) -> Measures:
    """The same policy at the document's size and defaults, simulated."""
    nodes = {1: SHORT, 2: SHORT_2}[case["use"]]
    default = next(
        full for full in priority_cases((case["policy"],)) if full["use"] == case["use"] and full["nodes"] == nodes
    )
    return Priority().run_case(default)
