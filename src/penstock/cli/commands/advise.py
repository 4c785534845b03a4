"""`penstock advise`: the executors that an existing streaming application needs, and what limits it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.vocabulary import JsonOption


def advise(
    source: Annotated[
        str, typer.Argument(help="Event log, checkpoint folder, or the address of a running application's UI.")
    ],
    rate: Annotated[float | None, typer.Option("--rate", help="Rows/s wanted; without, what arrives.")] = None,
    latency_ms: Annotated[float | None, typer.Option("--latency", help="Latency wanted, in ms.")] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", help="Cores it runs on, where its source does not say.")
    ] = None,
    end_offsets: Annotated[
        Path | None, typer.Option("--end-offsets", help="Checkpoint: JSON file with where its topics end.")
    ] = None,
    broker: Annotated[str | None, typer.Option("--broker", help="Checkpoint: ask this Kafka broker for that.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="Only this query of the application.")] = None,
    utilisation: Annotated[float, typer.Option("--utilisation", help="Target utilisation of slots, 0 to 1.")] = 0.7,
    price: Annotated[float | None, typer.Option("--price", help="Of a core for an hour.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Address: watch it for so long.")] = 30.0,
    json: JsonOption = False,
) -> None:
    """Say how many executors a query needs, what they cost, and what limits it, with the evidence."""
    from penstock.api.applications import advise as verb

    queries = verb(
        source,
        rate=rate,
        latency_ms=latency_ms,
        slots=slots,
        end_offsets=end_offsets,
        broker=broker,
        query=query,
        utilisation=utilisation,
        price=price,
        seconds=seconds,
    )
    if json:
        output.print_json([advised.document() for advised in queries])
        return
    for advised in queries:
        advice = advised.advice
        needed = "no number is enough" if advice.needed_slots is None else f"{advice.needed_slots} of one core"
        useful = "" if advice.useful_slots is None else f", more than {advice.useful_slots} do nothing"
        output.say(f"query       {advised.query or '(without a name)'}")
        output.say(f"limit       {advice.limit}")
        output.say(f"executors   {needed} (now {advice.now_slots}{useful})")
        of = f"{advice.most_rate_now:,.0f} of {advice.target_rate:,.0f} rows/s"
        output.say(f"headroom    {100 * advice.headroom:+.0f} %: {of}")
        output.say(f"batches     {advice.batch_seconds:g} s, maxOffsetsPerTrigger {advice.rows_per_batch:,}")
        if advice.price_per_hour is not None:
            output.say(f"cost        {advice.price_per_hour:.2f} an hour")
        for line in advice.evidence:
            output.say(f"evidence    {line}")
        output.say(f"do          {advice.what_to_do}")
