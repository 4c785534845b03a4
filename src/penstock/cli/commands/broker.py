"""`penstock broker`: a real Kafka on this machine, to try with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption

broker_app = typer.Typer(
    help="Start and end a Kafka broker on this machine's loopback, to try with (needs Java; Maven fetches its jars).",
    rich_markup_mode=None,
    no_args_is_help=True,
)

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", help="Where the broker keeps its data; default: PENSTOCK_STATE, or the user's cache."),
]


@broker_app.command("up")
def up(
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Default: a free one.")] = None,
    folder: FolderOption = None,
    json: JsonOption = False,
) -> None:
    """Start a broker; it goes on when the command ends."""
    from penstock.verbs.broker import broker_up

    with output.console(stderr=True).status("starting Kafka; its jars are fetched the first time", spinner="line"):
        broker = broker_up(folder, port)
    if json:
        output.print_json({"servers": broker.servers, "address": broker.address, "folder": str(broker.folder)})
        return
    typer.echo(f"Kafka runs at {broker.servers}; end it with: penstock broker down")
    output.complain("note: it asks nobody for a password: every user of this machine can read and change its topics")


@broker_app.command("status")
def status(folder: FolderOption = None, json: JsonOption = False) -> None:
    """Whether a broker runs, its topics and how many offsets they hold: messages, and what ends transactions."""
    from penstock.connectors.log.address import parse_log
    from penstock.errors import ClusterError
    from penstock.verbs.broker import running_broker

    broker = running_broker(folder)
    if broker is None:
        raise ClusterError("no broker runs; penstock broker up starts one")
    log = parse_log(broker.address).open()
    topics = {name: log.spans(name) for name in log.topics()}
    offsets = {name: sum(span.messages for span in spans.values()) for name, spans in topics.items()}
    if json:
        rows = {name: {"partitions": len(topics[name]), "offsets": offsets[name]} for name in topics}
        output.print_json({"servers": broker.servers, "topics": rows})
        return
    lines = ((name, str(len(topics[name])), f"{offsets[name]:,}") for name in topics)
    output.console().print(output.table(f"Kafka at {broker.servers}", ("topic", "partitions", "offsets"), lines))


@broker_app.command("down")
def down(
    keep: Annotated[bool, typer.Option("--keep", help="Leave its data for the next `broker up`.")] = False,
    folder: FolderOption = None,
) -> None:
    """End the broker, and remove its data."""
    from penstock.verbs.broker import broker_down

    ran = broker_down(folder, keep=keep)
    typer.echo("the broker has ended" if ran else "no broker was running")
