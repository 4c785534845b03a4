"""Reports of runs for people, as far as fused and placed runs print alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from penstock.cli import output
from penstock.report.result import error_text, ids_line, latency_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from penstock.report.report import Report
    from penstock.report.result import PlacedResult, TriedRate


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


def print_placed(result: PlacedResult, *, json: bool) -> None:
    if json:
        output.print_json(result.document())
    else:
        _print(result)
    if result.interrupted:
        raise typer.Exit(130)
    audit = result.report.audit
    wrong = audit.lost or audit.duplicated or audit.dead_share > result.report.max_dead_letter_ratio
    if wrong or result.unsent or not result.obeyed:
        raise typer.Exit(1)


def _print(result: PlacedResult) -> None:
    screen = output.console()
    report = result.report
    screen.print(f"{result.headline}\n")
    if result.searched:
        screen.print(highest_line(result.highest_rate))
        screen.print(trials_table(result.tried))
    screen.print(operators_table(report))
    screen.print(
        output.table(
            "Bundles",
            ("operators", "planned ", "Spark says ", "executor", "process"),
            (
                (
                    "+".join(place.operators),
                    str(place.planned),
                    ", ".join(f"{name}[{','.join(addresses)}]" for name, addresses in place.resources.items())
                    + ("" if place.obeyed else "  NOT WHERE PLANNED"),
                    place.executor or "-",
                    str(place.process or "-"),
                )
                for place in result.places
            ),
        )
    )
    screen.print(
        output.table(
            "Slots",
            ("slot", "cpu predicted", "cpu measured", "MB predicted", "MB measured"),
            (
                (
                    str(slot),
                    output.share(result.predicted_slots[slot][0]) if slot in result.predicted_slots else "-",
                    output.share(cpu),
                    f"{result.predicted_slots[slot][1]:,.0f}" if slot in result.predicted_slots else "-",
                    f"{memory:,.0f}",
                )
                for slot, (cpu, memory) in report.slots.items()
            ),
        )
    )
    error = error_text(result.rate_error)
    screen.print(
        f"predicted  {output.figure(result.predicted_rate)} tuples/s{error}: the slots of the plan support "
        f"{output.figure(result.slots_rate)}, processes and the cores they share {output.figure(result.engine_rate)}"
    )
    screen.print(latency_line(report))
    screen.print(f"backlog    {report.backlog:,} tuples")
    screen.print(ids_line(report))
    for change in result.changes:
        onto = f" onto {change.plan}" if change.plan else ""
        screen.print(
            f"changed    drained in {change.drained:.1f} s, resumed{onto} in {change.resumed:.1f} s: "
            f"{change.seconds:.1f} s in all"
        )
    screen.print(f"took       {result.start_seconds:.1f} s to start, {result.drain_seconds:.1f} s to drain")
    screen.print(f"folder     {result.folder}")
    for note in report.notes:
        screen.print(f"note       {note}")
