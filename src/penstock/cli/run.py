"""`penstock run`: a pipeline or a plan on embedded Spark, predicted beside measured."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, ModelsOption
from penstock.cli.report_lines import (
    error_text,
    headline,
    highest_line,
    ids_line,
    latency_line,
    operators_table,
    trials_table,
)
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from penstock.report.result import RunResult


def run(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE",
            help="A built-in pipeline (linear, star, ...), a file (.yaml, .json), module:attribute, or a plan file.",
        ),
    ],
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            help="Tuples/s of every source: 100, steps:SECONDSxRATE,..., on-off:RATE,ON,OFF (seconds), or "
            "trace:FILE.csv (columns time, rate). Default: the rate of the plan, where one is run.",
        ),
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="Slots; default: those of the plan, else one per core.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", help="How long, past the first batch; with --find-max, each trial.")
    ] = 20.0,
    warm_up: Annotated[float, typer.Option("--warm-up", help="Seconds at the start that do not count.")] = 5.0,
    find_max: Annotated[bool, typer.Option("--find-max", help="Look for the highest stable rate.")] = False,
    low: Annotated[float | None, typer.Option("--low", help="With --find-max: a rate that is surely stable.")] = None,
    high: Annotated[float | None, typer.Option("--high", help="With --find-max: no rate above this.")] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="End early, when all rows of the sources' files are processed.")
    ] = False,
    dead_letters: Annotated[
        Path | None, typer.Option("--dead-letters", help="Folder for dead letters, as JSON lines.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw rates, backlog and latency over time (.png, .svg, .pdf).")
    ] = None,
    placed: Annotated[
        bool,
        typer.Option("--placed", help="Every operator on the slot its plan names, on the cluster of `cluster up`."),
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", help="Placed, on the standalone cluster at spark://HOST:PORT.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Placed: where the run keeps its channels; on several machines, a shared one."),
    ] = None,
    routing: Annotated[
        str | None, typer.Option("--routing", help="Placed: shuffle or slot-aware; default: that of the plan.")
    ] = None,
    segmenter: Annotated[
        str | None,
        typer.Option("--segmenter", help="Placed: what runs as one where it sits together; default: ends."),
    ] = None,
    models: ModelsOption = None,
    json: JsonOption = False,
) -> None:
    """Run PIPELINE and report predicted beside measured: fused on embedded Spark, or placed on a cluster."""
    if placed or master is not None:
        unfit = {"--slots": slots, "--until-end": until_end, "--plot": plot}
        if named := [option for option, given in unfit.items() if given]:
            raise BadInputError(f"{', '.join(named)}: not for placed runs")
        from penstock import placed as running_placed
        from penstock.cli.placed_view import print_placed, watching

        with watching(seconds) as (heard, tell):
            placed_result = running_placed.run_placed(
                pipeline,
                rate,
                master=master,
                seconds=seconds,
                warm_up=warm_up,
                find_max=find_max,
                low=low,
                high=high,
                models=models,
                routing=routing,
                segmenter=segmenter,
                folder=folder,
                dead_letters=dead_letters,
                show=partial(_show, json=json),
                heard=heard,
                tell=tell,
            )
        print_placed(placed_result, json=json)
        return
    if folder is not None or routing is not None or segmenter is not None:
        raise BadInputError("--folder, --routing and --segmenter mean something only with --placed or --master")
    from penstock import running
    from penstock.cli.live import live_view
    from penstock.files import check_writable
    from penstock.pictures.canvas import check_ending
    from penstock.report.progress import Progress

    if plot is not None:
        check_ending(plot)
        check_writable(plot)

    progress = Progress()
    with live_view(progress):
        result = running.run(
            pipeline,
            rate,
            slots=slots,
            seconds=seconds,
            warm_up=warm_up,
            models=models,
            find_max=find_max,
            low=low,
            high=high,
            until_end=until_end,
            dead_letters=dead_letters,
            show=partial(_show, json=json),
            progress=progress,
        )
    if plot is not None:
        from penstock.pictures.run import draw_run

        draw_run(result, plot)
    if json:
        output.print_json(result.document())
    else:
        _print(result)
    if result.interrupted:
        raise typer.Exit(130)
    if result.report.audit.lost or result.report.audit.duplicated:
        raise typer.Exit(1)


def _show(sink: str, text: str, *, json: bool) -> None:
    """Standard output is for the report alone where a program reads it."""
    print(f"{sink}: {text}", file=sys.stderr if json else sys.stdout, flush=True)


def _print(result: RunResult) -> None:
    screen = output.console()
    report = result.report
    screen.print(headline(f"{result.pipeline} fused on {result.slots} slots", report))
    if result.searched:
        screen.print(highest_line(result.highest_rate))
        screen.print(trials_table(result.tried))
    screen.print(operators_table(report, result.threads))
    predicted = result.predicted_slot
    screen.print(
        output.table(
            "Slots",
            ("slot", "cpu predicted", "cpu", "memory MB predicted", "memory MB"),
            (
                (
                    str(slot),
                    "-" if predicted is None else output.share(predicted[0]),
                    output.share(cpu),
                    "-" if predicted is None else f"{predicted[1]:,.0f}",
                    f"{memory:,.0f}",
                )
                for slot, (cpu, memory) in report.slots.items()
            ),
        )
    )
    for line in _predictions(result):
        screen.print(f"predicted  {line}")
    screen.print(latency_line(report))
    screen.print(f"backlog    {report.backlog:,} tuples; engine {output.share(report.engine_cpu)} of a core")
    screen.print(ids_line(report))
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
