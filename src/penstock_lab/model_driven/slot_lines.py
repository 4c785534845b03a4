"""Figs 7 and 8 of model-driven scheduling: slots for a rate, and the rate reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.pictures.chart import Chart, Panel, Series, Style
from penstock_lab.judging import Good, claimed, compared
from penstock_lab.model_driven.cases import (
    APPLICATION_RATES,
    APPLICATIONS,
    COMPARED,
    MICRO,
    MICRO_RATES,
    without_ends,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock_lab.contract import Line, Measures, Results
    from penstock_lab.published_file import Published

SHAPE = "the shape of the pipeline is chosen, not published"
PLACEHOLDERS = "CPU of the file write task is not published; its model is a placeholder"
TASKS = {"blob": "B", "table": "T"}
"""Operators of the micro pipelines by the words of the ids."""
_WHY_LOST = {
    "lsa+rsm": "threads that share a slot do less than LSA counts on, by models that are coarse at few threads",
    "mba+sam": "an equal share for every thread overfeeds partial bundles",
}


def slot_lines(results: Results, published: Published) -> list[Line]:
    return [
        *_micro_slots(results, published),
        *_micro_totals(results, published),
        *_micro_demands(results, published),
        *_rates(results, published),
        *_applications(results, published),
    ]


def _found(results: Results, name: str, rate: int, pair: str) -> Measures:
    return results.only(part="slots", pipeline=name, rate=rate, pair=pair)


def _all(results: Results, names: Iterable[str], pair: str) -> list[Measures]:
    return [result.measures for name in names for result in results.where(part="slots", pipeline=name, pair=pair)]


def _micro_slots(results: Results, published: Published) -> list[Line]:
    lines = []
    for name in MICRO:
        for rate in MICRO_RATES:
            for pair in COMPARED:
                allocator, _, placer = pair.partition("+")
                measures = _found(results, name, rate, pair)
                for what, ours, value in (
                    ("slots allocated", measures["allocated"], published.get(f"fig7.{name}.{rate}.{allocator}.slots")),
                    ("slots added by placing", measures["extra"], published.get(f"fig7.{name}.{rate}.{placer}.extra")),
                ):
                    if value is None:
                        continue
                    why = _why_slots(measures) if what == "slots allocated" else "the order of threads is not published"
                    where = f"Fig 7, {name} at {rate}, {pair}"
                    lines.append(compared(where, what, value, ours, within=0.0, good=Good.LOW, why=why))
    return lines


def _why_slots(measures: Measures) -> str:
    total = without_ends(measures["operators"])
    return f"{100 * max(total['cpu'], total['memory']):.0f} % of a slot by the models; with source and sink one more"


def _micro_totals(results: Results, published: Published) -> list[Line]:
    lsa, mba = (_all(results, MICRO, pair) for pair in COMPARED)
    ratios = [a["allocated"] / b["allocated"] for a, b in zip(lsa, mba, strict=True)]
    threads = [
        without_ends(b["operators"])["threads"] / without_ends(a["operators"])["threads"]
        for a, b in zip(lsa, mba, strict=True)
    ]
    mean = sum(ratios) / len(ratios)
    added = [sum(1 for measures in cases if measures["extra"] > 0) for cases in (lsa, mba)]
    grown = [sum(1 for measures in cases if measures["growth"] > 0) for cases in (lsa, mba)]
    total = len(lsa)
    return [
        claimed(
            "Fig 7",
            "LSA's slots against MBA's",
            published["fig7.lsa-more"],
            holds=min(ratios) > 1,
            ours=f"{min(ratios):.2g} to {max(ratios):.2g} times as many",
        ),
        compared(
            "Fig 7",
            "LSA's slots over MBA's, mean",
            published["fig7.lsa-over-mba"],
            mean,
            within=0.15,
            why=", ".join(
                f"{name} {sum(ratios[len(MICRO_RATES) * at :][: len(MICRO_RATES)]) / len(MICRO_RATES):.2g}"
                for at, name in enumerate(MICRO)
            ),
        ),
        compared(
            "Fig 7",
            "MBA's threads over LSA's, mean",
            published["fig7.threads"],
            sum(threads) / total,
            within=0.15,
            why=f"{min(threads):.2g} to {max(threads):.2g} over the nine cases",
        ),
        compared(
            "Fig 7",
            "cases in which RSM adds slots",
            published["fig7.rsm.with-extra"],
            added[0],
            within=0.0,
            good=Good.LOW,
            why=_with_ends(grown[0]),
        ),
        compared(
            "Fig 7",
            "cases in which SAM adds slots",
            published["fig7.sam.with-extra"],
            added[1],
            within=0.0,
            good=Good.LOW,
            why=_with_ends(grown[1]),
        ),
    ]


def _with_ends(grown: int) -> str:
    return f"source and sink are placed but not allocated; with them in the allocation it is {grown}"


def _micro_demands(results: Results, published: Published) -> list[Line]:
    """Threads, CPU and memory of operators, and of whole pipelines."""
    lines = []
    for value in published.values:
        parts = value.id.split(".")
        if parts[0] != "fig7" or len(parts) < 5 or parts[-1] not in {"threads", "cpu", "memory"}:
            continue
        allocator = parts[-2]
        pair = next(pair for pair in COMPARED if pair.startswith(allocator))
        name, rate, quantity = parts[1], int(parts[2]), parts[-1]
        operators = _found(results, name, rate, pair)["operators"]
        task = parts[3] if len(parts) == 6 else None
        ours: float = (operators[TASKS[task]] if task else without_ends(operators))[quantity]
        what = f"{quantity} of {task or 'all tasks'} by {allocator}"
        ours = ours if quantity == "threads" else 100 * ours
        why = PLACEHOLDERS if task is None else value.note
        lines.append(compared(f"Fig 7, {name} at {rate}", what, value, ours, within=0.02, why=why))
    return lines


def _rates(results: Results, published: Published) -> list[Line]:
    lines = []
    for name in (*MICRO, *APPLICATIONS):
        figure = "fig7" if name in MICRO else "fig8"
        for result in results.where(part="slots", pipeline=name):
            rate, pair = result.case["rate"], result.case["pair"]
            value = published.get(f"{figure}.{name.removeprefix('app-')}.{rate}.{pair}.rate")
            if value is None:
                continue
            why = f"simulated with shuffle routing; {SHAPE}" if name in APPLICATIONS else _why_rate(result.measures)
            where = f"Fig {figure[3:]}, {name} at {rate}, {pair}"
            lines.append(compared(where, "stable rate", value, result.measures["actual"], good=Good.HIGH, why=why))
    for figure, names in (("fig7", MICRO), ("fig8", APPLICATIONS)):
        for pair in COMPARED:
            ours = [result for name in names for result in results.where(part="slots", pipeline=name, pair=pair)]
            lost = [100 * (1 - result.measures["actual"] / result.case["rate"]) for result in ours]
            aware = sum(1 for result in ours if result.measures["slot_aware_reaches_the_rate"])
            value = published[f"{figure}.{pair}.lost-rate"]
            what = f"rate missed by {pair}, at most"
            why = f"{_WHY_LOST[pair]}; with slot-aware routing {aware} of {len(ours)} reach the planned rate"
            lines.append(compared(f"Fig {figure[3:]}", what, value, max(lost), good=Good.LOW, why=why))
    return lines


def _why_rate(measures: Measures) -> str:
    return (
        f"the models support {measures['predicted_shuffle']:.0f} under shuffle, {measures['predicted']:.0f} slot-aware"
    )


def _applications(results: Results, published: Published) -> list[Line]:
    cases = [(name, rate) for name in APPLICATIONS for rate in APPLICATION_RATES]
    placed = {
        (name, rate, pair): _found(results, name, rate, pair)["placed"] for name, rate in cases for pair in COMPARED
    }
    extra = {
        (name, rate, pair): _found(results, name, rate, pair)["extra"] for name, rate in cases for pair in COMPARED
    }
    fewer = [100 * (1 - placed[*case, "mba+sam"] / placed[*case, "lsa+rsm"]) for case in cases]
    rsm = [extra[*case, "lsa+rsm"] for case in cases]
    sam = [case for case in cases if extra[*case, "mba+sam"] > 0]
    least = min(cases, key=lambda case: 1 - placed[*case, "mba+sam"] / placed[*case, "lsa+rsm"])
    ratios = [
        placed["app-grid", rate, pair] / placed["app-finance", rate, pair]
        for rate in APPLICATION_RATES
        for pair in COMPARED
    ]
    twice = [
        placed[name, rate, "lsa+rsm"] / placed[name, rate, "mba+sam"]
        for name in ("app-traffic", "app-grid")
        for rate in APPLICATION_RATES
    ]
    lines = [
        _spread(
            "Fig 8", "LSA+RSM's slots over MBA+SAM's, traffic and grid, least", published["fig8.over-twice"], min(twice)
        ),
        _spread("Fig 8", "slots MBA+SAM saves, least", published["fig8.fewer"], min(fewer)),
        _spread("Fig 8", "slots MBA+SAM saves, most", published["fig8.fewer"], max(fewer)),
        claimed(
            "Fig 8",
            "cases in which RSM adds slots",
            published["fig8.rsm-extra-all"],
            holds=min(rsm) > 0,
            ours=f"{sum(1 for added in rsm if added > 0)} of {len(rsm)}",
            why=SHAPE,
        ),
        _spread("Fig 8", "slots RSM adds, most", published["fig8.rsm.extra"], max(rsm)),
        claimed(
            "Fig 8",
            "cases in which SAM adds slots",
            published["fig8.sam-extra"],
            holds=sam == [("app-grid", 50)],
            ours=", ".join(f"{name} at {rate}" for name, rate in sam) or "none",
            why=SHAPE,
        ),
        claimed(
            "Fig 8",
            "who gains least",
            published["fig8.finance-least"],
            holds=least[0] == "app-finance",
            ours=f"{least[0]} at {least[1]}",
            why=SHAPE,
        ),
        _spread(
            "Fig 8", "most slots of LSA+RSM", published["fig8.most"], max(placed[*case, "lsa+rsm"] for case in cases)
        ),
        _spread("Fig 8", "Grid's slots over Finance's, least", published["fig8.grid-over-finance"], min(ratios)),
        _spread("Fig 8", "Grid's slots over Finance's, most", published["fig8.grid-over-finance"], max(ratios)),
    ]
    for rate in APPLICATION_RATES:
        saved = placed["app-finance", rate, "lsa+rsm"] - placed["app-finance", rate, "mba+sam"]
        lines.append(
            _spread(f"Fig 8, app-finance at {rate}", "slots saved", published[f"fig8.finance.{rate}.fewer"], saved)
        )
    return lines


def _spread(where: str, what: str, value: Any, ours: float) -> Line:
    return compared(where, what, value, ours, within=0.1, why=SHAPE)


def slot_charts(results: Results, published: Published) -> list[Chart]:
    return [
        Chart(
            "slots",
            "Slots for a rate (Figs 7 and 8)",
            tuple(_slot_panel(results, published, name) for name in (*MICRO, *APPLICATIONS)),
            "Solid: allocated. Hatched: added by the placer. Diamonds: published (allocated).",
        ),
        Chart(
            "stable-rate",
            "Stable rate of the planned rate (Figs 7 and 8)",
            tuple(_rate_panel(results, published, name) for name in (*MICRO, *APPLICATIONS)),
            "Simulated with shuffle routing, in steps of 5 tuples/s. Diamonds: published.",
        ),
    ]


def _rates_of(results: Results, name: str) -> list[int]:
    return [result.case["rate"] for result in results.where(part="slots", pipeline=name, pair=COMPARED[0])]


def _slot_panel(results: Results, published: Published, name: str) -> Panel:
    rates = _rates_of(results, name)
    series = []
    for pair in COMPARED:
        cases = [_found(results, name, rate, pair) for rate in rates]
        reported = [published.get(f"fig7.{name}.{rate}.{pair.partition('+')[0]}.slots") for rate in rates]
        series.append(Series(pair, tuple(float(measures["allocated"]) for measures in cases)))
        extra = tuple(float(measures["extra"]) for measures in cases)
        series.append(Series(f"{pair}: added", extra, Style.STACKED, beside=pair))
        if any(reported):
            values = tuple(None if value is None else value.value for value in reported)
            series.append(Series("published", values, Style.PUBLISHED, beside=pair))
    return Panel(name, "tuples/s", "slots", tuple(series), tuple(map(str, rates)))


def _rate_panel(results: Results, published: Published, name: str) -> Panel:
    rates = _rates_of(results, name)
    figure = "fig7" if name in MICRO else "fig8"
    series = []
    for pair in COMPARED:
        cases = [_found(results, name, rate, pair) for rate in rates]
        reported = [published.get(f"{figure}.{name.removeprefix('app-')}.{rate}.{pair}.rate") for rate in rates]
        reached = tuple(100 * measures["actual"] / rate for measures, rate in zip(cases, rates, strict=True))
        series.append(Series(pair, reached))
        if any(reported):
            parts = tuple(
                None if value is None else 100 * value.number / rate
                for value, rate in zip(reported, rates, strict=True)
            )
            series.append(Series("published", parts, Style.PUBLISHED, beside=pair))
    return Panel(name, "planned, tuples/s", "% of the planned rate", tuple(series), tuple(map(str, rates)))
