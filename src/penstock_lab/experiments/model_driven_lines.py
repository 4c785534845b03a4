"""Figs 7 and 8 of model-driven scheduling: slots for a rate, and the rate reached."""

from __future__ import annotations

from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from penstock.plugins import Chart, Panel, Series, Style
from penstock_lab.experiments.model_driven_cases import (
    APPLICATION_RATES,
    APPLICATIONS,
    COMPARED,
    MICRO,
    MICRO_RATES,
    PAIRS,
    without_ends,
)
from penstock_lab.verdicts import End, Good, claimed, compared, not_comparable, r_squared, r_squared_of_identity, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock_lab.contract import Line, Measures, Results
    from penstock_lab.published_values import Published, Value


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
    return compared(where, what, value, ours, within=0.1, end=_end(what), why=SHAPE)


def _end(what: str) -> End | None:
    """Return the end of a published range that a least or a most of ours is compared with."""
    if what.endswith("least"):
        return End.LEAST
    return End.MOST if what.endswith("most") else None


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


# Figs 9 to 13 of model-driven scheduling: five policy pairs on five nodes.


SIMULATED = "simulated, with shuffle routing"
SAME_MODELS = "the simulation runs on the models the prediction uses: what differs is routing and rounding"
LEAST_LATENCY_GAP = 0.02
"""Latencies nearer than this share count as equal where an order is claimed."""
PUBLISHED_ORDER = (("mba+dsm",), ("lsa+dsm", "mba+rsm"), ("lsa+rsm",), ("mba+sam",))
"""Pairs by rising latency, as Fig 13 claims it."""


def rate_lines(results: Results, published: Published) -> list[Line]:
    return [
        *_threads(results, published),
        *_pair_rates(results, published),
        *_correlations(results, published),
        *_rate_claims(results, published),
        *_use(results, published),
        *_latency(results, published),
    ]


def _found_rate(results: Results, name: str, pair: str) -> Measures:
    return results.only(part="rates", pipeline=name, pair=pair)


def _placed(results: Results, names: Sequence[str] = MICRO, pairs: Sequence[str] = PAIRS) -> list[Measures]:
    """Those with a plan at all."""
    every = [_found_rate(results, name, pair) for name in names for pair in pairs]
    return [measures for measures in every if measures["planned"]]


def _threads(results: Results, published: Published) -> list[Line]:
    lines = []
    for allocator, task, operator in (("lsa", "table", "T"), ("mba", "table", "T"), ("mba", "blob", "B")):
        value = published[f"fig9.linear.{allocator}.{task}.threads"]
        pair = "lsa+dsm" if allocator == "lsa" else "mba+sam"
        ours = _found_rate(results, "linear", pair)["operators"][operator]["threads"]
        lines.append(compared(f"Fig 9, linear, {allocator}", f"threads of {task}", value, ours, within=0.0))
    return lines


def _pair_rates(results: Results, published: Published) -> list[Line]:
    lines = []
    for name in MICRO:
        for pair in PAIRS:
            measures = _found_rate(results, name, pair)
            for figure, kind in (("fig9", "planned"), ("fig10", "predicted"), ("fig10", "actual")):
                value = published.get(f"{figure}.{name}.{pair}.{kind}")
                if value is None:
                    continue
                where, what = f"Fig {figure[3:]}, {name}, {pair}", f"{kind} rate"
                if not measures["planned"]:
                    lines.append(not_comparable(where, what, value, "-", "the placer places no rate on 20 slots"))
                    continue
                why = {
                    "planned": f"the allocation fits up to {measures['allocated_rate']:g}; the placer places up to "
                    "this",
                    "predicted": "points between measured thread counts of the models are interpolated",
                    "actual": f"{SIMULATED}; the models support {measures['predicted_shuffle']:.0f} so",
                }[kind]
                good = Good.HIGH if kind == "actual" else Good.NEITHER
                lines.append(compared(where, what, value, measures[kind], good=good, why=why))
    return lines


def _correlations(results: Results, published: Published) -> list[Line]:
    lines = []
    better = []
    for name in MICRO:
        placed = _placed(results, [name])
        actual = [measures["actual"] for measures in placed]
        planned, predicted = ([measures[kind] for measures in placed] for kind in ("planned", "predicted"))
        for figure, kind, rates in (("fig9", "planned", planned), ("fig10", "predicted", predicted)):
            lines.append(
                _r2_line(
                    f"Fig {figure[3:]}, {name}",
                    f"R2 of {kind} and actual rate",
                    published[f"{figure}.r2"],
                    actual,
                    rates,
                )
            )
        ours = [r_squared_of_identity(actual, rates) for rates in (planned, predicted)]
        better.append((name, ours[0], ours[1]))
    lines.append(
        claimed(
            "Figs 9, 10",
            "whether prediction beats plan",
            published["fig10.better"],
            holds=all(a is not None and b is not None and b > a for _, a, b in better),
            ours="; ".join(f"{name} {_number(b)} against {_number(a)}" for name, a, b in better),
            why="1 - sum of squared errors over variance; MBA+SAM plans what is predicted, LSA underuses slots",
        )
    )
    return lines


