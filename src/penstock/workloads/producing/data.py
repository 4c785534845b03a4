"""Where a producer's messages come from: made by number, or rows of files over and over."""

from __future__ import annotations

import json
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInputError
from penstock.files import read_bytes, read_text
from penstock.workloads.applications.draws import Draws
from penstock.workloads.applications.messages import MESSAGES, happened, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.workloads.producing.spec import ProducerSpec

BATCHES = "batches"
TABLES = (".csv", ".parquet")
"""Endings of files whose rows have columns; all others are lines of JSON."""
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
    rows: list[dict[str, Any]] = []
    for name in sorted(glob(pattern)):  # noqa: PTH207 - the user's pattern, from anywhere
        path = Path(name)
        rows += _table_rows(path) if path.suffix.lower() in TABLES else _json_rows(path)
    if not rows:
        raise BadInputError(f"rows: no line in any file that matches '{pattern}'")
    return rows


def _json_rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for position, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise BadInputError(f"{path}: line {position}: not valid JSON: {error}") from error
        if not isinstance(value, dict):
            raise BadInputError(f"{path}: line {position}: expected a JSON object")
        rows.append(value)
    return rows


def _table_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of CSV (the first line has the names) or Parquet, as the JSON that a sink would make of them."""
    import pyarrow as pa  # noqa: PLC0415 - belongs to the extra
    from pyarrow import csv, parquet  # noqa: PLC0415

    from penstock.connectors.log.spark_text import json_lines  # noqa: PLC0415

    file = pa.BufferReader(read_bytes(path))
    try:
        table = csv.read_csv(file) if path.suffix.lower() == ".csv" else parquet.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise BadInputError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
    return [json.loads(line) for batch in table.to_batches() for line in json_lines(batch)]
