"""The pipelines of the priority thesis' use cases: EventTP and ArchivalTP (use case 1), TP1 and TP2 (use case 2).

Messages are lines of comma-separated values. A line that is malformed raises ValueError and becomes a dead letter. The
service time of an operator is CPU of its thread and not waiting, whatever the speed of the core.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.base.clock import now, seconds_of, thread_cpu_seconds
from penstock.dataflow.logic import Logic
from penstock.workloads.applications.messages import THRESHOLD, feed_line, gateway_line
from penstock.workloads.incoming import line_of
from penstock.workloads.operators.pi import viete

if TYPE_CHECKING:
    from collections.abc import Callable

EVENT_SECONDS, ARCHIVE_SECONDS = 0.2, 0.1
"""CPU seconds for a tuple in use case 1, at the defaults: S_high and half of it."""
COUNT_SECONDS = 0.4
"""CPU seconds for a tuple of TP1; TP2 needs half of it."""
EVENT_PART = 0.8
"""Part of a batch's readings above the threshold that makes it a raw event."""
STORAGE_TAG = "disk-1"
_FIELDS = 4


def use_cpu(seconds: float) -> None:
    """Compute until the thread has used this much CPU."""
    end = thread_cpu_seconds() + seconds
    while thread_cpu_seconds() < end:
        viete()


def _fields_of(row: dict[str, Any], make: Callable[[int], str]) -> tuple[float, str, str, str]:
    """Return the time, the source, the third field and the fourth field of a line."""
    text = line_of(row, make)
    fields = text.split(",")
    if len(fields) != _FIELDS:
        raise ValueError(f"expected {_FIELDS} fields with commas between them, found {len(fields)}")
    moment, source, value, other = fields
    if not source:
        raise ValueError("field 2: expected a source, found nothing")
    return seconds_of(moment), source, value, other


def _reading_of(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"field 3: expected a reading, found '{text}'")
    return value


def _batch_of(other: str) -> tuple[int, int]:
    """Return the number of a reading's batch and the length of the batch, from `DEVICE;BATCH;LENGTH`."""
    parts = other.split(";")
    if len(parts) != 3:
        raise ValueError(f"field 4: expected DEVICE;BATCH;LENGTH, found '{other}'")
    batch, length = int(parts[1]), int(parts[2])
    if length < 1:
        raise ValueError(f"field 4: expected a length of at least 1, found {length}")
    return batch, length


# Use case 1. A detector decides on a batch of one gateway when all its readings have come.


def _parse_reading(row: dict[str, Any]) -> dict[str, Any]:
    ts, source, value, other = _fields_of(row, gateway_line)
    batch, length = _batch_of(other)
    return {"ts": ts, "source": source, "batch": batch, "length": length, "reading": _reading_of(value)}


def _compare(row: dict[str, Any], *, seconds: float) -> dict[str, Any]:
    use_cpu(seconds)
    return {
        "ts": row["ts"],
        "source": row["source"],
        "batch": row["batch"],
        "length": row["length"],
        "above": int(row["reading"] > THRESHOLD),
    }


def _dispatch(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the decision on a batch once it is complete."""
    if row["readings"] < row["length"]:
        return None
    return {
        "source": row["source"],
        "batch": row["batch"],
        "readings": row["readings"],
        "above": row["above"],
        "event": row["above"] >= EVENT_PART * row["length"],
    }


def _archive(row: dict[str, Any], *, seconds: float) -> dict[str, Any]:
    ts, source, value, other = _fields_of(row, gateway_line)
    reading = _reading_of(value)
    use_cpu(seconds)
    return {"ts": ts, "source": source, "reading": reading, "other": other, "archived": now(), "tag": STORAGE_TAG}


# Use case 2.


def _parse_feed(row: dict[str, Any]) -> dict[str, Any]:
    ts, user, content, _ = _fields_of(row, feed_line)
    return {"ts": ts, "user": user, "content": content}


def _count(row: dict[str, Any], *, seconds: float) -> dict[str, Any]:
    use_cpu(seconds)
    return {"ts": row["ts"], "user": row["user"], "words": len(row["content"].split())}


def compare_in(seconds: float) -> Logic:
    """Code that compares a reading with the threshold."""
    return Logic(
        partial(_compare, seconds=seconds), schema="ts double, source string, batch bigint, length int, above int"
    )


def archive_in(seconds: float) -> Logic:
    """Code that adds the time of archiving and a tag to a reading."""
    schema = "ts double, source string, reading double, other string, archived double, tag string"
    return Logic(partial(_archive, seconds=seconds), schema=schema)


def count_in(seconds: float) -> Logic:
    """Code that counts the words of a message."""
    return Logic(partial(_count, seconds=seconds), schema="ts double, user string, words int")


parse_reading = Logic(_parse_reading, schema="ts double, source string, batch bigint, length int, reading double")
parse_feed = Logic(_parse_feed, schema="ts double, user string, content string")
dispatch = Logic(_dispatch, schema="source string, batch bigint, readings bigint, above bigint, event boolean")

SERVED: dict[str, Callable[[float], Logic]] = {"compare": compare_in, "archive": archive_in, "count": count_in}
"""Operators with a service time, by name."""


def __getattr__(name: str) -> Logic:
    """Return `compare*0.2`: the code of an operator with a service time in seconds, by a name that files can have."""
    operator, times, seconds = name.partition("*")
    try:
        if times:
            return SERVED[operator](float(seconds))
    except (KeyError, ValueError) as error:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'") from error
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
