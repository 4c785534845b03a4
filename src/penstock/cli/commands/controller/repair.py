"""`penstock controller repair`: a new store from what a damaged one still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption
from penstock.cli.store_options import StoreFileOption, StoreOption, store_url

if TYPE_CHECKING:
    from penstock.control.store.repair import StoreRepair


def repair(
    store: StoreOption = None,
    store_file: StoreFileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what can be read and what cannot.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a new store from the rows of a damaged one that can be read, and list the others. The damaged one is kept
    under another name. Exit code 1: nothing can be read."""
    from penstock.verbs.repair_store import repair_store

    result = repair_store(store_url(store, store_file), dry_run=dry_run)
    if json:
        output.print_json(result.document())
    else:
        _print(result)
    if result.nothing_readable:
        raise typer.Exit(1)


def _print(result: StoreRepair) -> None:
    screen = output.console()
    if result.rows:
        counts = ((name, str(count)) for name, count in sorted(result.rows.items()))
        screen.print(output.table("Readable", ("table", "rows"), counts))
    if result.faults:
        faults = ((fault.table, fault.row or "-", fault.reason) for fault in result.faults)
        screen.print(output.table("Not readable", ("table", "row ", "reason "), faults, output.MOST_ROWS))
    if result.nothing_readable:
        output.say(f"nothing can be read from {result.store}: restore a copy, or remove it to start anew")
    elif not result.faults:
        output.say(f"{result.store} is not damaged: left as it is")
    elif result.damaged is None:
        output.say(f"{result.store} would be written anew without {len(result.faults)} of its parts")
    else:
        output.say(f"{result.store} was written anew; the damaged one is {result.damaged}")
        if any(fault.table in {"pipelines", "submissions", "holdings"} for fault in result.faults):
            output.say("drivers of pipelines that are not readable are unknown to the controller: end them by hand")
