"""`penstock models` and `penstock profile`: list, show, plot, import and measure models."""

from __future__ import annotations

import json as json_text
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.vocabulary import JsonOption, ModelsOption, PipelineArgument

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from penstock.modelling.model import Model
    from penstock.modelling.task_profile import TaskProfile


models_app = typer.Typer(
    help="List, show, plot and import models of operators.",
    rich_markup_mode=None,
    invoke_without_command=True,
)


@models_app.callback()
def list_models(context: typer.Context, models: ModelsOption = None, json: JsonOption = False) -> None:
    """List, show, plot and import models of operators. Alone: list them."""
    if context.invoked_subcommand is not None:
        return
    from penstock.inputs.finders import find_models
    from penstock.modelling.library import models_document

    library = find_models(models)
    if json:
        output.print_json(models_document(library, profiles=library.profiles.values()))
        return
    screen = output.console()
    screen.print(
        output.table(
            "Models",
            ("model", "points", "one thread/s", "peak/s", "peak threads", "measured on "),
            (
                (
                    model.name,
                    str(len(model.points)),
                    output.figure(model.rate(1)),
                    output.figure(model.peak_rate),
                    str(model.peak_threads),
                    model.measured_on.what or "-",
                )
                for model in library
            ),
        )
    )
    if library.profiles:
        screen.print(_profile_table("Task profiles", list(library.profiles.values())))


def _profile_table(title: str, profiles: list[TaskProfile]) -> Table:
    return output.table(
        title,
        ("profile", "sojourn s", "cpu per tuple/s", "cpu per tuple/s moved", "MB per tuple/s", "bound by "),
        (
            (
                profile.name,
                output.figure(profile.sojourn_seconds),
                output.figure(profile.processing_cpu),
                output.figure(profile.moving_cpu),
                output.figure(profile.memory_mb),
                profile.bound or "what needs most threads",
            )
            for profile in profiles
        ),
    )


class ModelForm(StrEnum):
    MODEL = "model"
    PROFILE = "profile"


@models_app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="MODEL")],
    models: ModelsOption = None,
    form: Annotated[
        ModelForm | None, typer.Option("--as", help="As a slot model or as a task profile, converted where need be.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Every measured point of one model, or every cost of one task profile, and how each figure is known."""
    from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
    from penstock.inputs.finders import find_models
    from penstock.modelling.library import models_document
    from penstock.modelling.task_profile import model_of, profile_of

    library = find_models(models)
    model, profile = library.models.get(name), library.profiles.get(name)
    if model is None and profile is None:
        model = library.get(name, "models show")
    if form is ModelForm.PROFILE:
        profile = profile or (profile_of(model, DEFAULT_SLOT_MEMORY_MB) if model else None)
        model = None
    elif form is ModelForm.MODEL:
        model = model or (model_of(profile, DEFAULT_SLOT_MEMORY_MB) if profile else None)
        profile = None
    if json:
        output.print_json(models_document([model] if model else [], profiles=[profile] if profile else []))
        return
    screen = output.console()
    if model is not None:
        _print_model(model, screen)
    if profile is not None:
        screen.print(_profile_table(f"Task profile {name}", [profile]))
        for figure, how in profile.provenance.items():
            screen.print(f"{figure:15} {how}")


def _print_model(model: Model, screen: Console) -> None:
    screen.print(
        output.table(
            f"{model.name}: peak {output.figure(model.peak_rate)}/s with {model.peak_threads} threads in one slot",
            ("threads", "rate", "cpu", "memory", "how it is known "),
            (
                (
                    str(point.threads),
                    _with_spread(output.figure(point.rate), point.rate_spread),
                    _with_spread(output.share(point.cpu), point.cpu_spread),
                    _with_spread(output.share(point.memory), point.memory_spread),
                    "; ".join(f"{figure}: {how}" for figure, how in point.provenance.items()),
                )
                for point in model.points
            ),
        )
    )
    for key, value in model.measured_on.model_dump(exclude_none=True).items():
        screen.print(f"{key:15} {value}")


def _with_spread(text: str, spread: float | None) -> str:
    return text if spread is None else f"{text} ± {output.figure(spread)}"


@models_app.command("plot")
def plot(
    to_file: Annotated[Path, typer.Option("--output", "-o", help="The picture to write (.png, .svg, .pdf).")],
    names: Annotated[list[str] | None, typer.Argument(metavar="[MODEL]...", help="All unless named.")] = None,
    models: ModelsOption = None,
) -> None:
    """Draw rate, CPU and memory over threads."""
    from penstock.inputs.finders import find_models
    from penstock.pictures.drawings import draw_models

    library = find_models(models)
    draw_models([library.get(name, "models plot") for name in names] if names else list(library), to_file)
    output.say(f"wrote {to_file}")


@models_app.command("import")
def import_csv(
    csv: Annotated[Path, typer.Argument(metavar="CSV", help="Columns: model, threads, rate, cpu, memory, ...")],
    to_file: Annotated[Path, typer.Option("--output", "-o", help="The model file to write (JSON).")],
) -> None:
    """Turn a table of measurements into a model file."""
    from penstock.api.models import import_models
    from penstock.base.files import write_output
    from penstock.modelling.library import models_document

    imported = import_models(csv)
    write_output(to_file, json_text.dumps(models_document(imported), indent=1) + "\n")
    output.say(f"wrote {to_file}: {', '.join(model.name for model in imported)}")


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
    search: Annotated[
        str, typer.Option("--search", help="bracket, or stepwise: the published walk, which needs a large --budget.")
    ] = "bracket",
    rate_step: Annotated[
        float | None, typer.Option("--rate-step", help="With --search stepwise: tuples/s from trial to trial; 1.")
    ] = None,
    thread_step: Annotated[
        int | None, typer.Option("--thread-step", min=1, help="With --search stepwise: threads from walk to walk; 1.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure the operators of PIPELINE in one slot each, and write their models."""
    from penstock.api import models as measuring
    from penstock.base.errors import InterruptedWorkError
    from penstock.cli.live import listening
    from penstock.modelling.library import disturbed, models_document, unfinished

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
                search=search,
                rate_step=rate_step,
                thread_step=thread_step,
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
    from penstock.modelling.library import read_models

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
