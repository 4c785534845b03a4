"""`penstock resume`: a run goes on, where it was or onto another plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, ModelsOption


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a placed run.")],
    plan: Annotated[Path | None, typer.Argument(help="Another plan to go on with, after a drain.")] = None,
    master: Annotated[
        str | None, typer.Option("--master", help="spark://HOST:PORT; default: the cluster the run was started on.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="How long, where the run is conducted from here.")] = 30.0,
    warm_up: Annotated[float, typer.Option("--warm-up", help="Seconds at the start that do not count.")] = 10.0,
    models: ModelsOption = None,
    json: JsonOption = False,
) -> None:
    """Go on with a run that waits (after `drain`), or that was stopped, or whose process died."""
    from penstock import placed
    from penstock.cli.placed_view import print_placed, watching

    with watching(seconds) as (heard, tell):
        result = placed.resume(
            folder, plan, master=master, seconds=seconds, warm_up=warm_up, models=models, heard=heard, tell=tell
        )
    if isinstance(result, float):
        if json:
            output.print_json({"folder": str(folder), "resumed_seconds": result})
        else:
            typer.echo(f"resumed: the first tuple came to its end after {result:.1f} s")
        return
    print_placed(result, json=json)
