"""What the reports of fused and placed runs print alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from penstock.report.report import Report
    from penstock.report.result import TriedRate


def operators_table(report: Report, threads: Mapping[str, int] | None = None) -> Table:
    """With threads per slot, where every slot has the same."""
    columns = ("operator", *(("threads per slot",) if threads is not None else ()))
    return output.table(
        "Operators",
        (*columns, "received", "sent", "filtered", "dead", "busy seconds"),
        (
            (
                name,
                *((str(threads.get(name, 1)),) if threads is not None else ()),
                f"{seen.received:,}",
                f"{seen.sent:,}",
                f"{seen.filtered:,}",
                f"{seen.dead:,}",
                f"{seen.busy_seconds:.2f}",
            )
            for name, seen in report.operators.items()
        ),
    )


def highest_line(highest_rate: float | None) -> str:
    highest = "none of the rates tried" if highest_rate is None else f"{output.figure(highest_rate)} tuples/s"
    return f"highest stable rate: {highest}\n"


def trials_table(tried: Sequence[TriedRate]) -> Table:
    return output.table(
        "Trials",
        ("offered", "sustained", "verdict "),
        (
            (
                "more than can be done" if trial.saturated else output.figure(trial.rate),
                output.figure(trial.sustained_rate),
                "saturated" if trial.saturated else "stable" if trial.stable else "falls behind",
            )
            for trial in tried
        ),
    )
