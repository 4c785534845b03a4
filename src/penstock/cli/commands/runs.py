"""`penstock runs`: the runs of this user, and how they stand."""

from __future__ import annotations

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption


def runs(json: JsonOption = False) -> None:
    """Runs that live, were lost with their process, failed, or ended in a folder of their own."""
    from penstock.verbs import runs as listing

    listed = listing.runs()
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
