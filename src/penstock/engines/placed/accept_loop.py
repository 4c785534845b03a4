"""The accept loop of bundles and conductor: strangers cost little, and none of them ends it."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.base.clock import pause
from penstock.engines.placed import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engines.placed.wire import Connection, Credentials

MAX_UNPROVEN = 64
"""Connections whose handshake is under way. One more closes the oldest: a peer with the secret needs milliseconds."""
PAUSE_SECONDS = 0.05
_CLOSED = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK})
"""Errors of accept() after the listening socket was closed."""

_LOG = logging.getLogger(__name__)


class AcceptLoop(threading.Thread):
    """Accept connections until `server` is closed. `admitted` gets each one that proved itself, with its greeting, in a
    thread of its own; if it raises an OSError or a ValueError, the connection is closed."""

    def __init__(
        self,
        server: socket.socket,
        credentials: Credentials,
        admitted: Callable[[Connection, bytes], None],
    ) -> None:
        super().__init__(daemon=True)
        self._server, self._credentials, self._admitted = server, credentials, admitted
        self._lock = threading.Lock()
        self._unproven: dict[socket.socket, None] = {}
        """In the order in which they came."""

    def run(self) -> None:
        is_failing = False
        while True:
            try:
                caller, _ = self._server.accept()
            except OSError as error:
                if error.errno in _CLOSED:
                    return
                # out of files or memory, or the caller left at once
                if not is_failing:
                    _LOG.warning("cannot accept connections: %s; trying again", error)
                is_failing = True
                self._close_oldest()
                pause(PAUSE_SECONDS)
                continue
            is_failing = False
            if len(self._unproven) >= MAX_UNPROVEN:
                self._close_oldest()
            with self._lock:
                self._unproven[caller] = None
            try:
                threading.Thread(target=self._greet, args=(caller,), daemon=True).start()
            except RuntimeError:  # out of threads
                self._forget(caller)
                wire.close(caller)
                pause(PAUSE_SECONDS)

    def _close_oldest(self) -> None:
        with self._lock:
            oldest = next(iter(self._unproven), None)
        if oldest is not None:
            self._forget(oldest)
            with suppress(OSError):  # its own thread wakes up and closes it
                oldest.shutdown(socket.SHUT_RDWR)

    def _forget(self, caller: socket.socket) -> None:
        with self._lock:
            self._unproven.pop(caller, None)

    def _greet(self, caller: socket.socket) -> None:
        try:
            made, hello = wire.admit(caller, self._credentials)
        except (OSError, ValueError):
            return
        finally:
            self._forget(caller)
        try:
            self._admitted(made, hello)
        except (OSError, ValueError):
            wire.close(made)
