"""The pipelines of the priority thesis' use cases (002, chapter 4) for real, at a small scale: topics in, topics out.

A tuple takes its service time by waiting: two cores cannot compute for as many slots as take part, and a slot does one
tuple at a time either way.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.clock import pause
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.log.address import LogAddress

EVENT_SECONDS, ARCHIVE_SECONDS = 0.2, 0.1
"""S_high and S_low of use case 1 at their defaults."""
FEED_SECONDS = {"TP1": 0.4, "TP2": 0.2}
"""S of use case 2."""
THRESHOLD = 50.0
SCHEMA = "source string, batch int, number int, reading double"
_HERE = "penstock.experiments.priority.live_pipelines"


def _parse(row: dict[str, Any]) -> dict[str, Any]:
    message = json.loads(row["value"])
    return {
        "source": str(message["source"]),
        "batch": int(message["batch"]),
        "number": int(message["number"]),
        "reading": float(message["reading"]),
    }


def _taking(seconds: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def serve(row: dict[str, Any]) -> dict[str, Any]:
        pause(seconds)
        return row

    return serve


parse = Logic(_parse, schema=SCHEMA)
detect = Logic(_taking(EVENT_SECONDS), schema=SCHEMA)
archive = Logic(_taking(ARCHIVE_SECONDS), schema=SCHEMA)
count_first = Logic(_taking(FEED_SECONDS["TP1"]), schema=SCHEMA)
count_second = Logic(_taking(FEED_SECONDS["TP2"]), schema=SCHEMA)


def reading_pipeline(name: str, work: str, log: LogAddress, topic: str, into: str) -> Pipeline:
    """source -> parse -> `work` (an attribute of this module) -> dispatch."""
    operators = [
        Operator(name="source", kind=Kind.SOURCE, format=log.format, options={**log.options, "subscribe": topic}),
        Operator(name="parse", run=f"{_HERE}:parse", threads=1, cpu=5, memory_mb=32),
        Operator(name="work", run=f"{_HERE}:{work}", threads=1, cpu=5, memory_mb=32),
        Operator(name="dispatch", kind=Kind.SINK, format=log.format, options={**log.options, "topic": into}),
    ]
    ways = (("source", "parse"), ("parse", "work"), ("work", "dispatch"))
    return Pipeline.of(name, operators, [Stream(sender=a, receiver=b) for a, b in ways])
