"""`penstock profile`: models of operators from trials on embedded Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, PipelineArgument

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from penstock.measuring import ProfileProgress
    from penstock.modelling.model import Model, Point


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
        int | None, typer.Option("--most-threads", min=1, help="Try no more threads than this; 64.")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Trials of each kind; they give the spread.")] = 1,
    json: JsonOption = False,
) -> None:
    """Measure the operators of PIPELINE in one slot each, and write their models."""
    from penstock import measuring
    from penstock.errors import InterruptedWorkError
    from penstock.modelling.file import models_document
    from penstock.modelling.fit import disturbed

    try:
        with _bar() as bar:
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
                watch=bar.point,
                progress=bar.move,
                building=bar.building,
            )
    except KeyboardInterrupt as error:
        raise InterruptedWorkError(_kept(to_file)) from error
    if json:
        output.print_json(models_document(models))
        return
    _print(models)
    for warning in disturbed(models):
        typer.echo(f"warning: {warning}")
    typer.echo(f"wrote {to_file}: {', '.join(model.name for model in models)}")


def _kept(file: Path) -> str:
    from penstock.modelling.file import read_models

    points = sum(len(model.points) for model in read_models(file)) if file.exists() else 0
    return f"{points} points kept in {file}" if points else "no point was measured yet"


class _Silent:
    """Where nobody looks: standard error is not a terminal."""

    def point(self, name: str, point: Point) -> None:
        pass

    def move(self, progress: ProfileProgress) -> None:
        pass

    def building(self, rows: int, of: int) -> None:
        pass


def _bar() -> AbstractContextManager[_Silent]:
    """A bar over the time that may be spent, with what may remain, and above it a line for every point."""
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    errors = Console(stderr=True, highlight=False)

    class Bar(_Silent):
        def __init__(self, shown: Progress) -> None:
            self._shown = shown
            self._task = shown.add_task("", total=1.0, left="")

        def point(self, name: str, point: Point) -> None:
            self._shown.console.print(
                f"{name}: {point.threads} threads, {output.figure(point.rate)} tuples/s, "
                f"cpu {output.share(point.cpu)}, memory {output.share(point.memory)}",
                markup=False,
            )

        def move(self, progress: ProfileProgress) -> None:
            left = f"at most {progress.most_seconds_left:,.0f} s left"
            self._shown.update(self._task, completed=progress.part, description=progress.doing, left=left)

        def building(self, rows: int, of: int) -> None:
            self._shown.update(self._task, description=f"building the reference table, once: {rows:,} of {of:,} rows")

    @contextmanager
    def shown() -> Iterator[_Silent]:
        if not errors.is_terminal:
            yield _Silent()
            return
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[left]}"))
        with Progress(*columns, console=errors, transient=True) as progress:
            yield Bar(progress)

    return shown()


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
