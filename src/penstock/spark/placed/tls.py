"""TLS on the connections of a run: both ends show the run's certificate, and take no other.

The certificate and its key travel to the bundles as the run's secret does, with their tasks. A connection may be read
by one thread while another writes, which Python's own sockets of TLS cannot: here what is encrypted passes through
memory, under a lock, and the socket below is used as it is without TLS.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
import threading
from functools import lru_cache
from pathlib import Path
from stat import S_IRWXG, S_IRWXO
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInputError
from penstock.files import read_text

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable

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
        context.num_tickets = 0  # nobody comes back to a connection
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
                self._flush()  # the other end is told why
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
