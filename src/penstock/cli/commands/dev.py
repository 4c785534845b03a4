"""`penstock dev broker` and `produce`: a Kafka broker on this machine, and messages at a rate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.vocabulary import JsonOption
from penstock.dataflow.formats import log_addresses

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
    """Start a broker that keeps running after the command ends."""
    from penstock.api.clusters import broker_up

    with output.console(stderr=True).status("starting Kafka; its jars are fetched the first time", spinner="line"):
        broker = broker_up(folder, port)
    if json:
        output.print_json({"servers": broker.servers, "address": broker.address, "folder": str(broker.folder)})
        return
    typer.echo(f"Kafka runs at {broker.servers}; end it with: penstock dev broker down")
    output.complain("note: it asks nobody for a password: every user of this machine can read and change its topics")


@broker_app.command("status")
def status(folder: FolderOption = None, json: JsonOption = False) -> None:
    """Whether a broker runs, its topics and how many offsets they hold: messages, and what ends transactions."""
    from penstock.api.clusters import running_broker
    from penstock.base.errors import ClusterError
    from penstock.connectors.topic_address import parse_log

    broker = running_broker(folder)
    if broker is None:
        raise ClusterError("no broker runs; penstock dev broker up starts one")
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
    from penstock.api.clusters import broker_down

    ran = broker_down(folder, keep=keep)
    typer.echo("the broker has ended" if ran else "no broker was running")


def produce(
    spec: Annotated[
        Path | None, typer.Argument(metavar="[SPEC]", help="A file (.yaml, .json) that says what, where to, how fast.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help=f"{log_addresses('/TOPIC')} or files:FOLDER.")] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="sentences, tweets, page-events, payloads, readings, auctions, batches, gateway-lines or feed-lines.",
        ),
    ] = None,
    rows: Annotated[
        str | None, typer.Option("--rows", help="Instead of data: files of JSON lines, CSV or Parquet, by pattern.")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            help="Messages/s: 100, steps:SECONDSxRATE,..., on-off:HIGH,ON,OFF[,LOW], sine:MEAN,AMPLITUDE,SECONDS, "
            "batches:LENGTH,GAP[,RATE], trace:FILE.csv.",
        ),
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", help="How long; default: until Ctrl-C.")] = None,
    messages: Annotated[int | None, typer.Option("--messages", min=1, help="How many, of each producer.")] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="Make the topic with so many partitions.")
    ] = None,
    retention: Annotated[
        float | None, typer.Option("--retention", help="Seconds after which the topic may drop messages.")
    ] = None,
    each_partition: Annotated[
        bool, typer.Option("--each-partition", help="A producer for every partition, each at the rate given.")
    ] = False,
    key: Annotated[str | None, typer.Option("--key", help="The field whose value decides the partition.")] = None,
    json: JsonOption = False,
) -> None:
    """Send messages at a rate, stamped with when they were sent; says by how much it fails to keep it."""
    from penstock.api.producer import produce as send
    from penstock.workloads.producer import producer_spec, read_producer

    options: dict[str, Any] = {
        "to": to,
        "data": data,
        "rows": rows,
        "rate": rate,
        "seconds": seconds,
        "messages": messages,
        "partitions": partitions,
        "retention_seconds": retention,
        "each_partition": each_partition or None,
        "key": key,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if spec is not None:
        known = read_producer(spec).model_dump(exclude_unset=True)
        given = {**known, **given}
    elif "to" not in given or "rate" not in given:
        raise BadInputError("expected a file, or --to and --rate with --data or --rows")
    stopping = _interrupts()
    with output.console(stderr=True).status("sending", spinner="line") as status:

        def show(count: int, at: float) -> None:
            status.update(f"{count:,} messages in {at:.0f} s")

        made = send(producer_spec(given), listen=show, stopped=stopping)
    if json:
        output.print_json(made.document())
    else:
        typer.echo(f"{made.messages:,} messages in {made.seconds:.1f} s: {made.rate:,.1f} per second")
        if not made.kept:
            short = f", {made.due - made.messages:,} messages fewer than were due" if made.messages < made.due else ""
            typer.echo(
                f"the rate of {made.asked_rate:,.1f} was not kept: {made.late_seconds:.1f} s behind at the end{short}"
            )
    if not made.kept:
        raise typer.Exit(1)


def _interrupts() -> Any:
    """Ctrl-C ends the producer in good order: what was sent is flushed and reported."""
    import signal

    asked: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: asked.append(number))
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    return lambda: bool(asked)
