"""`penstock runs`: the runs of this user; list, stop, pause, resume and rescale them, and read their logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.arguments import JsonOption
from penstock.cli.commands.run import drain, rescale, resume
from penstock.cli.commands.run import runs as list_runs
from penstock.cli.groups import make_group

if TYPE_CHECKING:
    from collections.abc import Callable

RunArgument = Annotated[str, typer.Argument(help="The folder of a run, or the name `penstock runs list` shows.")]

runs_app = make_group("Runs of this user: list, stop, pause, resume and rescale them, read their logs.", alone=True)


@runs_app.callback(invoke_without_command=True)
def _list_by_default(
    context: typer.Context, json: Annotated[bool, typer.Option("--json", hidden=True)] = False
) -> None:
    """`penstock runs` alone lists them, as it did in version 0.1."""
    if context.invoked_subcommand is None:
        list_runs(json=json)


runs_app.command("list")(list_runs)


@runs_app.command("stop")
def stop(run: RunArgument, json: JsonOption = False) -> None:
    """Finish and commit what is in flight, then end the run."""
    _ask(run, "stopped", json=json, stop=True)


@runs_app.command("pause")
def pause(run: RunArgument, json: JsonOption = False) -> None:
    """Finish and commit what is in flight, and keep the position for `penstock runs resume`."""
    _ask(run, "paused", json=json, stop=False)


def _ask(run: str, done: str, *, json: bool, stop: bool) -> None:
    from penstock.api import runs as asking

    seconds = asking.drain(run, stop=stop)
    if json:
        output.print_json({"run": run, "seconds": seconds})
    else:
        remedy = "" if stop else f"; continue with: penstock runs resume {run}"
        output.say(f"{done} after {seconds:.1f} s{remedy}")


def _add(command: Callable[..., Any], **more: Any) -> None:
    runs_app.command(command.__name__, **more)(command)


_add(resume)
_add(rescale)
_add(drain, hidden=True)


@runs_app.command("logs")
def logs(
    run: RunArgument,
    lines: Annotated[int | None, typer.Option("--lines", "-n", min=1, help="Only the last lines.")] = None,
) -> None:
    """Print the log of the process that conducts a run."""
    from penstock.engines.run_index import find_run

    file = Path(find_run(run)) / "log"
    if not file.is_file():
        raise BadInputError(f"run '{run}': keeps no log in {file.parent}")
    text = file.read_text("utf-8", errors="replace").splitlines()
    for line in text if lines is None else text[-lines:]:
        output.say(line)