def _r2_line(where: str, what: str, value: Value, x: Sequence[float], y: Sequence[float]) -> Line:
    ours = r_squared(x, y)
    if ours is None:
        return not_comparable(where, what, value, "-", "one of the two does not vary")
    return compared(where, what, value, ours, within=0.0, note=SAME_MODELS)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _rate_claims(results: Results, published: Published) -> list[Line]:
    gains = []
    for name in MICRO:
        for mba in PAIRS[2:]:
            for lsa in PAIRS[:2]:
                ours, theirs = _found_rate(results, name, mba), _found_rate(results, name, lsa)
                if ours["planned"] and theirs["planned"] and theirs["actual"]:
                    gains.append(100 * (ours["actual"] / theirs["actual"] - 1))
    sam = {name: _found_rate(results, name, "mba+sam") for name in MICRO}
    rsm = {name: _found_rate(results, name, "mba+rsm") for name in MICRO}
    higher = [name for name in MICRO if rsm[name]["planned"] and rsm[name]["actual"] > sam[name]["actual"]]
    lower = [name for name in MICRO if (rsm[name]["planned"] or 0) < sam[name]["planned"]]
    value = published["fig10.mba-over-lsa"]
    return [
        _spread_of_rates("least", value, min(gains)),
        _spread_of_rates("most", value, max(gains)),
        claimed(
            "Fig 9",
            "planned rate of MBA+RSM below MBA+SAM",
            published["fig9.rsm-lower"],
            holds=len(lower) == len(MICRO),
            ours=f"in {', '.join(lower) or 'none'}",
            why="RSM places as much as SAM does on 20 slots, or more",
        ),
        claimed(
            "Fig 10",
            "actual rate of MBA+RSM above MBA+SAM",
            published["fig10.rsm-over-sam"],
            holds=set(higher) == {"linear", "star"},
            ours=f"in {', '.join(higher) or 'none'}",
            why=SIMULATED,
        ),
    ]


def _spread_of_rates(text: str, value: Value, ours: float) -> Line:
    what = f"actual rate of MBA over LSA, {text}"
    return compared("Fig 10", what, value, ours, within=0.1, end=_end(what), why=SIMULATED)


def _shares(cases: Sequence[Measures], key: str, what: str) -> list[float]:
    """CPU or memory of every node, percent."""
    return [100 * node[what] for measures in cases for node in measures[key].values()]


