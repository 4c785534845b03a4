"""A master that takes a connection and says nothing: Spark itself would wait for a minute and more.

So it is asked for something before a session is started: for a file it does not have, in Spark's own protocol (a frame:
its length, the type of message, a name). One that lives says that it has none, whether or not it wants a secret later;
whoever speaks something else hangs up. Both are answers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from penstock.errors import BadInputError

if TYPE_CHECKING:
    import socket

SILENT_SECONDS = 10.0
"""A master that has much to do answers within one or two."""
STREAM_REQUEST = 6
NO_FILE = b"/files/is-anybody-there"


def question() -> bytes:
    message = struct.pack(">bi", STREAM_REQUEST, len(NO_FILE)) + NO_FILE
    # the length counts itself
    return struct.pack(">q", 8 + len(message)) + message


def expect_an_answer(master: str, connection: socket.socket) -> None:
    """Raises where nothing at all comes back."""
    connection.settimeout(SILENT_SECONDS)
    try:
        connection.sendall(question())
        connection.recv(1)
    except TimeoutError:
        raise BadInputError(
            f"master '{master}': it takes connections, and did not answer within {SILENT_SECONDS:g} s as a master of "
            "Spark's does"
        ) from None
