"""`penstock run`: a pipeline on embedded Spark, predicted beside measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, ModelsOption, PipelineArgument

if TYPE_CHECKING:
    from penstock.report.report import BatchObservation
    from penstock.running import RunResult


def run(
    pipeline: PipelineArgument,
    rate: Annotated[
        str,
        typer.Option(
            "--rate",
            help="Tuples/s of every source: 100, steps:SECONDSxRATE,..., or on-off:RATE,ON,OFF (seconds).",
        ),
    ],
    slots: Annotated[int | None, typer.Option("--slots", min=1, help="Slots; default: one per core.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="How long, past the first batch.")] = 20.0,
    warm_up: Annotated[float, typer.Option("--warm-up", help="Seconds at the start that do not count.")] = 5.0,
    models: ModelsOption = None,
    json: JsonOption = False,
) -> None:
    """Run PIPELINE fused on embedded Spark, and report predicted beside measured."""
    from rich.console import Console

    from penstock import running

    errors = Console(stderr=True)
    live = errors.is_terminal
    with errors.status("starting Spark", spinner="line") if live else _Nothing() as status:

        def watch(batch: BatchObservation) -> None:
            latency = f"{1000 * batch.latencies.mean():,.0f} ms" if len(batch.latencies) else "-"
            status.update(f"{batch.tuples:,} tuples in the last batch, latency {latency}")

        def building(rows: int, of: int) -> None:
            status.update(f"building the reference table, once: {rows:,} of {of:,} rows")

        result = running.run(
            pipeline,
            rate,
            slots=slots,
            seconds=seconds,
            warm_up=warm_up,
            models=models,
            watch=watch,
            building=building,
        )
    if json:
        output.print_json(result.document())
    else:
        _print(result)
    if result.report.audit.lost or result.report.audit.duplicated:
        raise typer.Exit(1)


class _Nothing:
    """A status line nobody looks at."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, _: str) -> None:
        return None


def _print(result: RunResult) -> None:
    screen = output.console()
    report = result.report
    verdict = "stable" if report.stable else "falls behind"
    screen.print(
        f"[bold]{result.pipeline}[/] fused on {result.slots} slots: offered {output.figure(report.offered_rate)}, "
        f"sustained [bold]{output.figure(report.sustained_rate)}[/] tuples/s ({verdict}) over {report.seconds:.1f} s\n"
    )
    screen.print(
        output.table(
            "Operators",
            ("operator", "threads per slot", "received", "sent", "filtered", "dead", "busy seconds"),
            (
                (
                    name,
                    str(result.threads.get(name, 1)),
                    f"{seen.received:,}",
                    f"{seen.sent:,}",
                    f"{seen.filtered:,}",
                    f"{seen.dead:,}",
                    f"{seen.busy_seconds:.2f}",
                )
                for name, seen in report.operators.items()
            ),
        )
    )
    screen.print(
        output.table(
            "Slots",
            ("slot", "cpu", "memory MB"),
            ((str(slot), output.share(cpu), f"{memory:,.0f}") for slot, (cpu, memory) in report.slots.items()),
        )
    )
    latency = ", ".join(f"{name} {output.figure(value)} ms" for name, value in report.latency_ms.items())
    error = "" if result.rate_error is None else f" (error {100 * result.rate_error:+.1f} %)"
    screen.print(f"predicted  at most {output.figure(result.predicted_rate)} tuples/s{error}")
    screen.print(f"latency    {latency or '-'}")
    screen.print(f"backlog    {report.backlog:,} tuples; engine {output.share(report.engine_cpu)} of a core")
    screen.print(
        f"ids        {report.audit.emitted:,} emitted, {report.audit.lost} lost, {report.audit.duplicated} duplicated, "
        f"{report.audit.filtered} filtered, {report.audit.dead} dead letters"
    )
    for note in report.notes:
        screen.print(f"[yellow]note[/]       {note}")