def _use(results: Results, published: Published) -> list[Line]:
    lines = []
    for figure, what in (("fig11", "cpu"), ("fig12", "memory")):
        for name in MICRO:
            placed = [measures for measures in _placed(results, [name]) if measures["actual"]]
            actual, predicted = _shares(placed, "actual_nodes", what), _shares(placed, "predicted_nodes", what)
            text = f"R2 of predicted and actual {what} per node"
            lines.append(_r2_line(f"Fig {figure[3:]}, {name}", text, published[f"{figure}.r2"], actual, predicted))
    for allocator, pairs in (("lsa", PAIRS[:2]), ("mba", PAIRS[2:])):
        means = []
        for name in MICRO:
            for measures in _placed(results, [name], pairs):
                shares = _shares([measures], "actual_nodes", "cpu")
                means.append(sum(shares) / len(shares))
        value = published[f"fig11.{allocator}.mean"]
        for text, ours in (("least", min(means)), ("most", max(means))):
            what = f"mean CPU of the nodes with {allocator}, {text} of its plans"
            why = f"{SIMULATED}, without the engine's own CPU"
            lines.append(compared("Fig 11", what, value, ours, end=_end(text), why=why))
    for pair in ("lsa+rsm", "mba+rsm"):
        shares = _shares(_placed(results, ["linear"], [pair]), "actual_nodes", "cpu")
        value = published[f"fig11.linear.{pair}.range"]
        if not shares:
            lines.append(not_comparable("Fig 11, linear", f"CPU of the nodes, {pair}", value, "-", "no plan"))
            continue
        for text, ours in (("least", min(shares)), ("most", max(shares))):
            what = f"CPU of the {text} used node, {pair}"
            lines.append(compared("Fig 11, linear", what, value, ours, end=_end(text), why=SIMULATED))
    memory = sorted(_shares(_placed(results), "actual_nodes", "memory"))
    lines.append(
        compared(
            "Fig 12",
            "median memory of a node",
            published["fig12.median"],
            memory[len(memory) // 2],
            within=0.2,
            why="without what the engine itself holds",
        )
    )
    return lines


def _latency(results: Results, published: Published) -> list[Line]:
    """The document averages over what a tuple causes and orders by medians of that: both the mean and the median of all
    tuples are told, for they do not agree where branches differ."""
    cases = {(name, pair): _found_rate(results, name, pair) for name in MICRO for pair in PAIRS}
    done = {key: measures for key, measures in cases.items() if measures.get("actual")}
    means: dict[tuple[str, str], float] = {key: measures["latency_mean_ms"] for key, measures in done.items()}
    medians: dict[tuple[str, str], float] = {key: measures["latency_ms"]["p50"] for key, measures in done.items()}
    known = [pair for pair in PAIRS if all((name, pair) in done for name in MICRO)]
    ordered = [
        [pair for pair in known if by["diamond", pair] < by["star", pair] < by["linear", pair]]
        for by in (means, medians)
    ]
    (held, broken), (held_median, broken_median) = _chain(means), _chain(medians)
    above = [
        f"{name} {pair}"
        for (name, pair), measures in done.items()
        if measures["actual"] > measures["predicted_shuffle"] + 1
    ]
    assumed = "service times do not vary, and at its own highest rate every pair is loaded differently"
    return [
        claimed(
            "Fig 13",
            "order of the pipelines by latency",
            published["fig13.order"],
            holds=all(len(pairs) == len(known) for pairs in ordered),
            ours=f"holds for {len(ordered[0])} of {len(known)} pairs by the mean, {len(ordered[1])} by the median",
            why=assumed,
        ),
        claimed(
            "Fig 13",
            "order of the pairs by latency",
            published["fig13.pairs"],
            holds=not broken and not broken_median,
            ours=f"{held} of {held + len(broken)} comparisons hold by the mean, {held_median} by the median",
            why=f"by the mean, {'; '.join(broken[:3])}; {assumed}",
        ),
        not_comparable(
            "Fig 13",
            "p99 over mean, p99 over median",
            published["fig13.tail"],
            "; ".join(_tails(done, allocator) for allocator in ("mba", "lsa")),
            "who has the longer tail changes with the statistic and with how long is simulated: service times do not "
            f"vary, and at a rate that counts as stable a slot's queue may still grow slowly ({', '.join(above)})",
        ),
    ]


def _tails(done: dict[tuple[str, str], Measures], allocator: str) -> str:
    ours = [measures for (_, pair), measures in done.items() if pair.startswith(allocator)]
    mean = sum(measures["latency_ms"]["p99"] / measures["latency_mean_ms"] for measures in ours) / len(ours)
    median = sum(measures["latency_ms"]["p99"] / measures["latency_ms"]["p50"] for measures in ours) / len(ours)
    return f"{allocator.upper()} {shown(mean)}, {shown(median)}"


def _chain(means: dict[tuple[str, str], float]) -> tuple[int, list[str]]:
    """How many neighbours in the published order are in that order here, and those that are not."""
    held, broken = 0, []
    for name in MICRO:
        for earlier, later in pairwise(PUBLISHED_ORDER):
            for a, b in product(earlier, later):
                if (name, a) not in means or (name, b) not in means:
                    continue
                if means[name, a] <= (1 + LEAST_LATENCY_GAP) * means[name, b]:
                    held += 1
                else:
                    broken.append(f"{name}: {a} above {b}")
    return held, broken


def rate_charts(results: Results, published: Published) -> list[Chart]:
    return [
        Chart(
            "rates",
            "Planned and predicted against actual rate on five nodes (Figs 9 and 10)",
            (
                *(_pair_rate_panel(results, name, "planned") for name in MICRO),
                *(_pair_rate_panel(results, name, "predicted") for name in MICRO),
            ),
            "Actual: the highest stable rate simulated with shuffle routing. On the dotted line both are the same.",
        ),
        Chart(
            "use",
            "Predicted against actual CPU and memory of the nodes (Figs 11 and 12)",
            (
                *(_use_panel(results, name, "cpu") for name in MICRO),
                *(_use_panel(results, name, "memory") for name in MICRO),
            ),
            "One point per node and policy pair.",
        ),
        Chart(
            "latency",
            "Latency at the highest stable rate (Fig 13)",
            tuple(_latency_panel(results, name) for name in MICRO),
            "Bars: mean. Lines: from the 5th to the 99th percentile of all tuples that reach the sink.",
        ),
    ]


def _pair_rate_panel(results: Results, name: str, kind: str) -> Panel:
    series = []
    for pair in PAIRS:
        measures = _found_rate(results, name, pair)
        if measures["planned"]:
            series.append(Series(pair, (float(measures[kind]),), Style.POINTS, x=(float(measures["actual"]),)))
    return Panel(f"{name}: {kind}", "actual, tuples/s", f"{kind}, tuples/s", tuple(series), diagonal=True)


def _use_panel(results: Results, name: str, what: str) -> Panel:
    series = []
    for pair in PAIRS:
        measures = _found_rate(results, name, pair)
        if measures["planned"] and measures["actual"]:
            x, y = (tuple(_shares([measures], key, what)) for key in ("actual_nodes", "predicted_nodes"))
            series.append(Series(pair, y, Style.POINTS, x=x))
    return Panel(f"{name}: {what}", "actual, %", "predicted, %", tuple(series), diagonal=True)


def _latency_panel(results: Results, name: str) -> Panel:
    cases = [_found_rate(results, name, pair) for pair in PAIRS]
    spread: list[dict[str, Any]] = [measures.get("latency_ms", {}) for measures in cases]
    means = tuple(measures.get("latency_mean_ms") for measures in cases)
    low, high = (tuple(percentiles.get(part) for percentiles in spread) for part in ("p5", "p99"))
    return Panel(name, "", "ms", (Series("mean", means, low=low, high=high),), PAIRS)
