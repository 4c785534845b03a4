"""Frames over TCP between the processes of a run, and the handshake that keeps others out.

A frame is a header, a small text and a body. Both ends of a connection prove that they know the secret of the run
before anything else is read: each answers the other's random challenge. Without a certificate of the run all this is
in the clear; with one, it passes through TLS (`tls.py`).
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

from penstock.spark.placed.tls import TlsConnection

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEADER = struct.Struct("<BIQ")
_CHALLENGE = 32
HANDSHAKE_SECONDS = 5.0
LARGEST_TEXT = 64 * 2**20
LARGEST_BODY = 2**32
BUFFER_BYTES = 1 << 20
"""What the kernel holds of a link on either side: beyond it the sender waits."""

Address = tuple[str, int]


class Connection(Protocol):
    """What links need of a socket, with TLS or without."""

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


def connect(address: Address, credentials: Credentials, hello: dict[str, Any]) -> Connection:
    """A connection to somebody who knows the secret, and has read `hello`."""
    made = dial(address, credentials)
    introduce(made, credentials, hello)
    return made


def dial(address: Address, credentials: Credentials) -> Connection:
    made = socket.create_connection(address, timeout=HANDSHAKE_SECONDS)
    return _secured(made, credentials, server_side=False)


def _secured(made: socket.socket, credentials: Credentials, *, server_side: bool) -> Connection:
    """Closed if the other end does not show the run's certificate, where there is one."""
    try:
        _prepare(made)
        if credentials.identity is None:
            return made
        return TlsConnection(made, credentials.identity, server_side=server_side)
    except BaseException:
        made.close()
        raise


def introduce(made: Connection, credentials: Credentials, hello: dict[str, Any]) -> None:
    """Closed if the other end does not know the secret."""
    secret = credentials.secret
    try:
        own = os.urandom(_CHALLENGE)
        text = json.dumps(hello).encode()
        theirs = bytes(receive_exactly(made, _CHALLENGE))
        made.sendall(own + _proof(secret, b"caller", theirs, own, text) + struct.pack("<I", len(text)) + text)
        if not hmac.compare_digest(bytes(receive_exactly(made, 32)), _proof(secret, b"called", own, theirs, text)):
            raise LinkError("whoever answers does not know the run's secret")
        made.settimeout(None)
    except BaseException:
        made.close()
        raise


def admit(caller: socket.socket, credentials: Credentials) -> tuple[Connection, dict[str, Any]]:
    """What somebody who connected and knows the secret says of itself; anybody else is an error, and turned away."""
    try:
        caller.settimeout(HANDSHAKE_SECONDS)
        made = _secured(caller, credentials, server_side=True)
        return made, _heard_hello(made, credentials.secret)
    except BaseException:
        close(caller)
        raise


def _heard_hello(made: Connection, secret: bytes) -> dict[str, Any]:
    own = os.urandom(_CHALLENGE)
    made.sendall(own)
    theirs = bytes(receive_exactly(made, _CHALLENGE))
    proof = bytes(receive_exactly(made, 32))
    (size,) = struct.unpack("<I", receive_exactly(made, 4))
    if size > LARGEST_TEXT:
        raise LinkError("a greeting that is too long")
    text = bytes(receive_exactly(made, size))
    if not hmac.compare_digest(proof, _proof(secret, b"caller", own, theirs, text)):
        raise LinkError("whoever connects does not know the run's secret")
    made.sendall(_proof(secret, b"called", theirs, own, text))
    made.settimeout(None)
    hello = json.loads(text)
    if not isinstance(hello, dict):
        raise LinkError("a greeting that says nothing")
    return hello


def _proof(secret: bytes, role: bytes, challenge: bytes, own: bytes, text: bytes) -> bytes:
    return hmac.new(secret, b"|".join((role, challenge, own, text)), hashlib.sha256).digest()


def _prepare(made: socket.socket) -> None:
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)


def send_frame(made: Connection, kind: int, text: bytes, *bodies: Any) -> None:
    """Header, text and bodies in one call to the kernel where it takes them."""
    views = [memoryview(body).cast("B") for body in bodies]
    parts = [memoryview(_HEADER.pack(kind, len(text), sum(len(view) for view in views)) + text), *views]
    left = sum(len(part) for part in parts)
    while left:
        sent = made.sendmsg(parts)
        left -= sent
        while parts and sent >= len(parts[0]):
            sent -= len(parts.pop(0))
        if parts and sent:
            parts[0] = parts[0][sent:]


def receive_frame(made: Connection) -> tuple[int, bytes, bytearray]:
    kind, text_size, size = _HEADER.unpack(receive_exactly(made, _HEADER.size))
    if text_size > LARGEST_TEXT or size > LARGEST_BODY:
        raise LinkError("a frame that is too large")
    return kind, bytes(receive_exactly(made, text_size)), receive_exactly(made, size)


def receive_exactly(made: Connection, size: int) -> bytearray:
    buffer = bytearray(size)
    view, got = memoryview(buffer), 0
    while got < size:
        count = made.recv_into(view[got:])
        if not count:
            raise LinkError("the other end closed the connection")
        got += count
    return buffer


def close(made: Connection) -> None:
    """At once, for whoever waits on it too."""
    with suppress(OSError):
        made.shutdown(socket.SHUT_RDWR)
    made.close()
