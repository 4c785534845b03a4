"""Frames over TCP between the processes of a run, and the handshake that keeps others out.

A frame is a header, a small text and a body. Both ends of a connection prove that they know the secret of the run
before anything else is read: each answers the other's random challenge. Without a certificate of the run all this is
in the clear, and every frame carries a tag that only the two ends can make (`sealed.py`); with one, it passes through
TLS (`tls.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import socket
import ssl
import struct
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from stat import S_IRWXG, S_IRWXO
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError
from penstock.base.files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


# Message authentication for connections without TLS.
#
# After the handshake both ends derive a key for each direction from the run's secret and both challenges. Every frame
# ends in a tag over its number and content, so that a third party who relayed the handshake can neither add, change,
# repeat, reorder nor drop a frame unnoticed. Two things only TLS prevents: such a third party can read all frames,
# and it can change the values of rows between bundles (not their number, order, schema or epoch). Rows are left out
# because tags over them took 40 % of what a core can pass on (bench/flow.py, columns); the rest takes some 0.05 ms a
# hop, and does not lower the rate measurably.


TAG_BYTES = 16
_NUMBER = struct.Struct("<Q")


class SealedConnection:
    """A `wire.Connection` over a plain socket. At most one thread sends at a time, and at most one receives."""

    tag_bytes = TAG_BYTES

    def __init__(self, made: socket.socket, sending_key: bytes, receiving_key: bytes) -> None:
        self._made = made
        self._sending, self._receiving = (hmac.new(key, digestmod="sha256") for key in (sending_key, receiving_key))
        self._sent = self._received = 0
        self.sendall, self.sendmsg = made.sendall, made.sendmsg
        self.recv, self.recv_into = made.recv, made.recv_into
        self.settimeout, self.setsockopt = made.settimeout, made.setsockopt
        self.getsockname, self.shutdown, self.close = made.getsockname, made.shutdown, made.close

    def seal(self, parts: Iterable[Any]) -> bytes:
        """Return the tag of the next frame to be sent."""
        tag = _tag(self._sending, self._sent, parts)
        self._sent += 1
        return tag

    def is_sealed(self, tag: bytes, parts: Iterable[Any]) -> bool:
        """Return whether `tag` belongs to these parts as the next frame that was received."""
        expected = _tag(self._receiving, self._received, parts)
        self._received += 1
        return hmac.compare_digest(tag, expected)


def _tag(keyed: hmac.HMAC, number: int, parts: Iterable[Any]) -> bytes:
    code = keyed.copy()
    code.update(_NUMBER.pack(number))
    for part in parts:
        code.update(part)
    return code.digest()[:TAG_BYTES]


# TLS on the connections of a run: both ends show the run's certificate, and take no other.
#
# The certificate and its key travel to the bundles as the run's secret does, with their tasks. A connection may be read
# by one thread while another writes, which Python's own sockets of TLS cannot: here encrypted bytes pass through
# memory, under a lock, and the socket below is used as it is without TLS.


READ_BYTES = 1 << 18
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def read_identity(path: Path) -> str:
    """A certificate and its private key in one PEM file that is for its owner alone."""
    pem = read_text(path)
    if path.stat().st_mode & (S_IRWXG | S_IRWXO):
        raise BadInputError(f"{path}: others may read this private key; chmod 600 it")
    try:
        _context(pem, server_side=True)
        own_certificate(pem)
    except (ssl.SSLError, ValueError) as error:
        raise BadInputError(f"{path}: expected a certificate and its private key in PEM: {error}") from error
    return pem


@lru_cache(maxsize=8)
def _context(pem: str, *, server_side: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # machines are known by the run's certificate, not by their names
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=pem)
    if server_side:
        context.num_tickets = 0  # connections are never resumed
    handle, name = tempfile.mkstemp(prefix="penstock-tls-")
    try:
        # Python reads certificates of one's own from files only
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(pem)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()
    return context


def own_certificate(pem: str) -> bytes:
    """The first certificate of the file, in DER: the one that is shown, and the only one that is taken. Others that
    follow (of an authority) only lead up to it."""
    certificate = _CERTIFICATE.search(pem)
    if certificate is None:
        raise ValueError("no certificate")
    return ssl.PEM_cert_to_DER_cert(certificate[0])


class TlsConnection:
    """What `wire.Connection` asks for."""

    tag_bytes = 0
    """TLS authenticates what it carries."""

    def __init__(self, made: socket.socket, pem: str, seconds_left: Callable[[], float], *, server_side: bool) -> None:
        """Shake hands. `seconds_left` raises if no time is left for it."""
        self._made, self._seconds_left = made, seconds_left
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context(pem, server_side=server_side).wrap_bio(
            self._received, self._to_send, server_side=server_side
        )
        self._state = threading.Lock()
        self._sending = threading.Lock()
        """Held while bytes leave, so that they leave in the order they were encrypted in."""
        self._shake_hands(pem)

    def _shake_hands(self, pem: str) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._made.settimeout(self._seconds_left())
                self._take_in(0)
            except ssl.SSLError:
                self._flush()  # the other end gets the reason
                raise
            else:
                self._flush()
                break
        if self._tls.getpeercert(binary_form=True) != own_certificate(pem):
            raise ssl.SSLError("the other end shows another certificate than the run's")

    def _flush(self) -> None:
        with self._sending:
            with self._state:
                data = self._to_send.read()
            if data:
                self._made.sendall(data)

    def _take_in(self, flags: int) -> None:
        data = self._made.recv(READ_BYTES, flags)
        with self._state:
            if data:
                self._received.write(data)
            else:
                self._received.write_eof()

    def sendall(self, data: Any) -> None:
        with self._sending:
            with self._state:
                view = memoryview(data).cast("B")
                while len(view):
                    view = view[self._tls.write(view) :]
                encrypted = self._to_send.read()
            self._made.sendall(encrypted)

    def sendmsg(self, parts: Iterable[Any]) -> int:
        data = b"".join(parts)
        self.sendall(data)
        return len(data)

    def recv_into(self, view: memoryview) -> int:
        while True:
            try:
                with self._state:
                    data = self._tls.read(len(view))
                view[: len(data)] = data
                return len(data)
            except ssl.SSLWantReadError:
                if self._to_send.pending:
                    self._flush()
                self._take_in(0)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        """With MSG_DONTWAIT: what is there, or a BlockingIOError."""
        while True:
            try:
                with self._state:
                    return self._tls.read(size)
            except ssl.SSLWantReadError:
                self._take_in(flags)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    def seal(self, _parts: Iterable[Any]) -> bytes:
        return b""

    def is_sealed(self, _tag: bytes, _parts: Iterable[Any]) -> bool:
        return True

    def settimeout(self, seconds: float | None) -> None:
        self._made.settimeout(seconds)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._made.setsockopt(level, option, value)

    def getsockname(self) -> Any:
        return self._made.getsockname()

    def shutdown(self, how: int) -> None:
        self._made.shutdown(how)

    def close(self) -> None:
        self._made.close()


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


def connect(address: Address, credentials: Credentials, hello: bytes) -> Connection:
    """Return a connection to a process that knows the secret and has read `hello`."""
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


def introduce(dialled: Dialled, credentials: Credentials, hello: bytes) -> Connection:
    """Closed if the other end does not know the secret."""
    made, deadline, secret = dialled.made, dialled.deadline, credentials.secret
    try:
        own = os.urandom(_CHALLENGE)
        theirs = _receive_by(made, _CHALLENGE, deadline)
        made.sendall(own + _proof(secret, b"caller", theirs, own, hello) + struct.pack("<I", len(hello)) + hello)
        if not hmac.compare_digest(_receive_by(made, 32, deadline), _proof(secret, b"called", own, theirs, hello)):
            raise LinkError("whoever answers does not know the run's secret")
        made.settimeout(None)
        return _sealed(made, secret, (b"caller", b"called"), own + theirs)
    except BaseException:
        made.close()
        raise


def admit(caller: socket.socket, credentials: Credentials) -> tuple[Connection, bytes]:
    """Return the connection of a caller that knows the secret, and its greeting. Close it and raise for any other."""
    deadline = Deadline(HANDSHAKE_SECONDS)
    try:
        caller.settimeout(deadline.left())
        made = _secured(caller, credentials, deadline, server_side=True)
        return _read_greeting(made, credentials.secret, deadline)
    except BaseException:
        close(caller)
        raise


def _read_greeting(made: socket.socket | TlsConnection, secret: bytes, deadline: Deadline) -> tuple[Connection, bytes]:
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
    return _sealed(made, secret, (b"called", b"caller"), theirs + own), text


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
