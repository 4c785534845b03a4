"""The file of a partition: frames one behind the other, each some messages as an Arrow record batch.

    magic, bytes of the body, checksum of the body, first offset, messages, time of the last in ms | body

A frame that was not written whole (its process died) does not check out: it was never appended. It can only be the
last: whoever appends begins where the last whole one ends.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = struct.Struct("<4sIIQIq")
_MAGIC = b"PSL1"

STORED = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("time_ms", pa.int64())])
"""Offsets follow from the first."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a frame lies in its file, and what it holds."""

    position: int
    size: int
    checksum: int
    first: int
    messages: int
    last_ms: int

    @property
    def end(self) -> int:
        return self.first + self.messages

    @property
    def behind(self) -> int:
        """Where the next one begins."""
        return self.position + _HEAD.size + self.size


def encode(batch: pa.RecordBatch, first: int, last_ms: int) -> bytes:
    body: bytes = batch.serialize().to_pybytes()
    return _HEAD.pack(_MAGIC, len(body), crc32(body), first, batch.num_rows, last_ms) + body


def read_frame(handle: int, frame: Frame) -> pa.RecordBatch | None:
    """None: it is not what it was when it was found."""
    body = os.pread(handle, frame.size, frame.position + _HEAD.size)
    return pa.ipc.read_record_batch(pa.py_buffer(body), STORED) if crc32(body) == frame.checksum else None


def scan(handle: int, position: int, expected: int) -> Iterator[Frame]:
    """The frames from `position` on that are whole; `expected` is the first offset of the first."""
    while (frame := _frame_at(handle, position)) is not None and frame.first == expected:
        yield frame
        position, expected = frame.behind, frame.end


def whole_frame_behind(handle: int, position: int) -> Frame | None:
    """The first whole frame that does not begin at `position` but behind it: what is at `position` was whole once, too.
    Where it is whole now, somebody was just writing it."""
    left = os.pread(handle, max(0, os.fstat(handle).st_size - position), position)
    at = left.find(_MAGIC, 1)
    while at != -1:
        frame = _frame_at(handle, position + at)
        if frame is not None:
            return frame if _frame_at(handle, position) is None else None
        at = left.find(_MAGIC, at + 1)
    return None


def _frame_at(handle: int, position: int) -> Frame | None:
    head = os.pread(handle, _HEAD.size, position)
    if len(head) < _HEAD.size:
        return None
    magic, size, checksum, first, messages, last_ms = _HEAD.unpack(head)
    if magic != _MAGIC:
        return None
    body = os.pread(handle, size, position + _HEAD.size)
    if len(body) < size or crc32(body) != checksum:
        return None
    return Frame(position, size, checksum, first, messages, last_ms)
