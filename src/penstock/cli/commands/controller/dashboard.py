"""`penstock dashboard`: the link to the page."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption


def dashboard(
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Whoever opens it may look and change nothing.")
    ] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser.")] = False,
    json: JsonOption = False,
) -> None:
    """Print a link to the controller's page; it logs one browser in, within ten minutes."""
    from penstock.verbs.dashboard import dashboard as verb

    link = verb(read_only=read_only)
    if open_it:
        import webbrowser

        webbrowser.open(link)
    if json:
        output.print_json({"link": link})
    else:
        output.say(link)
