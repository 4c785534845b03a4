"""`penstock run`: a pipeline or a plan on embedded Spark, predicted beside measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.reports import print_report
from penstock.cli.vocabulary import JsonOption, takes_run_options
from penstock.runs.config import PLACED

if TYPE_CHECKING:
    from penstock.inputs.finders import RunnableLike
    from penstock.report.result import PlacedResult, RunResult


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
