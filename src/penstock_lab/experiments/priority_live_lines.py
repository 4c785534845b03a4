"""The use cases' table: who is lower in the document, and who is here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_lab.contract import Agreement, Line, Measures, Results
from penstock_lab.experiments.priority import DYNAMIC, SHORT, SHORT_2, STATIC
from penstock_lab.verdicts import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_lab.published_values import Published

ORDERS = (
    (1, "TE", "BG=60", "Fig 10", "TE, seconds to infer a complex event", DYNAMIC, STATIC),
    (1, "TT high", "BG=60", "Fig 11", "TT, higher priority, seconds", DYNAMIC, STATIC),
    (1, "TT low", "Shigh=0.2", "Fig 15", "TT, lower priority, seconds", STATIC, DYNAMIC),
    (2, "TT high", "rate=40", "Fig 35", "TT, higher priority, seconds", DYNAMIC, STATIC),
    (2, "TT low", "rate=40", "Fig 37", "TT, lower priority, seconds", STATIC, DYNAMIC),
)
"""Use case, measure, where it is published, and who is lower there."""
DIFFERS_BY = {
    (1, "TE"): "the batch within which slots change waits for it; so few others have events here",
    (
        1,
        "TT high",
    ): "the batch within which slots change takes twice as long: one of twenty-four here, of eighty there",
    (2, "TT low"): "a batch costs the engine twice what a tuple takes, on one slot as on two",
}
"""What is known of why, by use case and measure."""
TUNED = "the same order, in one run; batches and rates were changed until every order came out, so it shows nothing"


def live_lines(results: Results, published: Published) -> Sequence[Line]:
    lines = []
    for use, measure, point, figure, what, lower, higher in ORDERS:
        if not all(results.where(use=use, policy=policy) for policy in (lower, higher)):
            continue
        nodes = SHORT if use == 1 else SHORT_2
        here = {policy: results.only(use=use, policy=policy) for policy in (lower, higher)}
        there = {policy: published[f"{measure} {point} {policy}@{nodes}"].number for policy in here}
        differs_by = DIFFERS_BY.get((use, measure), "the other order here")
        lines.append(_order_line(f"{figure}, {point}", what, there, here, measure, differs_by))
    lines += [
        Line(
            f"use case {result.case['use']}, {result.case['policy']}",
            "slots with the trigger off, on; seconds; tuples not there once, batches misjudged",
            "",
            f"{result.measures['nodes_off']}, {result.measures['nodes_on']}; {_all_seconds(result.measures)}"
            f"{_each(result.measures)}; {result.measures['lost']}{_misjudged(result.measures)}",
            Agreement.NOT_COMPARABLE,
            "at another scale",
        )
        for result in results
    ]
    return lines


def _order_line(
    where: str, what: str, there: dict[str, float], here: dict[str, Measures], measure: str, differs_by: str
) -> Line:
    """Whether who is lower in the document, the first of the two, is lower here."""
    values = [measures[measure] for measures in here.values()]
    simulated = ", ".join(f"{policy} {_seconds(measures['simulated'][measure])}" for policy, measures in here.items())
    seen = ", ".join(f"{policy} {_seconds(value)}" for policy, value in zip(here, values, strict=True))
    ours = f"{seen} (simulated: {simulated})"
    published = ", ".join(f"{policy} {shown(value)}" for policy, value in there.items())
    if None in values:
        return Line(where, what, published, ours, Agreement.NOT_COMPARABLE, "nothing came to its end")
    if values[0] < values[1]:
        return Line(where, what, published, ours, Agreement.NOT_COMPARABLE, TUNED)
    return Line(where, what, published, ours, Agreement.DIFFERS, differs_by)


def _all_seconds(measures: Measures) -> str:
    known = (("TE", "T_E"), ("TT high", "T_T high"), ("TT low", "T_T low"), ("O", "O"))
    return ", ".join(f"{shown_as} {_seconds(measures[name])}" for name, shown_as in known if name in measures)


def _each(measures: Measures) -> str:
    """T_E of every batch with events, one after the other."""
    return f" ({', '.join(f'{seconds:.1f}' for seconds in measures['TE each'])})" if measures.get("TE each") else ""


def _misjudged(measures: Measures) -> str:
    """Where there is a detector."""
    return f", {measures['misjudged']}" if "misjudged" in measures else ""


def _seconds(value: float | None) -> str:
    return "none" if value is None else shown(value)
