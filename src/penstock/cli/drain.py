"""`penstock drain`: a run finishes what is in flight and waits, or ends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption


def drain(
    folder: Annotated[Path, typer.Argument(help="The folder of a placed run.")],
    stop: Annotated[bool, typer.Option("--stop", help="End the run then; otherwise it waits for `resume`.")] = False,
    json: JsonOption = False,
) -> None:
    """Stop the sources of a run and finish what is in flight: nothing is lost or done twice."""
    from penstock import placed

    seconds = placed.drain(folder, stop=stop)
    if json:
        output.print_json({"folder": str(folder), "drained_seconds": seconds, "stopped": stop})
    else:
        after = "it ends" if stop else f"it waits; go on with: penstock resume {folder}"
        typer.echo(f"drained in {seconds:.1f} s; {after}")
