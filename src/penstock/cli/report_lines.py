"""What the reports of fused and placed runs print alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from penstock.report.report import Report
    from penstock.report.result import TriedRate


def headline(what: str, report: Report) -> str:
    verdict = "stable" if report.stable else "falls behind"
    return (
        f"{what}: offered {output.figure(report.offered_rate)}, sustained {output.figure(report.sustained_rate)} "
        f"tuples/s ({verdict}) over {report.seconds:.1f} s\n"
    )


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


def latency_line(report: Report) -> str:
    found = ", ".join(f"{name} {output.figure(value)} ms" for name, value in report.latency_ms.items())
    return f"latency    {found or '-'}"


def ids_line(report: Report) -> str:
    audit = report.audit
    return (
        f"ids        {audit.emitted:,} emitted, {audit.lost} lost, {audit.duplicated} duplicated, "
        f"{audit.filtered} filtered, {audit.dead} dead letters"
    )


def error_text(rate_error: float | None) -> str:
    return "" if rate_error is None else f" (error {100 * rate_error:+.1f} %)"


def highest_line(highest_rate: float | None) -> str:
    found = "none of the rates tried" if highest_rate is None else f"{output.figure(highest_rate)} tuples/s"
    return f"highest stable rate: {found}\n"


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
