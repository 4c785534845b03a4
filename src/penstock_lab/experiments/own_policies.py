"""The better policies on the documents' axes: where they win, tie and lose against the published ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import penstock
from penstock.modelling.library import demands_of
from penstock.plugins import Chart, Panel, Series, Style, reference_library
from penstock.types import Routing
from penstock_lab.contract import Agreement, Case, Experiment, Line, Measures, Results
from penstock_lab.experiments.e_stream import run_stream_case, stream_cases
from penstock_lab.experiments.e_stream_lines import E_STREAM, MOST
from penstock_lab.experiments.e_stream_lines import ROUND_ROBIN as STREAM_ROUND_ROBIN
from penstock_lab.experiments.priority import (
    AXES_1,
    AXES_2,
    DYNAMIC,
    ISOLATION,
    OURS,
    SHORT,
    SHORT_2,
    STATIC,
    priority_cases,
)
from penstock_lab.experiments.priority_runs import use_case_1, use_case_2
from penstock_lab.experiments.r_storm import R_STORM, ROUND_ROBIN, names_of, placer_cases, run_placer_case
from penstock_lab.verdicts import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock_lab.published_values import Published

TIE = 0.02
"""Closer than this is a tie."""
MICRO, MICRO_RATES = ("linear", "diamond", "star"), (50.0, 100.0, 200.0)
PAIRS = ("mba+sam", "joint+joint")
ROUTERS = ("shuffle", "slot-aware")
PLACERS = (ROUND_ROBIN, R_STORM, "compact", "balanced-eft")
STREAM_PLACERS = (STREAM_ROUND_ROBIN, E_STREAM, "balanced-eft", "compact")


@dataclass(frozen=True)
class Ours(Experiment):
    name: ClassVar[str] = "ours"
    title: ClassVar[str] = "The better policies against the published ones"
    figures: ClassVar[str] = "the axes of all documents"
    published: ClassVar[str | None] = None
    own: ClassVar[bool] = True
    choices: ClassVar[tuple[str, ...]] = (
        f"Both sides are simulated here; 'published' is the best published policy in the same simulation. Better and "
        f"worse "
        f"are wins and losses of more than {TIE:.0%}, a tie is less.",
        "Costs, shapes and calibrations are those of the experiments r-storm, priority and e-stream.",
    )

    def cases(self, *, quick: bool) -> Sequence[Case]:
        return [
            *({"axis": "slots", "pipeline": name, "rate": rate, "pair": pair}
              for name in MICRO for rate in MICRO_RATES for pair in PAIRS),
            *({"axis": "routing", "pipeline": name, "rate": rate, "routing": router, "seconds": 240.0}
              for name in MICRO for rate in MICRO_RATES for router in ROUTERS),
            *({"axis": "throughput", **case} for case in placer_cases(PLACERS, quick=quick)),
            *({"axis": "priority", **case} for case in _priority_cases()),
            *({"axis": "response", **case} for case in stream_cases(STREAM_PLACERS, quick=quick, counts=(MOST,))),
        ]  # fmt: skip

    def run_case(self, case: Case) -> Measures:
        rest = {key: value for key, value in case.items() if key != "axis"}
        if case["axis"] == "slots":
            return _slots(rest)
        if case["axis"] == "routing":
            return _routed(rest)
        if case["axis"] == "throughput":
            return run_placer_case(rest)
        if case["axis"] == "priority":
            return use_case_1(rest) if rest["use"] == 1 else use_case_2(rest)
        return run_stream_case(rest)

    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        return [
            *_slot_lines(results),
            *_routing_lines(results),
            *_throughput_lines(results),
            *_priority_lines(results),
            *_response_lines(results),
        ]

    def charts(self, results: Results, published: Published) -> Sequence[Chart]:
        return [_chart(self.lines(results, published))]


def _priority_cases() -> list[Case]:
    """At the defaults, and ours with slot-aware routing too."""
    published = priority_cases((ISOLATION, STATIC, DYNAMIC, OURS))
    better = priority_cases((OURS,), routing="slot-aware")
    return [case for case in published + better if _at_default(case)]


def _at_default(case: Case) -> bool:
    axes = AXES_1 if case["use"] == 1 else AXES_2
    nodes = SHORT if case["use"] == 1 else SHORT_2
    return case["nodes"] == nodes and all(case[name] == values[0] for name, values in axes.items())


def _slots(case: Case) -> Measures:
    allocator, _, placer = case["pair"].partition("+")
    plan = penstock.plan(case["pipeline"], case["rate"], allocator=allocator, placer=placer)
    return {"slots": plan.slots_asked, "bound": plan.fewest_slots, "price": plan.cluster.price}


def _routed(case: Case) -> Measures:
    """What the plan by mba and sam really sustains, dealt one way or the other."""
    from penstock.simulation.engine import simulate_scenario  # noqa: PLC0415 - cases are listed without it
    from penstock.simulation.from_plan import Options, from_plan  # noqa: PLC0415
    from penstock.simulation.scenario import Scenario  # noqa: PLC0415

    plan = penstock.plan(case["pipeline"], case["rate"], allocator="mba", placer="sam")
    demands = demands_of(plan.pipeline, reference_library())
    placed = from_plan(plan, demands, options=Options(routing=Routing(case["routing"])))
    outcome = simulate_scenario(Scenario(plan.cluster, (placed,), case["seconds"], warm_up=case["seconds"] / 2))
    pipeline = outcome.pipelines[placed.name]
    return {"rate": pipeline.sustained_rate, "bottleneck": str(pipeline.bottleneck or "")}


def against(
    where: str, what: str, theirs: tuple[str, float], ours: tuple[str, float], *, low: bool, why: str = ""
) -> Line:
    """A win, a tie or a loss. `low`: less is better."""
    gained = theirs[1] - ours[1] if low else ours[1] - theirs[1]
    scale = max(abs(theirs[1]), 1e-12)
    won = Agreement.BETTER if gained > 0 else Agreement.WORSE
    verdict = Agreement.TIE if abs(gained) <= TIE * scale else won
    texts = [f"{name} {shown(value)}" for name, value in (theirs, ours)]
    change = f"{(ours[1] - theirs[1]) / scale:+.0%}" if theirs[1] else "from nothing"
    reason = f"{change}; {why}" if why and verdict is not Agreement.BETTER else change
    return Line(where, what, texts[0], texts[1], verdict, reason)


def _best(measures: Mapping[str, float], *, low: bool) -> tuple[str, float]:
    choose = min if low else max
    return choose(measures.items(), key=lambda item: item[1])


def _slot_lines(results: Results) -> list[Line]:
    lines = []
    for name in MICRO:
        for rate in MICRO_RATES:
            slots = {pair: results.only(axis="slots", pipeline=name, rate=rate, pair=pair)["slots"] for pair in PAIRS}
            where = f"slots, {name} at {rate:g}"
            lines.append(
                against(where, "slots of the plan", (PAIRS[0], slots[PAIRS[0]]), (PAIRS[1], slots[PAIRS[1]]), low=True)
            )
    return lines


def _routing_lines(results: Results) -> list[Line]:
    lines = []
    what = "tuples/s sustained by the plan of mba and sam"
    for name in MICRO:
        for rate in MICRO_RATES:
            theirs, ours = (
                results.only(axis="routing", pipeline=name, rate=rate, routing=router) for router in ROUTERS
            )
            sides = (ROUTERS[0], theirs["rate"]), (ROUTERS[1], ours["rate"])
            why = f"limited by {ours['bottleneck']}" if ours["bottleneck"] else ""
            lines.append(against(f"routing, {name} at {rate:g}", what, *sides, low=False, why=why))
    return lines


def _throughput_lines(results: Results) -> list[Line]:
    lines = []
    for part in ("network", "cpu", "yahoo", "both"):
        for name in names_of(part):
            for of in names_of("yahoo") if part == "both" else (name,):
                measures = {
                    placer: results.only(axis="throughput", part=part, topology=name, placer=placer)
                    for placer in PLACERS
                }
                rates = {placer: case["rates"][of] for placer, case in measures.items()}
                theirs = _best({placer: rates[placer] for placer in (ROUND_ROBIN, R_STORM)}, low=False)
                for placer in PLACERS[2:]:
                    nodes = f"{measures[placer]['nodes']} nodes against {measures[theirs[0]]['nodes']}"
                    lines.append(
                        against(f"R-Storm's {part}, {of}", "tuples/s of a source", theirs, (placer, rates[placer]),
                                low=False, why=f"{nodes}{_placer_reason(placer)}")
                    )  # fmt: skip
    return lines


def _placer_reason(placer: str) -> str:
    return "; it balances load over all nodes, and tuples travel farther" if placer == "balanced-eft" else ""


def _stream_reason(placer: str, measures: Measures) -> str:
    return f"its fullest node uses {measures['most_cpu']:.0%} of its CPU" if placer == "compact" else ""


def _priority_lines(results: Results) -> list[Line]:
    lines = []
    for use, measures in ((1, ("TE", "TT high", "TT low")), (2, ("TT high", "TT low", "O"))):
        for measure in measures:
            table: dict[str, float] = {}
            for policy in (ISOLATION, STATIC, DYNAMIC):
                value = results.only(axis="priority", use=use, policy=policy)[measure]
                if value is not None:
                    table[policy] = value
            for routing in ROUTERS:
                mine = results.only(axis="priority", use=use, policy=OURS, routing=routing)[measure]
                lines += [
                    against(f"priority, use case {use}", f"{measure}, seconds", (policy, table[policy]),
                            (f"{OURS}, {routing}", mine), low=True, why=_priority_reason(use, measure, policy))
                    for policy in (STATIC, DYNAMIC)
                ]  # fmt: skip
    return lines


def _priority_reason(use: int, measure: str, policy: str) -> str:
    if measure == "O" and policy == STATIC:
        return "a static policy never moves anybody"
    if policy == DYNAMIC and measure != "TT low":
        return "it keeps everybody's minimum, so the higher priority gets fewer nodes" if use == 1 else "the same nodes"
    if policy == STATIC and measure == "TT low":
        return "it takes nodes from the lower priority while the trigger is on"
    return "before the trigger all have the same priority"


def _response_lines(results: Results) -> list[Line]:
    lines = []
    for topology in ("top-n", "word-count"):
        for rate in (1000.0, 2000.0):
            table = {
                placer: results.only(axis="response", topology=topology, rate=rate, placer=placer)
                for placer in STREAM_PLACERS
            }
            for measure, words, low in (
                ("response_ms", "response time, ms", True),
                ("fairness", "fairness degree", False),
            ):
                values = {placer: case[measure] for placer, case in table.items()}
                theirs = _best({placer: values[placer] for placer in STREAM_PLACERS[:2]}, low=low)
                lines += [
                    against(f"E-Stream's {topology}, {MOST} pipelines at {rate:,.0f}", words, theirs,
                            (placer, values[placer]), low=low, why=_stream_reason(placer, table[placer]))
                    for placer in STREAM_PLACERS[2:]
                ]  # fmt: skip
    return lines


def _chart(lines: Sequence[Line]) -> Chart:
    """How many wins, ties and losses on each axis."""
    axes = list(dict.fromkeys(line.where.partition(",")[0] for line in lines))
    series = tuple(
        Series(
            word,
            tuple(
                float(sum(line.where.partition(",")[0] == axis and line.verdict is verdict for line in lines))
                for axis in axes
            ),
            Style.BARS,
        )
        for word, verdict in (("win", Agreement.BETTER), ("tie", Agreement.TIE), ("lose", Agreement.WORSE))
    )
    panel = Panel("lines won, tied and lost", "", "lines", series, tuple(axes))
    return Chart("ours", "The better policies against the published ones", (panel,), columns=1)
