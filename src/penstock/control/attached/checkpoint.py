"""Batches from the checkpoint of a query: what every batch read of Kafka, when it began, and what still waits there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.control.attached.batches import BatchSeen
from penstock.digits import is_whole
from penstock.errors import BadInputError
from penstock.files import parse_json, read_document, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MOST_BATCHES = 500
LARGEST_FILE = 4 * 2**20
MAX_OFFSET = 2**63 - 1
MAX_MS = 10**14
"""Since the epoch, in the year 5138."""

Offsets = dict[str, dict[str, int]]
"""By topic and partition."""


def batches_of_checkpoint(folder: Path, slots: int | None, end: Offsets | None) -> list[BatchSeen]:
    """A batch lasts until the next one begins, as long as there was always something to do: where the query waited for
    rows this takes the wait for work. `end` is where the topics end now."""
    if not (folder / "offsets").is_dir():
        raise BadInputError(f"{folder}: no checkpoint of a query: it has no folder 'offsets'")
    numbers = sorted(int(file.name) for file in (folder / "offsets").iterdir() if is_whole(file.name))[-MOST_BATCHES:]
    entries = [_entry(folder / "offsets" / str(number)) for number in numbers]
    batches = []
    # the entry of a batch says up to where it reads, and is written when it begins
    for (_, before), (began, offsets), (following, _) in zip(entries, entries[1:], entries[2:], strict=False):
        rows = _difference(offsets, before)
        if rows > 0 and following > began:
            partitions = sum(len(parts) for parts in offsets.values()) or None
            batches.append(BatchSeen(began, rows, following - began, slots, partitions, query=folder.resolve().name))
    if batches and end is not None:
        batches[-1] = replace(batches[-1], backlog=_difference(end, entries[-1][1]))
    return batches


def _entry(file: Path) -> tuple[float, Offsets]:
    """v1, then a line about the batch, then one line for every source."""
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise BadInputError(f"{file}: too large for the offsets of a batch")
    except OSError as error:
        raise BadInputError(f"{file}: cannot be read: {error}") from error
    lines = read_text(file).splitlines()
    if len(lines) < 3 or lines[0] != "v1":
        raise BadInputError(f"{file}: not the offsets of a batch: expected 'v1' and two lines more")
    about = parse_json(lines[1], f"{file}: line 2")
    milliseconds = about.get("batchTimestampMs") if isinstance(about, dict) else None
    if not isinstance(milliseconds, int) or isinstance(milliseconds, bool) or not 0 <= milliseconds <= MAX_MS:
        raise BadInputError(f"{file}: line 2: expected batchTimestampMs")
    offsets: Offsets = {}
    for number, line in enumerate(lines[2:], 3):
        if line != "-":
            where = f"{file}: line {number}"
            offsets.update(kafka_offsets(_json(line, where), where))
    return milliseconds / 1000, offsets


def _json(text: str, where: str) -> Any:
    """None: Spark's own sources may say where they are in words of their own."""
    try:
        return parse_json(text, where)
    except BadInputError:
        return None


def kafka_offsets(value: Any, where: str) -> Offsets:
    """`{"topic": {"0": 17}}`; other sources do not say how many rows lie between two offsets."""
    if not isinstance(value, dict) or not value or not all(isinstance(parts, dict) for parts in value.values()):
        raise BadInputError(f"{where}: not Kafka's offsets; only those tell how many rows a batch had")
    offsets: Offsets = {}
    for topic, parts in value.items():
        for part, offset in parts.items():
            is_offset = isinstance(offset, int) and not isinstance(offset, bool) and abs(offset) <= MAX_OFFSET
            if not is_offset or not is_whole(str(part)):
                raise BadInputError(f"{where}: topic '{topic}': expected whole numbers by partition")
            offsets.setdefault(str(topic), {})[str(part)] = offset
    return offsets


def read_end_offsets(path: Path) -> Offsets:
    return kafka_offsets(read_document(path), str(path))


def _difference(later: Mapping[str, Mapping[str, int]], earlier: Mapping[str, Mapping[str, int]]) -> float:
    return float(
        sum(
            max(0, offset - earlier.get(topic, {}).get(part, offset))
            for topic, parts in later.items()
            for part, offset in parts.items()
        )
    )


def last_offsets(folder: Path) -> Offsets:
    """Up to where the last batch reads."""
    numbers = [int(file.name) for file in (folder / "offsets").iterdir() if is_whole(file.name)]
    return _entry(folder / "offsets" / str(max(numbers)))[1] if numbers else {}
