"""Frames over TCP between the processes of a run, and the handshake that keeps others out.

A frame is a header, a small text and a body. Both ends of a connection prove that they know the secret of the run
before anything else is read: each answers the other's random challenge. Without a certificate of the run all this is
in the clear, and every frame carries a tag that only the two ends can make (`sealed.py`); with one, it passes through
TLS (`tls.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.clock import Stopwatch
from penstock.spark.placed.sealed import SealedConnection
from penstock.spark.placed.tls import TlsConnection

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEADER = struct.Struct("<BIQ")
_CHALLENGE = 32
HANDSHAKE_SECONDS = 5.0
"""For all of the handshake together, whatever the other end sends."""
MAX_GREETING = 64 * 2**10
ROWS = 2
"""The kind of frames whose body has no tag (`sealed.py`)."""
LARGEST_TEXT = 64 * 2**20
LARGEST_BODY = 2**32
BUFFER_BYTES = 1 << 20
"""What the kernel holds of a link on either side: beyond it the sender waits."""

Address = tuple[str, int]


class Connection(Protocol):
    """What links need of a socket, with TLS or without."""

    @property
    def tag_bytes(self) -> int: ...
    def seal(self, parts: Iterable[Any], /) -> bytes: ...
    def is_sealed(self, tag: bytes, parts: Iterable[Any], /) -> bool: ...
    def sendall(self, data: Any, /) -> None: ...
    def sendmsg(self, parts: Iterable[Any], /) -> int: ...
    def recv(self, size: int, flags: int = ..., /) -> bytes: ...
    def recv_into(self, view: memoryview, /) -> int: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...
    def getsockname(self) -> Any: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Credentials:
    """What a process must know to belong to a run."""

    secret: bytes = field(repr=False)
    identity: str | None = field(default=None, repr=False)
    """The run's certificate and key, as PEM; None: no TLS."""


class LinkError(OSError):
    """The other end is gone, or is not who it should be."""


def listen(host: str) -> socket.socket:
    server = socket.create_server((host, 0), backlog=128)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    return server


class Deadline:
    """The time left for a handshake, over all of its reads."""

    def __init__(self, seconds: float) -> None:
        self._watch, self._seconds = Stopwatch(), seconds

    def left(self) -> float:
        """Return the seconds left, above 0. Raise LinkError if there are none."""
        left = self._seconds - self._watch.seconds()
        if left <= 0:
            raise LinkError(f"no handshake within {self._seconds:g} s")
        return left


@dataclass(frozen=True)
class Dialled:
    """A connection whose other end has not proved itself yet."""

    made: socket.socket | TlsConnection
    deadline: Deadline

    @property
    def host(self) -> str:
        """The address of this end."""
        return str(self.made.getsockname()[0])


def connect(address: Address, credentials: Credentials, hello: dict[str, Any]) -> Connection:
    """A connection to somebody who knows the secret, and has read `hello`."""
    return introduce(dial(address, credentials), credentials, hello)


def dial(address: Address, credentials: Credentials) -> Dialled:
    deadline = Deadline(HANDSHAKE_SECONDS)
    made = socket.create_connection(address, timeout=deadline.left())
    return Dialled(_secured(made, credentials, deadline, server_side=False), deadline)


def _secured(
    made: socket.socket, credentials: Credentials, deadline: Deadline, *, server_side: bool
) -> socket.socket | TlsConnection:
    """Closed if the other end does not show the run's certificate, where there is one."""
    try:
        _prepare(made)
        if credentials.identity is None:
            return made
        return TlsConnection(made, credentials.identity, deadline.left, server_side=server_side)
    except BaseException:
        made.close()
        raise


def introduce(dialled: Dialled, credentials: Credentials, hello: dict[str, Any]) -> Connection:
    """Closed if the other end does not know the secret."""
    made, deadline, secret = dialled.made, dialled.deadline, credentials.secret
    try:
        own = os.urandom(_CHALLENGE)
        text = json.dumps(hello).encode()
        theirs = _receive_by(made, _CHALLENGE, deadline)
        made.sendall(own + _proof(secret, b"caller", theirs, own, text) + struct.pack("<I", len(text)) + text)
        if not hmac.compare_digest(_receive_by(made, 32, deadline), _proof(secret, b"called", own, theirs, text)):
            raise LinkError("whoever answers does not know the run's secret")
        made.settimeout(None)
        return _sealed(made, secret, (b"caller", b"called"), own + theirs)
    except BaseException:
        made.close()
        raise


