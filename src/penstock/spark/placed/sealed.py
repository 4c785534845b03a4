"""Message authentication for connections without TLS.

After the handshake both ends derive a key for each direction from the run's secret and both challenges. Every frame
ends in a tag over its number and content, so that a third party who relayed the handshake can neither add, change,
repeat, reorder nor drop a frame unnoticed. Two things only TLS prevents: such a third party can read all frames, and it
can change the values of rows between bundles (not their number, order, schema or epoch). Rows are left out because
tags over them took 40 % of what a core can pass on (bench/flow.py, columns); the rest takes some 0.05 ms a hop, and no
rate that could be told from noise.
"""

from __future__ import annotations

import hmac
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

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
