"""`penstock controller`: care for a controller and its store."""

from __future__ import annotations

import typer

from penstock.cli.commands.controller.repair import repair

controller_app = typer.Typer(help="Care for a controller and its store.", rich_markup_mode=None, no_args_is_help=True)
controller_app.command()(repair)


@controller_app.callback()
def controller() -> None:
    """Care for a controller and its store."""