def admit(caller: socket.socket, credentials: Credentials) -> tuple[Connection, dict[str, Any]]:
    """What somebody who connected and knows the secret says of itself; anybody else is an error, and turned away."""
    deadline = Deadline(HANDSHAKE_SECONDS)
    try:
        caller.settimeout(deadline.left())
        made = _secured(caller, credentials, deadline, server_side=True)
        return _heard_hello(made, credentials.secret, deadline)
    except BaseException:
        close(caller)
        raise


def _heard_hello(
    made: socket.socket | TlsConnection, secret: bytes, deadline: Deadline
) -> tuple[Connection, dict[str, Any]]:
    own = os.urandom(_CHALLENGE)
    made.sendall(own)
    theirs = _receive_by(made, _CHALLENGE, deadline)
    proof = _receive_by(made, 32, deadline)
    (size,) = struct.unpack("<I", _receive_by(made, 4, deadline))
    if size > MAX_GREETING:
        raise LinkError("a greeting that is too long")
    text = _receive_by(made, size, deadline)
    if not hmac.compare_digest(proof, _proof(secret, b"caller", own, theirs, text)):
        raise LinkError("whoever connects does not know the run's secret")
    made.sendall(_proof(secret, b"called", theirs, own, text))
    made.settimeout(None)
    hello = json.loads(text)
    if not isinstance(hello, dict):
        raise LinkError("a greeting that says nothing")
    return _sealed(made, secret, (b"called", b"caller"), theirs + own), hello


def _sealed(
    made: socket.socket | TlsConnection, secret: bytes, roles: tuple[bytes, bytes], challenges: bytes
) -> Connection:
    """`roles` are of this end and of the other, `challenges` that of the caller before that of the called."""
    if isinstance(made, TlsConnection):
        return made
    keys = (hmac.digest(secret, b"frames|" + role + b"|" + challenges, "sha256") for role in roles)
    return SealedConnection(made, *keys)


def _receive_by(made: socket.socket | TlsConnection, size: int, deadline: Deadline) -> bytes:
    return bytes(_receive(made, size, deadline))


def _proof(secret: bytes, role: bytes, challenge: bytes, own: bytes, text: bytes) -> bytes:
    return hmac.new(secret, b"|".join((role, challenge, own, text)), hashlib.sha256).digest()


def _prepare(made: socket.socket) -> None:
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)


def send_frame(made: Connection, kind: int, text: bytes, *bodies: Any) -> None:
    """Header, text and bodies in one call to the kernel where it takes them."""
    views = [memoryview(body).cast("B") for body in bodies]
    parts = [memoryview(_HEADER.pack(kind, len(text), sum(len(view) for view in views)) + text), *views]
    if made.tag_bytes:
        parts.append(memoryview(made.seal(parts[:1] if kind == ROWS else parts)))
    left = sum(len(part) for part in parts)
    while left:
        sent = made.sendmsg(parts)
        left -= sent
        while parts and sent >= len(parts[0]):
            sent -= len(parts.pop(0))
        if parts and sent:
            parts[0] = parts[0][sent:]


def receive_frame(made: Connection) -> tuple[int, bytes, bytearray]:
    """Raise LinkError unless the frame is the next one that the other end sent."""
    header = receive_exactly(made, _HEADER.size)
    kind, text_size, size = _HEADER.unpack(header)
    if text_size > LARGEST_TEXT or size > LARGEST_BODY:
        raise LinkError("a frame that is too large")
    text, body = bytes(receive_exactly(made, text_size)), receive_exactly(made, size)
    if made.tag_bytes:
        tag = bytes(receive_exactly(made, made.tag_bytes))
        check_seal(made, tag, header, text, *(() if kind == ROWS else (body,)))
    return kind, text, body


def check_seal(made: Connection, tag: bytes, *parts: Any) -> None:
    if not made.is_sealed(tag, parts):
        raise LinkError("a frame that the other end did not send")


def receive_exactly(made: Connection, size: int) -> bytearray:
    return _receive(made, size, None)


def _receive(made: Connection | socket.socket, size: int, deadline: Deadline | None) -> bytearray:
    buffer = bytearray(size)
    view, got = memoryview(buffer), 0
    while got < size:
        if deadline is not None:
            made.settimeout(deadline.left())
        count = made.recv_into(view[got:])
        if not count:
            raise LinkError("the other end closed the connection")
        got += count
    return buffer


def close(made: Connection | socket.socket | TlsConnection) -> None:
    """At once, for whoever waits on it too."""
    with suppress(OSError):
        made.shutdown(socket.SHUT_RDWR)
    made.close()
