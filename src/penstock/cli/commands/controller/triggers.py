"""`penstock trigger`: conditions that raise a pipeline's priority while they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption
from penstock.cli.commands.controller.reach import NameArgument, TokenFileOption, UrlOption, controller

if TYPE_CHECKING:
    from collections.abc import Iterable

trigger_app = typer.Typer(
    help="Add, edit and switch the triggers of a pipeline.", no_args_is_help=True, rich_markup_mode=None
)
NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", help="Of the trigger, as `trigger list` prints it.")]


@trigger_app.command()
def add(
    name: NameArgument,
    kind: Annotated[str, typer.Argument(help="arrival-rate, lag, batch-share, or module:attribute of a function.")],
    above: Annotated[
        float | None, typer.Option("--above", help="Tuples/s, messages, or what the field must exceed.")
    ] = None,
    below: Annotated[float | None, typer.Option("--below", help="Off only below this.")] = None,
    share: Annotated[float | None, typer.Option("--share", help="batch-share: part of a batch, 0 to 1.")] = None,
    field: Annotated[str | None, typer.Option("--field", help="batch-share: name of the field.")] = None,
    for_seconds: Annotated[float | None, typer.Option("--for", help="It must hold for so many seconds.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="The level while it is on.")] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Add a trigger."""
    options = {
        "above": above,
        "below": below,
        "share": share,
        "field": field,
        "for_seconds": for_seconds,
        "priority": priority,
    }
    with controller(url, token_file) as client:
        _print([client.trigger(name, kind, **options)], json=json)


@trigger_app.command("list")
def list_triggers(
    name: NameArgument, url: UrlOption = None, token_file: TokenFileOption = None, json: JsonOption = False
) -> None:
    """List the triggers of a pipeline."""
    with controller(url, token_file) as client:
        _print(client.triggers(name), json=json)


@trigger_app.command()
def on(
    name: NameArgument,
    number: NumberArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Switch a trigger on by hand; it stays on until it is switched off by hand."""
    with controller(url, token_file) as client:
        _print([client.switch(name, number, on=True)], json=json)


@trigger_app.command()
def off(
    name: NameArgument,
    number: NumberArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Switch a trigger off by hand."""
    with controller(url, token_file) as client:
        _print([client.switch(name, number, on=False)], json=json)


@trigger_app.command()
def enable(
    name: NameArgument,
    number: NumberArgument,
    no: Annotated[bool, typer.Option("--no", help="Disable it instead.")] = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Let a trigger be evaluated again, or no longer."""
    with controller(url, token_file) as client:
        _print([client.edit_trigger(name, number, enabled=not no)], json=json)


@trigger_app.command()
def remove(
    name: NameArgument,
    number: NumberArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Remove a trigger; the priority it gave goes with it."""
    with controller(url, token_file) as client:
        _print(client.remove_trigger(name, number), json=json)


def _print(rows: Iterable[dict[str, Any]], *, json: bool) -> None:
    rows = list(rows)
    if json:
        output.print_json(rows)
        return
    output.console().print(
        output.table(
            f"{len(rows):,} triggers",
            ("number", "kind ", "above", "below", "for s", "priority", "enabled ", "on "),
            (
                (
                    str(row["id"]),
                    row["kind"],
                    output.figure(row["above"]),
                    output.figure(row["below"]),
                    output.figure(row["for_seconds"]),
                    str(row["priority"]),
                    "yes" if row["enabled"] else "no",
                    "yes" if row["on"] else "no",
                )
                for row in rows
            ),
        )
    )
