"""`penstock drain`: a run finishes what is in flight and waits, or ends."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption


def drain(
    folder: Annotated[str, typer.Argument(help="The folder of a run, or the name `penstock runs` shows.")],
    stop: Annotated[bool, typer.Option("--stop", help="End the run then; otherwise it waits for `resume`.")] = False,
    json: JsonOption = False,
) -> None:
    """Stop the sources of a run and finish what is in flight: nothing is lost or done twice."""
    from penstock.verbs import drain as draining

    seconds = draining.drain(folder, stop=stop)
    if json:
        output.print_json({"folder": str(folder), "drained_seconds": seconds, "stopped": stop})
    else:
        after = "it ends" if stop else f"it waits; go on with: penstock resume {folder}"
        output.say(f"drained in {seconds:.1f} s; {after}")
