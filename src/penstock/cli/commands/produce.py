"""`penstock produce`: messages at a rate over time, to a topic or into files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption
from penstock.errors import BadInputError


def produce(
    spec: Annotated[
        Path | None, typer.Argument(metavar="[SPEC]", help="A file (.yaml, .json) that says what, where to, how fast.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="kafka:HOST:PORT/TOPIC, log:FOLDER/TOPIC or files:FOLDER.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="sentences, tweets, page-events, payloads, readings, auctions or batches."),
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
    from penstock.verbs.produce import produce as send
    from penstock.workloads.producing.spec import producer_spec, read_producer

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
