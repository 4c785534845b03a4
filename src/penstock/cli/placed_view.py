"""Placed runs for people: a live table while they go on, a report at the end."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from penstock.cli import output
from penstock.cli.report_lines import (
    error_text,
    headline,
    highest_line,
    ids_line,
    latency_line,
    operators_table,
    trials_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from penstock.report.placed_result import PlacedResult
    from penstock.spark.placed_run import PlacedRun

RECENT_SECONDS = 5.0


@contextmanager
def watching(seconds: float) -> Iterator[tuple[Callable[[PlacedRun, float], None], Callable[[str], None]]]:
    """Two functions for a run to call: with itself, often; and with what it has to say."""
    from rich.console import Console
    from rich.live import Live

    from penstock.clock import Stopwatch

    errors = Console(stderr=True)
    if not errors.is_terminal:
        yield (lambda _run, _seconds: None), (lambda text: errors.print(text, markup=False, highlight=False))
        return
    drawn = Stopwatch()
    with Live(console=errors, refresh_per_second=2, transient=True) as live:

        def heard(run: PlacedRun, ran: float) -> None:
            nonlocal drawn
            if drawn.seconds() > 1.0:
                drawn = Stopwatch()
                live.update(_figures(run, ran, seconds))

        yield heard, lambda text: live.console.print(text, markup=False, highlight=False)


def _figures(run: PlacedRun, ran: float, seconds: float) -> RenderableType:
    from penstock.clock import now
    from penstock.report.tickets import operators_of, slots_of

    recent = [one for one in run.tickets if one.finished > now() - RECENT_SECONDS]
    ended = sum(one.ended for one in recent)
    rows = [
        (
            name,
            f"{seen.received / RECENT_SECONDS:,.0f}",
            f"{100 * seen.busy_seconds / RECENT_SECONDS:.0f} %",
            f"{seen.dead}",
        )
        for name, seen in operators_of(recent).items()
    ]
    slots = ", ".join(
        f"{slot} {output.share(cpu)} {memory:,.0f} MB" for slot, (cpu, memory) in slots_of(recent).items()
    )
    title = (
        f"{ran:.0f} of {seconds:.0f} s; offered {output.figure(run.setup.load.mean_rate)}, at their end "
        f"{ended / RECENT_SECONDS:,.0f} tuples/s, backlog {run.dispatcher.backlog:,}; {slots}"
    )
    return output.table(title, ("operator", "tuples/s", "busy", "dead"), rows)


def print_placed(result: PlacedResult, *, json: bool) -> None:
    if json:
        output.print_json(result.document())
    else:
        _print(result)
    if result.interrupted:
        raise typer.Exit(130)
    if result.report.audit.lost or result.report.audit.duplicated or not result.obeyed:
        raise typer.Exit(1)


def _print(result: PlacedResult) -> None:
    screen = output.console()
    report = result.report
    screen.print(headline(f"{result.pipeline} placed, {result.routing} routing", report))
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
                    ", ".join(f"{name}[{','.join(found)}]" for name, found in place.resources.items())
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
            ("slot", "cpu predicted", "cpu measured", "memory MB"),
            (
                (
                    str(slot),
                    output.share(result.predicted_slots[slot][0]) if slot in result.predicted_slots else "-",
                    output.share(cpu),
                    f"{memory:,.0f}",
                )
                for slot, (cpu, memory) in report.slots.items()
            ),
        )
    )
    error = error_text(result.rate_error)
    screen.print(
        f"predicted  {output.figure(result.predicted_rate)} tuples/s{error}: the slots of the plan support "
        f"{output.figure(result.slots_rate)}, the cores they share here {output.figure(result.machine_rate)}"
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
