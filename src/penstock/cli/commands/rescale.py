"""`penstock rescale`: more or fewer slots for a run, while it goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption


def rescale(
    run: Annotated[str, typer.Argument(help="The folder of a run, or the name `penstock runs` shows.")],
    slots: Annotated[int, typer.Option("--slots", min=1, help="How many it is to have.")],
    json: JsonOption = False,
) -> None:
    """Add executors to a fused run on a cluster, or let some go; a placed run is planned anew for so many slots."""
    from penstock.verbs import rescale as rescaling

    seconds = rescaling.rescale(run, slots)
    if json:
        output.print_json({"run": run, "slots": slots, "seconds": seconds})
    else:
        typer.echo(f"{slots} slots after {seconds:.1f} s")
