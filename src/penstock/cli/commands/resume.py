"""`penstock resume`: a run goes on, where it was or onto another plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, ModelsOption, SecretFileOption


def resume(
    folder: Annotated[str, typer.Argument(help="The folder of a run, or the name `penstock runs` shows.")],
    plan: Annotated[Path | None, typer.Argument(help="Another plan to go on with, after a drain.")] = None,
    master: Annotated[
        str | None, typer.Option("--master", help="spark://HOST:PORT; default: the cluster the run was started on.")
    ] = None,
    secret_file: SecretFileOption = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="Of a fused run: other slots than before.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", help="How long, where it is conducted from here; placed: 20, fused: until Ctrl-C."),
    ] = None,
    warm_up: Annotated[
        float | None,
        typer.Option("--warm-up", help="Seconds at the start that do not count (5, or a quarter of fewer than 20)."),
    ] = None,
    dead_letters: Annotated[
        Path | None,
        typer.Option("--dead-letters", help="Another folder for dead letters; a fused run must have had one."),
    ] = None,
    models: ModelsOption = None,
    json: JsonOption = False,
) -> None:
    """Go on with a run that waits (after `drain`), or that was stopped, or whose process died."""
    from penstock.cli.commands.run import print_fused
    from penstock.cli.live import listening
    from penstock.cli.placed_view import print_placed
    from penstock.report.result import RunResult
    from penstock.verbs import resume as resuming

    with listening(json=json) as listener:
        resumed = resuming.resume(
            folder,
            plan,
            master=master,
            secret_file=secret_file,
            slots=slots,
            seconds=seconds,
            warm_up=warm_up,
            models=models,
            dead_letters=dead_letters,
            listener=listener,
        )
    if isinstance(resumed.result, RunResult):
        print_fused(resumed.result, json=json)
    elif resumed.result is not None:
        print_placed(resumed.result, json=json)
    elif json:
        output.print_json({"folder": str(folder), "resumed_seconds": resumed.seconds})
    else:
        output.say(f"resumed: the first tuple came to its end after {resumed.seconds:.1f} s")
