"""Reports of placed runs for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from penstock.cli import output
from penstock.cli.report_lines import highest_line, operators_table, trials_table
from penstock.report.words import error_text, ids_line, latency_line

if TYPE_CHECKING:
    from penstock.report.placed_result import PlacedResult


def print_placed(result: PlacedResult, *, json: bool) -> None:
    if json:
        output.print_json(result.document())
    else:
        _print(result)
    if result.interrupted:
        raise typer.Exit(130)
    audit = result.report.audit
    wrong = audit.lost or audit.duplicated or audit.dead_share > result.report.most_dead
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
