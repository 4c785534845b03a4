"""`penstock run`: a pipeline or a plan on embedded Spark, predicted beside measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.reports import highest_line, operators_table, trials_table
from penstock.cli.vocabulary import JsonOption, takes_run_options
from penstock.report.result import error_text, ids_line, latency_line
from penstock.runs.config import PLACED

if TYPE_CHECKING:
    from penstock.inputs.finders import RunnableLike
    from penstock.report.result import PlacedResult, RunResult


SHOWN_ERRORS = 5


@takes_run_options()
def run(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE",
            help="A built-in pipeline (linear, star, ...), a file (.yaml, .json), module:attribute, a plan file, or "
            "what `place --json --full` printed.",
        ),
    ],
    *,
    from_topic: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TOPIC",
            help="Read from kafka:HOST:PORT/TOPIC or log:FOLDER/TOPIC instead of the pipeline's own sources.",
        ),
    ] = None,
    to_topic: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TOPIC",
            help="Write to kafka:HOST:PORT/TOPIC or log:FOLDER/TOPIC (TOPIC-SINK if there are several sinks), made if "
            "it does not exist.",
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="NAME", help="Of a file with many placed pipelines: this one.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw rates, backlog and latency over time (.png, .svg, .pdf).")
    ] = None,
    json: JsonOption = False,
    **options: Any,
) -> None:
    """Run PIPELINE and report predicted beside measured: fused on embedded Spark, or placed on a cluster."""
    from penstock.api import runs as running
    from penstock.cli.live import listening
    from penstock.inputs.finders import is_placed_file, one_placed_plan

    decided = one_placed_plan(pipeline, only) if is_placed_file(pipeline) else None
    if only is not None and decided is None:
        raise BadInputError("--only: names one of the pipelines that `place --json --full` printed")
    if decided is not None:
        options["engine"] = PLACED
    to_run = _on_topics(decided or pipeline, from_topic, to_topic)
    _check_plot(plot)
    with listening(json=json) as listener:
        result = running.run(to_run, **options, listener=listener)
    _plot(result, plot)
    print_report(result, json=json)


def print_report(result: Any, *, json: bool) -> None:
    """Print the report of a run of any engine. The exit code is 1 if rows were lost, doubled, or too many died."""
    from penstock.cli.reports import print_placed
    from penstock.report.result import PlacedResult, RunResult

    if isinstance(result, PlacedResult):
        print_placed(result, json=json)
    elif isinstance(result, RunResult):
        print_fused(result, json=json)
    else:
        if json:
            output.print_json(result.document())
        else:
            output.say(str(result))
        if result.interrupted:
            raise typer.Exit(130)


def _on_topics(given: RunnableLike, from_topic: str | None, to_topic: str | None) -> RunnableLike:
    from penstock.inputs.topic_endpoints import reading_from, writing_to

    if from_topic is not None:
        given = reading_from(given, from_topic)
    return given if to_topic is None else writing_to(given, to_topic)


def _check_plot(path: Path | None) -> None:
    """Before the run: what comes of it is not to be lost for want of a place."""
    from penstock.base.files import check_writable
    from penstock.pictures.canvas import check_ending

    if path is not None:
        check_ending(path)
        check_writable(path)


def _plot(result: RunResult | PlacedResult, path: Path | None) -> None:
    from penstock.pictures.drawings import draw_run

    if path is None:
        return
    if not result.report.history:
        # the report has the rest
        output.complain(f"{path}: nothing to draw: no batch was finished")
        return
    draw_run(result, path)


def print_fused(result: RunResult, *, json: bool) -> None:
    """The report, and the exit code: 1 where tuples were lost, came twice, or too many of them died."""
    if json:
        output.print_json(result.document())
    else:
        _print(result)
    if result.interrupted:
        raise typer.Exit(130)
    audit = result.report.audit
    if audit.lost or audit.duplicated or audit.dead_share > result.report.max_dead_letter_ratio:
        raise typer.Exit(1)


def _print(result: RunResult) -> None:
    screen = output.console()
    report = result.report
    screen.print(f"{result.headline}\n")
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
