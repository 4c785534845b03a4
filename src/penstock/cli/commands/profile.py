"""`penstock profile`: models of operators from trials on embedded Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, PipelineArgument

if TYPE_CHECKING:
    from penstock.modelling.model import Model


def profile(
    pipeline: PipelineArgument,
    to_file: Annotated[Path, typer.Option("--output", "-o", help="The model file to write, or to go on with (JSON).")],
    operators: Annotated[
        list[str] | None, typer.Option("--operator", help="Only this operator (or model); may be repeated.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short trials, few thread counts, a rough peak.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what the file holds and start over.")] = False,
    budget: Annotated[
        float | None, typer.Option("--budget", help="Seconds for each operator; 60, with --quick 15.")
    ] = None,
    trial: Annotated[float | None, typer.Option("--trial", help="Seconds of one trial; 4, with --quick 1.5.")] = None,
    most_threads: Annotated[
        int | None, typer.Option("--most-threads", min=1, help="Try no more threads than this; 256.")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Trials of each kind; they give the spread.")] = 1,
    json: JsonOption = False,
) -> None:
    """Measure the operators of PIPELINE in one slot each, and write their models."""
    from penstock.cli.live import listening
    from penstock.errors import InterruptedWorkError
    from penstock.modelling.file import models_document
    from penstock.modelling.fit import disturbed, unfinished
    from penstock.verbs import profile as measuring

    try:
        with listening(json=json) as listener:
            models = measuring.profile(
                pipeline,
                to_file,
                operators=operators,
                quick=quick,
                fresh=fresh,
                budget_seconds=budget,
                trial_seconds=trial,
                most_threads=most_threads,
                repeats=repeats,
                listener=listener,
            )
    except KeyboardInterrupt as error:
        raise InterruptedWorkError(_kept(to_file)) from error
    if json:
        output.print_json(models_document(models))
        return
    _print(models)
    for warning in [*disturbed(models), *unfinished(models)]:
        output.say(f"warning: {warning}")
    output.say(f"wrote {to_file}: {', '.join(model.name for model in models)}")


def _kept(file: Path) -> str:
    from penstock.modelling.file import read_models

    points = sum(len(model.points) for model in read_models(file)) if file.exists() else 0
    return f"{points} points kept in {file}" if points else "no point was measured yet"


def _print(models: list[Model]) -> None:
    output.console().print(
        output.table(
            "Measured",
            ("model", "threads", "peak/s", "cpu", "of it the operator", "memory"),
            (
                (
                    model.name,
                    str(point.threads),
                    output.figure(point.rate),
                    output.share(point.cpu),
                    "-" if point.operator_cpu is None else output.share(point.operator_cpu),
                    output.share(point.memory),
                )
                for model in models
                for point in model.points
            ),
        )
    )
