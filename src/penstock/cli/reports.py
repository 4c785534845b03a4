"""Reports of runs, for people or as JSON, and the exit code of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from penstock.cli import output
from penstock.report.result import PlacedResult, RunResult, error_text, ids_line, latency_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from penstock.cluster.topology import Slot
    from penstock.report.report import Report
    from penstock.report.result import TriedRate

SHOWN_ERRORS = 5


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


def slots_table(
    slots: Mapping[Slot, tuple[float, float]],
    predicted: Mapping[Slot, tuple[float, float]],
    most: int | None = None,
) -> Table:
    """Cores and MB of every slot; `predicted` may lack some."""
    return output.table(
        "Slots",
        ("slot", "cpu predicted", "cpu", "memory MB predicted", "memory MB"),
        (
            (
                str(slot),
                output.share(predicted[slot][0]) if slot in predicted else "-",
                output.share(cpu),
                f"{predicted[slot][1]:,.0f}" if slot in predicted else "-",
                f"{memory:,.0f}",
            )
            for slot, (cpu, memory) in slots.items()
        ),
        most=most,
    )


def print_report(result: Any, *, json: bool) -> None:
    """Print the report of a run of any engine. The exit code is 1 if rows were lost, doubled, or too many died, and
    130 after an interrupt."""
    if json:
        output.print_json(result.document())
    elif isinstance(result, RunResult):
        _print_fused(result)
    elif isinstance(result, PlacedResult):
        _print_placed(result)
    else:
        output.say(str(result))
    if result.interrupted:
        raise typer.Exit(130)
    if isinstance(result, RunResult | PlacedResult) and _is_wrong(result):
        raise typer.Exit(1)


def _is_wrong(result: RunResult | PlacedResult) -> bool:
    audit = result.report.audit
    wrong = bool(audit.lost or audit.duplicated) or audit.dead_share > result.report.max_dead_letter_ratio
    return wrong or (isinstance(result, PlacedResult) and (result.unsent or not result.obeyed))


def _print_head(screen: Console, result: RunResult | PlacedResult) -> None:
    screen.print(f"{result.headline}\n")
    if result.searched:
        screen.print(highest_line(result.highest_rate))
        screen.print(trials_table(result.tried))


def _print_fused(result: RunResult) -> None:
    screen = output.console()
    report, predicted = result.report, result.predicted_slot
    _print_head(screen, result)
    screen.print(operators_table(report, result.threads))
    screen.print(slots_table(report.slots, {} if predicted is None else dict.fromkeys(report.slots, predicted)))
    for line in _predictions(result):
        screen.print(f"predicted  {line}")
    if result.predicted_latency_ms is not None:
        where = "of a batch" if result.own_source else "at the rate offered"
        screen.print(f"predicted  latency {output.latencies(result.predicted_latency_ms)} {where}")
    if result.predicted_latency_ms_at_pace is not None:
        latencies = output.latencies(result.predicted_latency_ms_at_pace)
        screen.print(f"predicted  latency {latencies} on cores as fast as they were meanwhile")
    screen.print(latency_line(report))
    if report.backlog or not result.own_source:  # most sources of Spark's own do not say what waits in them
        screen.print(f"backlog    {report.backlog:,} tuples")
    if report.engine_cpu is not None:
        screen.print(f"engine     {output.share(report.engine_cpu)} of a core")
    screen.print(ids_line(report))
    for error in report.first_errors[:SHOWN_ERRORS]:
        screen.print(f"dead       {error}")
    for note in report.notes:
        screen.print(f"note       {note}")


def _predictions(result: RunResult) -> list[str]:
    error = error_text(result.rate_error)
    if result.predicted_rate is None:
        lines = ["nothing: no operator has a model"]
    else:
        lines = [f"at most {output.figure(result.predicted_rate)} tuples/s fused{error}"]
    if result.predicted_rate_at_pace is not None:
        lines.append(
            f"{output.figure(result.predicted_rate_at_pace)} tuples/s on cores as fast as they were meanwhile, "
            f"{result.pace:.2f} times as fast as when the models were measured{error_text(result.rate_error_at_pace)}"
        )
    if result.plan_rates is not None:
        rates = ", ".join(
            f"{output.figure(rate)} with {routing.replace('_', '-')} routing"
            for routing, rate in result.plan_rates.items()
        )
        lines.append(f"by the plan, for its own placement: {rates}")
    return lines


def _print_placed(result: PlacedResult) -> None:
    screen = output.console()
    report = result.report
    _print_head(screen, result)
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
    screen.print(slots_table(report.slots, result.predicted_slots))
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


# Plans of a controller's pipelines, as lines.

MOST_SLOTS_SHOWN = 12
"""Slots of a plan that are shown; `--json` has all."""


def plan_change_lines(change: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the plan before and the plan after a decision, and what moved."""
    if change is None:
        return
    threads = change["threads"]
    yield (
        f"plan: {change['why']}; {threads['kept']} threads stay, {threads['moved']} move, "
        f"{threads['started']} start, {threads['stopped']} stop"
    )
    for when in ("before", "after"):
        if change[when] is not None:
            first, *rows = plan_lines(change[when])
            yield f"{when}: {first}"
            yield from rows


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the policies and rates of a plan, and the threads and memory of its slots."""
    kept = plan["predicted_rate"]
    rate = f"{plan['rate']:g} tuples/s" + ("" if kept is None else f", keeps {kept:.4g}")
    yield f"{plan['engine']} by {plan['allocator']} and {plan['placer']} for {rate}"
    slots = list(plan["slots"].items())
    for place, row in slots[:MOST_SLOTS_SHOWN]:
        names = ", ".join(f"{count} {name}" for name, count in row.items() if name != "memory_mb")
        yield f"  {place}  {names or 'all operators'}  ({row['memory_mb']:g} MB)"
    if len(slots) > MOST_SLOTS_SHOWN:
        yield f"  and {len(slots) - MOST_SLOTS_SHOWN} slots more"
