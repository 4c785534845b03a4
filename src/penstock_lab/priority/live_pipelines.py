"""The pipelines of the priority thesis' use cases (002, chapter 4) for real, at a small scale: topics in, topics out.

    EventTP     source -> parse -> serve -> detect (keyed by producer and batch) -> dispatch
    ArchivalTP  source -> parse -> archive (a time and a tag) -> dispatch
    TP          source -> parse -> count -> dispatch

A tuple takes its service time by waiting: two cores cannot compute for as many slots as take part, and a slot does one
tuple at a time either way. The detector passes every tuple on and marks the one that makes its batch a raw event.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.clock import now, pause
from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock_lab.priority.perf import needed_for_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

    from penstock.connectors.log.address import LogAddress

EVENT_SECONDS, ARCHIVE_SECONDS = 0.2, 0.1
"""S_high and S_low of use case 1 at their defaults."""
FEED_SECONDS = {"TP1": 0.4, "TP2": 0.2}
"""S of use case 2."""
THRESHOLD = 50.0
SCHEMA = "source string, batch int, of int, number int, reading double"
"""`of`: how many tuples the batch has."""
DETECTED = f"{SCHEMA}, event boolean"
ARCHIVED = f"{SCHEMA}, archived double, tag string"
_HERE = "penstock_lab.priority.live_pipelines"


def _parse(row: dict[str, Any]) -> dict[str, Any]:
    message = json.loads(row["value"])
    return {
        "source": str(message["source"]),
        "batch": int(message["batch"]),
        "of": int(message["of"]),
        "number": int(message["number"]),
        "reading": float(message["reading"]),
    }


def _taking(seconds: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def serve(row: dict[str, Any]) -> dict[str, Any]:
        pause(seconds)
        return row

    return serve


def _archive(row: dict[str, Any]) -> dict[str, Any]:
    pause(ARCHIVE_SECONDS)
    return {**row, "archived": now(), "tag": "disk-1"}


def _judge(_key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Of a producer's batch: how many tuples came, how many of them above the threshold, whether that was enough."""
    tuples, above, decided = state.get if state.exists else (0, 0, False)
    for frame in frames:
        length = int(frame["of"].iloc[0])
        high = above + (frame["reading"] > THRESHOLD).cumsum()
        enough = (high >= needed_for_event(length)) & (not decided)
        # the first that is enough; those behind it change nothing
        yield frame.assign(event=enough & (enough.cumsum() == 1))
        tuples, above, decided = tuples + len(frame), int(high.iloc[-1]), decided or bool(enough.any())
        if tuples < length:
            state.update((tuples, above, decided))
        elif state.exists:
            state.remove()


def _detect(frame: Any) -> Any:
    by_batch = frame.groupBy("source", "batch")
    state = "tuples int, above int, decided boolean"
    return by_batch.applyInPandasWithState(_judge, DETECTED, state, "append", "NoTimeout")


parse = Logic(_parse, schema=SCHEMA)
serve = Logic(_taking(EVENT_SECONDS), schema=SCHEMA)
detect = Logic(_detect, Per.DATAFRAME)
archive = Logic(_archive, schema=ARCHIVED)
count_first = Logic(_taking(FEED_SECONDS["TP1"]), schema=SCHEMA)
count_second = Logic(_taking(FEED_SECONDS["TP2"]), schema=SCHEMA)


def reading_pipeline(name: str, work: tuple[str, ...], log: LogAddress, topic: str, into: str) -> Pipeline:
    """source -> parse -> all of `work` (attributes of this module) -> dispatch."""
    operators = [
        Operator(name="source", kind=Kind.SOURCE, format=log.format, options={**log.options, "subscribe": topic}),
        *(
            Operator(name=operator, run=f"{_HERE}:{operator}", threads=1, cpu=5, memory_mb=32)
            for operator in ("parse", *work)
        ),
        Operator(name="dispatch", kind=Kind.SINK, format=log.format, options={**log.options, "topic": into}),
    ]
    ways = pairwise(operator.name for operator in operators)
    return Pipeline.of(name, operators, [Stream(sender=before, receiver=after) for before, after in ways])
