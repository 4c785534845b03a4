"""One stream between two bundles: Arrow batches in order, markers between them.

Rows wait a few milliseconds for others, so that small batches do not cost a call each and latency stays low. What is
under way is bounded: the receiver says how many rows may be, by how fast it takes them in.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.base.clock import now
from penstock.engines.placed.flow.bundle import FEWEST_ROWS, Window
from penstock.engines.placed.wire import ROWS, LinkError, check_seal, receive_frame, send_frame
from penstock.runtime.batch import Batch, Marks, joined_by_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.engines.placed.wire import Connection

LINGER_SECONDS = 0.005
FULL_BYTES = 256 * 1024
"""Rows that are as many bytes do not wait for others."""

SCHEMA, DATA, MARKER = 1, ROWS, 3
_DATA = struct.Struct("<dQQBBB")
"""When it was sent, rows, bytes of Arrow; whether ids, due and path follow."""
_MARKER = struct.Struct("<q")
_TAKEN = struct.Struct("<qq")
"""What the receiver says: rows it has taken in so far, and how many more may be under way."""


class OutLink:
    """The sending end. Threads that emit may meet here: one at a time gets in."""

    def __init__(self, made: Connection) -> None:
        self.socket = made
        self._lock = threading.Lock()
        self._waiting: list[Batch] = []
        self._bytes = 0
        self._since = 0.0
        self._schema: pa.Schema | None = None
        self._sent = self._taken = 0
        self._window = FEWEST_ROWS
        self._said = b""

    def put(self, batch: Batch) -> None:
        with self._lock:
            if not self._waiting:
                self._since = now()
            self._waiting.append(batch)
            self._bytes += batch.nbytes
            if self._bytes >= FULL_BYTES:
                self._send()

    def send_old(self, moment: float) -> None:
        """What waits since before `moment` goes."""
        if self._waiting and self._since <= moment:
            with self._lock:
                self._send()

    def mark(self, epoch: int) -> None:
        with self._lock:
            self._send()
            send_frame(self.socket, MARKER, _MARKER.pack(epoch))

    def _send(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        for batch in joined_by_schema(waiting):
            at = 0
            while at < len(batch):
                room = self._room()
                self._send_one(batch.slice(at, at + room) if at or room < len(batch) else batch)
                at += room

    def _room(self) -> int:
        """Rows that may be sent now; waits until there are some."""
        self._hear(socket.MSG_DONTWAIT)
        while self._sent - self._taken >= self._window:
            self._hear(0)
        return self._window - (self._sent - self._taken)

    def _hear(self, flags: int) -> None:
        try:
            received = self.socket.recv(4096, flags)
        except BlockingIOError:
            return
        if not received:
            raise LinkError("the other end closed the connection")
        self._said += received
        size = _TAKEN.size + self.socket.tag_bytes
        while len(self._said) >= size:
            taken, tag, self._said = self._said[: _TAKEN.size], self._said[_TAKEN.size : size], self._said[size:]
            check_seal(self.socket, tag, taken)
            self._taken, self._window = _TAKEN.unpack(taken)

    def _send_one(self, batch: Batch) -> None:
        if self._schema is None or not self._schema.equals(batch.rows.schema):
            self._schema = batch.rows.schema
            send_frame(self.socket, SCHEMA, self._schema.serialize().to_pybytes())
        body = batch.rows.serialize()
        marks = [batch.ids, batch.due, batch.path]
        text = _DATA.pack(now(), len(batch), len(body), *(column is not None for column in marks))
        send_frame(self.socket, DATA, text, body, *(np.ascontiguousarray(m) for m in marks if m is not None))
        self._sent += len(batch)


class InLink:
    """The receiving end; one thread reads."""

    def __init__(self, made: Connection) -> None:
        self.socket = made
        self._schema: pa.Schema | None = None
        self._window = Window()
        self._taken = 0

    def took(self, rows: int, seconds: float) -> None:
        """Tell the sender that a batch was taken in, and how much more may come."""
        self._taken += rows
        self._window.took(rows, seconds)
        taken = _TAKEN.pack(self._taken, self._window.rows)
        self.socket.sendall(taken + self.socket.seal((taken,)))

    def next(self) -> tuple[Batch, float] | int:
        """A batch and when it was sent, or the number of an epoch whose marker has come."""
        while True:
            kind, text, body = receive_frame(self.socket)
            if kind == SCHEMA:
                self._schema = pa.ipc.read_schema(pa.py_buffer(text))
            elif kind == MARKER:
                return int(_MARKER.unpack(text)[0])
            elif kind == DATA and self._schema is not None:
                return self._batch(text, body)
            else:
                raise LinkError("a frame that no link sends")

    def _batch(self, text: bytes, body: bytearray) -> tuple[Batch, float]:
        sent, rows, size, *follow = _DATA.unpack(text)
        view = memoryview(body)
        columns: list[np.ndarray | None] = []
        at = size
        for there, kind in zip(follow, (np.int64, np.float64, np.int64), strict=True):
            columns.append(np.frombuffer(view, kind, rows, at) if there else None)
            at += 8 * rows if there else 0
        record = pa.ipc.read_record_batch(pa.py_buffer(view[:size]), self._schema)
        return Batch(record, Marks(*columns)), sent


class Linger(threading.Thread):
    """Sends what has waited long enough on any of the links; `failed` hears of a link that broke."""

    def __init__(
        self, links: Sequence[OutLink], failed: Callable[[BaseException], None], seconds: float = LINGER_SECONDS
    ) -> None:
        super().__init__(daemon=True)
        self._links, self._seconds = links, seconds
        self._failed = failed
        self._over = threading.Event()

    def run(self) -> None:
        try:
            while not self._over.wait(self._seconds):
                for link in self._links:
                    link.send_old(now() - self._seconds / 2)
        except OSError as error:
            self._failed(error)

    def stop(self) -> None:
        self._over.set()
