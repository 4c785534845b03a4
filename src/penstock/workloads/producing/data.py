"""Where a producer's messages come from: made by number, or lines of files over and over."""

from __future__ import annotations

import json
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInputError
from penstock.files import read_text
from penstock.workloads.applications.draws import Draws
from penstock.workloads.applications.messages import MESSAGES, happened, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.workloads.producing.spec import ProducerSpec

BATCHES = "batches"
THRESHOLD = 50.0
"""Readings above it are those of an event."""
EVENT_READINGS = 0.9
"""The part of an event batch's readings that are above the threshold; the detector asks for 0.8."""


def known_data() -> list[str]:
    return [*MESSAGES, BATCHES]


def making(spec: ProducerSpec) -> Callable[[int, int], dict[str, Any]]:
    """A function of the number of a message and of its producer."""
    if spec.rows is not None:
        rows = _rows(spec.rows)
        return lambda number, producer: rows[number % len(rows)]
    if spec.data == BATCHES:
        return lambda number, producer: batch_reading(number, producer, spec.batch_length, spec.event_share)
    make = messages(spec.data or "")
    return lambda number, producer: make(number)


def batch_reading(number: int, producer: int, length: int, event_share: float) -> dict[str, Any]:
    """Reading `number` of a producer whose batches have `length` of them: 002's use case 1. Whether a batch is an event
    follows from its number alone, so that the producers of two topics make events at the same time."""
    batch, place = divmod(number, length)
    is_event = is_event_batch(batch, event_share)
    # exactly the part asked for, the first of a batch
    high = place < round(length * EVENT_READINGS) if is_event else place % 4 == 0
    draw = Draws(number * 1009 + producer)
    value = THRESHOLD + 1 + draw.below(40) if high else draw.below(int(THRESHOLD))
    return {
        "id": number,
        "ts": happened(number),
        "source": f"s{producer}",
        "batch": batch,
        "last": place == length - 1,
        "reading": float(value),
        "other": "x" * 40,
    }


def is_event_batch(batch: int, event_share: float) -> bool:
    return Draws(batch * 7919 + 17).below(10_000) < event_share * 10_000


def _rows(pattern: str) -> list[dict[str, Any]]:
    rows = []
    for name in sorted(glob(pattern)):  # noqa: PTH207 - the user's pattern, from anywhere
        for position, line in enumerate(read_text(Path(name)).splitlines(), start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                raise BadInputError(f"{name}: line {position}: not valid JSON: {error}") from error
            if not isinstance(value, dict):
                raise BadInputError(f"{name}: line {position}: expected a JSON object")
            rows.append(value)
    if not rows:
        raise BadInputError(f"rows: no line in any file that matches '{pattern}'")
    return rows
