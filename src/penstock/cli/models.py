"""`penstock models`: list, show, plot and import models."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, ModelsOption

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
    from penstock import api
    from penstock.modelling.file import models_document

    library = api.models(models)
    if json:
        output.print_json(models_document(library))
        return
    output.console().print(
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


@models_app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="MODEL")],
    models: ModelsOption = None,
    json: JsonOption = False,
) -> None:
    """Every measured point of one model, and how each figure is known."""
    from penstock import api
    from penstock.modelling.file import models_document

    model = api.models(models).get(name, "models show")
    if json:
        output.print_json(models_document([model]))
        return
    screen = output.console()
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
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The picture to write (.png, .svg, .pdf).")],
    names: Annotated[list[str] | None, typer.Argument(metavar="[MODEL]...", help="All unless named.")] = None,
    models: ModelsOption = None,
) -> None:
    """Draw rate, CPU and memory over threads."""
    from penstock import api
    from penstock.pictures.models import draw_models

    library = api.models(models)
    draw_models([library.get(name, "models plot") for name in names] if names else list(library), file)
    typer.echo(f"wrote {file}")


@models_app.command("import")
def import_csv(
    csv: Annotated[Path, typer.Argument(metavar="CSV", help="Columns: model, threads, rate, cpu, memory, ...")],
    to_file: Annotated[Path, typer.Option("--output", "-o", help="The model file to write (JSON).")],
) -> None:
    """Turn a table of measurements into a model file."""
    from penstock import api
    from penstock.files import write_text
    from penstock.modelling.file import models_document

    found = api.import_models(csv)
    write_text(to_file, json_text.dumps(models_document(found), indent=1) + "\n")
    typer.echo(f"wrote {to_file}: {', '.join(model.name for model in found)}")
