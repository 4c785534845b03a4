"""`penstock profile`: models of operators from trials on embedded Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import PipelineArgument

if TYPE_CHECKING:
    from penstock.modelling.model import Point


def profile(
    pipeline: PipelineArgument,
    to_file: Annotated[Path, typer.Option("--output", "-o", help="The model file to write, or to go on with (JSON).")],
    operators: Annotated[
        list[str] | None, typer.Option("--operator", help="Only this operator (or model); may be repeated.")
    ] = None,
    budget: Annotated[float, typer.Option("--budget", help="Seconds for each operator.")] = 60.0,
    trial: Annotated[float, typer.Option("--trial", help="Seconds of one trial.")] = 4.0,
    most_threads: Annotated[int, typer.Option("--most-threads", min=1, help="Try no more threads than this.")] = 64,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Trials of each kind; they give the spread.")] = 1,
) -> None:
    """Measure the operators of PIPELINE in one slot each, and write their models."""
    from rich.console import Console

    from penstock import running

    errors = Console(stderr=True)

    def watch(name: str, point: Point) -> None:
        errors.print(
            f"{name}: {point.threads} threads, {output.figure(point.rate)} tuples/s, "
            f"cpu {output.share(point.cpu)}, memory {output.share(point.memory)}"
        )

    def building(rows: int, of: int) -> None:
        if rows == of:
            errors.print(f"built the reference table of {of:,} rows")

    models = running.profile(
        pipeline,
        to_file,
        operators=operators,
        budget_seconds=budget,
        trial_seconds=trial,
        most_threads=most_threads,
        repeats=repeats,
        watch=watch,
        building=building,
    )
    typer.echo(f"wrote {to_file}: {', '.join(model.name for model in models)}")
