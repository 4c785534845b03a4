"""Whether a master is there at all, before a session is started: Spark itself would wait for minutes.

One deadline holds for all addresses it may have. One that takes a connection and says nothing is asked for something it
does not have: in Spark's own protocol (a frame: its length, the type of message, a name), elsewhere by HTTP, which a
server that speaks TLS or Hadoop's protocol answers too, if only to complain. One that lives says that it has none,
whether or not it wants a secret later; whoever speaks something else hangs up. Both are answers.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from penstock.clock import Stopwatch
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ANSWER_SECONDS = 10.0
"""A master that has much to do answers within one or two."""
LEAST_SECONDS = 0.05
"""Even where looking up names took all the time there was."""
STREAM_REQUEST = 6
NO_FILE = b"/files/is-anybody-there"
HTTP_QUESTION = b"GET /version HTTP/1.0\r\n\r\n"


def spark_question() -> bytes:
    message = struct.pack(">bi", STREAM_REQUEST, len(NO_FILE)) + NO_FILE
    # the length counts itself
    return struct.pack(">q", 8 + len(message)) + message


def answering_host(master: str, places: Sequence[tuple[str, int]], question: bytes) -> str:
    """The first host, of hosts and ports, that answers; raises where none does. Each address, connection and answer
    together, gets an equal part of the time that is left."""
    watch = Stopwatch()
    complaint = "nobody answers there"
    addresses = list(_addresses(places))
    for number, (host, family, address) in enumerate(addresses):
        left = ANSWER_SECONDS - watch.seconds()
        until = watch.seconds() + left / (len(addresses) - number)
        if isinstance(address, OSError):
            complaint = f"nobody answers there: {address.strerror or address}"
            continue
        try:
            with socket.socket(family, socket.SOCK_STREAM) as connection:
                connection.settimeout(max(LEAST_SECONDS, until - watch.seconds()))
                connection.connect(address)
                if has_answered(connection, question, max(LEAST_SECONDS, until - watch.seconds())):
                    return host
                complaint = f"it takes connections, and did not answer within {ANSWER_SECONDS:g} s"
        except OSError as error:
            complaint = f"nobody answers there: {error.strerror or error}"
    raise BadInputError(f"master '{master}': {complaint}")


def _addresses(places: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int, tuple[str, int] | OSError]]:
    """Host, family and address, as often as a host has one; why it has none, where its name is not known."""
    for host, port in places:
        try:
            for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                yield host, family, address  # type: ignore[misc] # of TCP, the first two are these
        except OSError as error:
            yield host, 0, error


def has_answered(connection: socket.socket, question: bytes, seconds: float) -> bool:
    """Whether anything at all comes back."""
    connection.settimeout(seconds)
    try:
        connection.sendall(question)
        connection.recv(1)
    except TimeoutError:
        return False
    except ConnectionError:  # it hung up
        return True
    return True
