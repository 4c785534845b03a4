"""`penstock runs`: the runs of this user, and requests to them. The words mean the same for every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.reports import print_report
from penstock.cli.vocabulary import JsonOption, WordGroup, takes_run_options
from penstock.runs.config import Appears

RunArgument = Annotated[str, typer.Argument(help="Folder or URI of a run, or the name `penstock runs list` shows.")]

runs_app = typer.Typer(
    help="Runs of this user: list, stop, pause, resume, rescale and kill them, and read their logs.",
    cls=WordGroup,
    invoke_without_command=True,
    rich_markup_mode=None,
)


@runs_app.callback()
def runs(context: typer.Context, json: JsonOption = False) -> None:
    """List runs if no further word is given."""
    if context.invoked_subcommand is None:
        list_runs(json=json)


@runs_app.command("list")
def list_runs(json: JsonOption = False) -> None:
    """List runs that live, are paused, failed or were lost with their process, and those stopped in own folders."""
    from penstock.api import live

    listed = live.list_runs()
    if json:
        output.print_json([run.document() for run in listed])
        return
    if not listed:
        typer.echo("no runs; `penstock run PIPELINE` starts one")
        return
    columns = ("run", "pipeline", "engine", "state", "slots", "dead letters", "folder")
    rows = (
        (
            run.name,
            run.pipeline,
            run.engine,
            str(run.state),
            str(run.details.get("slots", "-")),
            str(run.details.get("dead", "-")),
            str(run.folder),
        )
        for run in listed
    )
    output.console().print(output.table("Runs", columns, rows))


@runs_app.command()
def stop(run: RunArgument, json: JsonOption = False) -> None:
    """Commit the rows in flight, and end the run."""
    from penstock.api import live

    _say_done(run, "stopped", live.stop_run(run), json=json)


@runs_app.command()
def pause(
    run: RunArgument,
    keep_executors: Annotated[
        bool, typer.Option("--keep-executors", help="Keep executors, to resume within a second.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Commit the rows in flight, and keep the position until `runs resume`."""
    from penstock.api import live

    _say_done(run, "paused", live.pause(run, keep_executors=keep_executors), json=json)


@runs_app.command()
@takes_run_options(Appears.RESUME)
def resume(
    run: RunArgument,
    plan: Annotated[Path | None, typer.Argument(help="Another plan to continue with.")] = None,
    *,
    json: JsonOption = False,
    **options: Any,
) -> None:
    """Continue from the last commit: a run that is paused, or was stopped, failed or lost its process."""
    from penstock.api import runs as resuming
    from penstock.cli.live import listening

    with listening(json=json) as listener:
        resumed = resuming.resume(run, plan, **options, listener=listener)
    if resumed.result is not None:
        print_report(resumed.result, json=json)
    elif json:
        output.print_json({"run": run, "folder": run, "resumed_seconds": resumed.seconds})
    else:
        output.say(f"resumed in {resumed.seconds:.1f} s")


@runs_app.command()
def rescale(
    run: RunArgument,
    slots: Annotated[int | None, typer.Option("--slots", min=1, help="Slots to change to.")] = None,
    plan: Annotated[Path | None, typer.Option("--plan", help="Plan file to change to.")] = None,
    json: JsonOption = False,
) -> None:
    """Change slots or plan of a run while it runs."""
    from penstock.api import live

    if slots is None and plan is None:
        raise BadInputError("rescale: give --slots or --plan")
    seconds = live.rescale(run, slots, plan=plan)
    if json:
        output.print_json({"run": run, "slots": slots, "seconds": seconds})
    else:
        typer.echo(f"{plan if slots is None else f'{slots} slots'} after {seconds:.1f} s")


@runs_app.command()
def kill(run: RunArgument, json: JsonOption = False) -> None:
    """End a run at once; rows that were not committed are processed again on resume."""
    from penstock.api import live

    _say_done(run, "killed", live.kill(run), json=json)


@runs_app.command()
def logs(
    run: RunArgument,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The last so many.")] = 100,
) -> None:
    """Print the log of a run."""
    from penstock.api import live

    for line in live.log_lines(run, lines):
        output.say(line)


def drain(
    run: RunArgument,
    stop: Annotated[bool, typer.Option("--stop", help="End the run.")] = False,
    json: JsonOption = False,
) -> None:
    """Former word: `runs stop` for a fused run or with --stop, else `runs pause --keep-executors`."""
    from penstock.api import live

    ends = live.drain_stops(run, stop=stop)
    output.complain(f"note: 'penstock drain' is now 'penstock runs {'stop' if ends else 'pause --keep-executors'}'")
    seconds = live.stop_run(run) if ends else live.pause(run, keep_executors=True)
    if json:
        output.print_json({"folder": run, "drained_seconds": seconds, "stopped": stop})
    else:
        output.say(f"drained in {seconds:.1f} s")


def _say_done(run: str, what: str, seconds: float, *, json: bool) -> None:
    if json:
        output.print_json({"run": run, "state": "stopped" if what == "killed" else what, "seconds": seconds})
    else:
        output.say(f"{what} in {seconds:.1f} s")
