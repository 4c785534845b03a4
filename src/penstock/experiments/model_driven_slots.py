"""Figs 7 and 8 of model-driven scheduling: slots for a rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.experiments.judging import Good, claimed, compared
from penstock.experiments.model_driven_cases import APPLICATIONS, COMPARED, MICRO, without_ends
from penstock.pictures.chart import Chart, Panel, Series, Style

if TYPE_CHECKING:
    from penstock.experiments.contract import Line, Results
    from penstock.experiments.published_file import Published

SHAPE = "the shape of the pipeline is chosen, not published"


def slot_lines(results: Results, published: Published) -> list[Line]:
    lines: list[Line] = []
    for name in MICRO:
        for rate in (50, 100, 200):
            for pair in COMPARED:
                allocator, _, placer = pair.partition("+")
                found = results.only(part="slots", pipeline=name, rate=rate, pair=pair)
                where = f"Fig 7, {name} at {rate}"
                value = published.get(f"fig7.{name}.{rate}.{allocator}.slots")
                if value is not None:
                    lines.append(
                        compared(
                            where,
                            f"slots allocated by {allocator}",
                            value,
                            found["allocated"],
                            within=0.0,
                            good=Good.LOW,
                        )
                    )
                value = published.get(f"fig7.{name}.{rate}.{placer}.extra")
                if value is not None:
                    lines.append(
                        compared(where, f"slots added by {placer}", value, found["extra"], within=0.0, good=Good.LOW)
                    )
    return lines


def slot_chart(results: Results, published: Published) -> Chart:
    panels = []
    for name in (*MICRO, *APPLICATIONS):
        rates = [one.case["rate"] for one in results.where(part="slots", pipeline=name, pair=COMPARED[0])]
        series = []
        for pair in COMPARED:
            found = [results.only(part="slots", pipeline=name, rate=rate, pair=pair) for rate in rates]
            series.append(Series(pair, tuple(float(one["allocated"]) for one in found)))
            series.append(
                Series(
                    f"{pair}: added by placing", tuple(float(one["extra"]) for one in found), Style.STACKED, beside=pair
                )
            )
        panels.append(Panel(name, "tuples/s", "slots", tuple(series), tuple(map(str, rates))))
    return Chart("slots", "Slots for a rate (Figs 7 and 8)", tuple(panels))
