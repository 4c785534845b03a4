"""The tables and the picture of E-Stream's evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.plugins import Chart, Panel, Series, Style, spans_decades
from penstock_lab.verdicts import claimed, compared, not_comparable, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_lab.contract import Line, Measures, Results
    from penstock_lab.published_values import Published

ROUND_ROBIN, E_STREAM = "round-robin", "eft"
RATES = (1000.0, 2000.0)
MOST = 50
RISE = 0.02
"""A response time, or a gain, rises if it ends this share above where it began; means scatter by 1 %."""
FALL = 0.005
"""A fairness degree falls, or is better, by more than this."""
ELSEWHERE = "published at 1,000 tuples/s only"
CALIBRATED = "the time of a tuple was calibrated with it"
FIGURES = {
    "top-n": ("TOP_N", "top_n", "Fig 5", "Fig 7"),
    "word-count": ("WordCount", "word_count", "Fig 6", "Fig 8"),
}


def response_lines(results: Results, published: Published) -> list[Line]:
    lines: list[Line] = []
    for topology, (title, key, figure, _) in FIGURES.items():
        for rate in RATES:
            where, what = f"{figure}, {title}, {rate:,.0f} tuples/s", f"mean response time of {MOST} pipelines"
            value = published[f"{key}_{rate:.0f}_response_ms"]
            at_most = _one(results, topology, rate, MOST, E_STREAM)
            if rate == RATES[0]:
                lines.append(not_comparable(where, what, value, shown(at_most["response_ms"], "ms"), CALIBRATED))
            else:
                why = (
                    f"{at_most['threads']} replicas an operator by the allocator; the document's parallelism is not "
                    "published"
                )
                lines.append(compared(where, what, value, at_most["response_ms"], why=why))
            row = _row(results, topology, rate, E_STREAM, "response_ms")
            lines.append(
                claimed(
                    where,
                    "response time with more pipelines",
                    published["response_rises"],
                    holds=row[-1] > (1 + RISE) * row[0],
                    ours=_listed(row, "ms"),
                    why="by earliest finish time links and cores keep room: the busiest link is "
                    f"{at_most['most_link']:.0%} used, the busiest node {at_most['most_cpu']:.0%}",
                )
            )
    for topology, (title, _, _, figure) in FIGURES.items():
        for rate in RATES:
            other = _row(results, topology, rate, ROUND_ROBIN, "response_ms")
            ours = _row(results, topology, rate, E_STREAM, "response_ms")
            gains = [b / a - 1 for a, b in zip(ours, other, strict=True)]
            where, what = f"{figure}, {title}, {rate:,.0f} tuples/s", "response time against round robin"
            seen = f"round robin {_listed(other, 'ms')}; E-Stream {_listed(ours, 'ms')}"
            value = published["response_shorter"]
            if rate != RATES[0]:
                lines.append(not_comparable(where, what, value, seen, ELSEWHERE))
                continue
            line = claimed(
                where,
                what,
                value,
                holds=gains[-1] > RISE and gains[-1] > gains[0] + RISE,
                ours=seen,
                why=f"shorter by {gains[0]:.1%} with one pipeline and by {gains[-1]:.1%} with the most"
                + (": the gain does not rise beyond noise" if gains[-1] > RISE else ""),
            )
            lines.append(line)
    return lines


def fairness_lines(results: Results, published: Published) -> list[Line]:
    lines: list[Line] = []
    why = "what is stable gets all it needs: the published degrees mean work that is never done"
    for rate in RATES:
        ours = _row(results, "top-n", rate, E_STREAM, "fairness")
        other = _row(results, "top-n", rate, ROUND_ROBIN, "fairness")
        figure = f"Fig 9, TOP_N, {rate:,.0f} tuples/s"
        value = published[f"top_n_{rate:.0f}_fairness"]
        what = f"fairness degree of {MOST} pipelines"
        lines.append(compared(figure, what, value, ours[-1], within=0.05, why=why))
        lines.append(
            claimed(
                figure,
                "fairness degree with more pipelines",
                published["fairness_falls"],
                holds=ours[-1] < ours[0] - FALL,
                ours=_listed(ours),
                why=why,
            )
        )
        gaps = [a - b for a, b in zip(ours, other, strict=True)]
        where, what = f"Fig 10, TOP_N, {rate:,.0f} tuples/s", "fairness degree against round robin"
        seen, value = f"round robin {_listed(other)}; E-Stream {_listed(ours)}", published["fairness_better"]
        if rate != RATES[0]:
            lines.append(not_comparable(where, what, value, seen, ELSEWHERE))
            continue
        holds = gaps[-1] > FALL and gaps[-1] > gaps[0]
        why_not = "round robin overloads no node and no link at this rate"
        lines.append(claimed(where, what, value, holds=holds, ours=seen, why=why_not))
    return lines


def _one(results: Results, topology: str, rate: float, count: int, placer: str) -> Measures:
    return results.only(topology=topology, rate=rate, pipelines=count, placer=placer)


def _row(results: Results, topology: str, rate: float, placer: str, measure: str) -> list[float]:
    return [float(_one(results, topology, rate, count, placer)[measure]) for count in results.values("pipelines")]


def _listed(values: Sequence[float], unit: str = "") -> str:
    return ", ".join(shown(value) for value in values) + (f" {unit}" if unit else "")


def chart(results: Results, published: Published) -> Chart:
    counts = tuple(float(count) for count in results.values("pipelines"))
    panels = []
    for measure, label in (("response_ms", "response time, ms"), ("fairness", "fairness degree")):
        for topology, (title, key, _, _) in FIGURES.items():
            for rate in RATES:
                series = [
                    Series(placer, tuple(_row(results, topology, rate, placer, measure)), Style.LINE, counts)
                    for placer in results.values("placer")
                ]
                value = published.get(f"{key}_{rate:.0f}_{measure}")
                if value is not None:
                    series.append(
                        Series("eft, published", (value.number,), Style.PUBLISHED, (float(MOST),), beside=E_STREAM)
                    )
                panels.append(
                    Panel(f"{title}, {rate:,.0f}/s", "pipelines", label, tuple(series), log_y=spans_decades(series))
                )
    return Chart("e-stream", "E-Stream's evaluation, simulated", tuple(panels), columns=4)
