"""`perf` of the priority thesis: what producers sent joined with what sinks got, on one clock.

A raw event is what the detector says it is: 80 % of a producer's batch are above the threshold. A complex one is there
when both topics' raw events of the same batch are.

    T_E   mean over batches with events of max(raw1, raw2); raw = moment of the decision - end of sending
    T_T   use case 1: mean over producers' batches of (last tuple at the sink - first sent) / BL
          use case 2: mean over tuples of (at the sink - sent)
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.plugins import TopicLog

EVENT_SHARE = 0.8
ROUNDING = 1e-9
"""0.8 x 40 is not a whole number to a computer."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A tuple, and when it was sent or reached a sink, in seconds since the epoch."""

    source: str
    batch: int
    number: int
    reading: float
    at: float
    event: bool = False
    """By what the detector said, this tuple made its batch a raw event."""


def needed_for_event(tuples: int) -> int:
    """So many of a batch above the threshold are a raw event: 80 %, rounded up."""
    return math.ceil(EVENT_SHARE * tuples - ROUNDING)


def arrivals(log: TopicLog, topic: str) -> list[Arrival]:
    made = []
    for partition, span in log.spans(topic).items():
        for batch in log.read(topic, partition, span.first, span.end):
            for value, time_ms in zip(batch["value"].to_pylist(), batch["time_ms"].to_pylist(), strict=True):
                row = json.loads(value)
                made.append(
                    Arrival(
                        row["source"],
                        row["batch"],
                        row["number"],
                        row["reading"],
                        time_ms / 1000,
                        event=row.get("event", False),
                    )
                )
    return made


def by_batch(rows: Sequence[Arrival]) -> dict[tuple[str, int], list[Arrival]]:
    grouped: dict[tuple[str, int], list[Arrival]] = defaultdict(list)
    for row in rows:
        grouped[row.source, row.batch].append(row)
    return grouped


def raw_seconds(sent: Sequence[Arrival], got: Sequence[Arrival]) -> dict[int, float]:
    """By batch that the detector called an event of every producer: from the end of sending to what it said, of the
    producer of whom it said so last."""
    decided = {(row.source, row.batch): row.at for row in got if row.event}
    raw: dict[int, float] = {}
    undecided = set()
    for key, rows in by_batch(sent).items():
        if key in decided:
            raw[key[1]] = max(raw.get(key[1], 0.0), decided[key] - max(row.at for row in rows))
        else:
            undecided.add(key[1])
    return {batch: seconds for batch, seconds in raw.items() if batch not in undecided}


def misjudged(sent: Sequence[Arrival], got: Sequence[Arrival], threshold: float) -> int:
    """Batches of producers that the detector did not call an event once where they are, or did where they are not."""
    events = Counter((row.source, row.batch) for row in got if row.event)
    return sum(
        events[key] != (sum(row.reading > threshold for row in rows) >= needed_for_event(len(rows)))
        for key, rows in by_batch(sent).items()
    )


def not_there_once(sent: Sequence[Arrival], got: Sequence[Arrival]) -> int:
    """Tuples that are missing, and those that are there again: one lost and another doubled are two."""
    wanted = Counter((row.source, row.batch, row.number) for row in sent)
    there = Counter((row.source, row.batch, row.number) for row in got)
    return (wanted - there).total() + (there - wanted).total()


def complex_event_seconds(raw: Sequence[Mapping[int, float]]) -> list[float]:
    """T_E of every batch that all topics decided."""
    batches = set.intersection(*(set(each) for each in raw))
    return [max(each[batch] for each in raw) for batch in sorted(batches)]


def seconds_per_tuple(sent: Sequence[Arrival], got: Sequence[Arrival]) -> float | None:
    """T_T of use case 1; None where no batch is whole."""
    reached = by_batch(got)
    times = [
        (max(row.at for row in reached[key]) - min(row.at for row in rows)) / len(rows)
        for key, rows in by_batch(sent).items()
        if len(reached.get(key, ())) == len(rows)
    ]
    return float(np.mean(times)) if times else None


def tuple_seconds(sent: Sequence[Arrival], got: Sequence[Arrival]) -> float | None:
    """T_T of use case 2."""
    sending = {(row.source, row.number): row.at for row in sent}
    times = [row.at - sending[row.source, row.number] for row in got if (row.source, row.number) in sending]
    return float(np.mean(times)) if times else None
