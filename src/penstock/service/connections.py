"""HTTP connections with deadlines and a bound on their number.

uvicorn limits neither the time a request takes to arrive nor the connections that wait for one: whoever opens enough of
them and never finishes a header takes every file the process may open. Here a request has one deadline from its first
byte to its last, and the connection that has waited longest for a request is dropped to make room for a new one.
"""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    import socket

HEADER_SECONDS = 10.0
"""Max seconds from the connection, or from the end of the last answer, to the end of the header."""
REQUEST_SECONDS = 30.0
"""The same, to the end of the body."""
STALLED_SECONDS = 30.0
"""A client that takes no byte of its answer for this long is dropped."""
MAX_OPEN = 1000
MAX_WAITING_PER_PEER = 600
"""Connections of one address without a complete request."""
ACCEPTED_AT_ONCE = 32
"""Connections per turn of the loop: far fewer than one peer may have waiting, so that a connection whose request comes
at once is read before it could be dropped; and those that are accepted already are answered in between."""
QUEUE = 1024
"""Connections the system holds until they are accepted: one it has no room for tries again only after a second."""
KEEP_ALIVE_SECONDS = 5
SPARE_FILES = 200
"""Open files reserved for the store, drivers, logs and modules."""
UNFINISHED = frozenset({h11.IDLE, h11.SEND_BODY})
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def raise_file_limit() -> int:
    """Raise the limit of open files to the hard limit. Return the number of connections that fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass  # a hard limit above the system's own: the soft one stays
    return MAX_OPEN if soft == resource.RLIM_INFINITY else max(50, min(MAX_OPEN, soft - SPARE_FILES))


class Crowd:
    """Open connections, and in the order of their waiting those that have no complete request."""

    def __init__(self, max_open: int = MAX_OPEN, max_waiting_per_peer: int = MAX_WAITING_PER_PEER) -> None:
        self._max_open = max_open
        self._max_waiting_per_peer = max_waiting_per_peer
        self._open: set[LimitedProtocol] = set()
        self._waiting: dict[LimitedProtocol, None] = {}
        self._by_peer: dict[str, dict[LimitedProtocol, None]] = {}

    @property
    def sizes(self) -> tuple[int, int]:
        """Connections that are open, and those of them that wait for a request."""
        return len(self._open), len(self._waiting)

    def open(self, connection: LimitedProtocol) -> None:
        self._open.add(connection)

    def close(self, connection: LimitedProtocol) -> None:
        self._open.discard(connection)
        self.leave(connection)

    def wait(self, connection: LimitedProtocol) -> None:
        """Mark `connection` as one that may be dropped. Drop those for which there is no room."""
        self._waiting[connection] = None
        peers = self._by_peer.setdefault(connection.peer, {})
        peers[connection] = None
        if len(peers) > self._max_waiting_per_peer:
            self._drop(next(iter(peers)))
        if len(self._open) > self._max_open and self._waiting:
            self._drop(next(iter(self._waiting)))

    def leave(self, connection: LimitedProtocol) -> None:
        """`connection` has a complete request: it is answered."""
        self._waiting.pop(connection, None)
        peers = self._by_peer.get(connection.peer, {})
        peers.pop(connection, None)
        if not peers:
            self._by_peer.pop(connection.peer, None)

    def _drop(self, connection: LimitedProtocol) -> None:
        self.close(connection)
        connection.drop()


class LimitedProtocol(H11Protocol):
    crowd: ClassVar[Crowd]
    peer = ""
    _waiting_since: float | None = None
    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else ""
        self.crowd.open(self)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()
        self.resume_writing()
        self.crowd.close(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(STALLED_SECONDS, self.drop)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def drop(self) -> None:
        self.transport.abort()

    def _watch(self) -> None:
        """Start the deadline of a request that is awaited, end that of one that is complete."""
        if self.transport.is_closing() or self.conn.their_state not in UNFINISHED:
            self._finish()
        elif self._waiting_since is None:
            self._waiting_since = self.loop.time()
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._late)
            self.crowd.wait(self)

    def _finish(self) -> None:
        if self._waiting_since is not None:
            self._waiting_since = None
            self.crowd.leave(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        left = (self._waiting_since or 0.0) + REQUEST_SECONDS - self.loop.time()
        if self.conn.their_state is h11.SEND_BODY and left > 0:
            self._deadline = self.loop.call_later(left, self._late)
            return
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0] and not self.transport.is_closing():
            self.transport.write(TOO_LATE)
            self.transport.close()
        else:
            self.drop()


class LimitedServer(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # asyncio takes one number for both: connections accepted at once, and connections the system holds
        for listener in sockets or ():
            listener.listen(QUEUE)


def limited_protocol(crowd: Crowd) -> type[LimitedProtocol]:
    """The protocol of one server: uvicorn makes its connections itself, so they find their crowd by their class."""
    return type("ServedProtocol", (LimitedProtocol,), {"crowd": crowd})
