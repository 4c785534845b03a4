"""The file of a partition: frames one behind the other, each some messages as an Arrow record batch.

    magic, bytes of the body, checksum of the body, first offset, messages, time of the last in ms | body

A frame that was not written whole (its process died) does not check out: it and what follows was never appended.
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


def read_frame(handle: int, frame: Frame) -> pa.RecordBatch:
    body = os.pread(handle, frame.size, frame.position + _HEAD.size)
    return pa.ipc.read_record_batch(pa.py_buffer(body), STORED)


def scan(handle: int, position: int, expected: int) -> Iterator[Frame]:
    """The frames from `position` on that are whole; `expected` is the first offset of the first."""
    while True:
        head = os.pread(handle, _HEAD.size, position)
        if len(head) < _HEAD.size:
            return
        magic, size, checksum, first, messages, last_ms = _HEAD.unpack(head)
        if magic != _MAGIC or first != expected:
            return
        body = os.pread(handle, size, position + _HEAD.size)
        if len(body) < size or crc32(body) != checksum:
            return
        frame = Frame(position, size, first, messages, last_ms)
        yield frame
        position, expected = frame.behind, frame.end
