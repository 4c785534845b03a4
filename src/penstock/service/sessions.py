"""Who has logged in with a browser: sessions behind a cookie, and codes that open one session once.

A token never stands in an address or in a page. A browser gets a cookie that scripts cannot read and that other sites'
pages cannot make it send; it ends with the service, or after a day without use.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from enum import StrEnum
from threading import Lock

from penstock.clock import Stopwatch

SESSION_SECONDS = 86_400.0
"""Seconds without use after which a session ends."""
CODE_SECONDS = 600.0
"""Seconds after which an unused code expires."""
MAX_SESSIONS = 1000
"""Max sessions for each role: the oldest of the same role gives way."""


class Role(StrEnum):
    """Rights of a token: one for each of the three."""

    READ = "read"
    """Sees everything, changes nothing."""
    ATTACH = "attach"
    """Registers an application, reports for it, reads its admitted size."""
    WRITE = "write"
    """Everything; that includes running code as the controller's user."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """An authenticated user: the name they give, and the rights of their token."""

    who: str
    role: Role
    session: str = ""
    """The key of a browser's session; empty for a token in a header."""

    @property
    def may_act(self) -> bool:
        return self.role is Role.WRITE


@dataclass(frozen=True, slots=True)
class _Entry:
    visitor: Visitor
    until: float


_Table = dict[str, _Entry]


class Sessions:
    def __init__(self) -> None:
        self._watch = Stopwatch()
        self._lock = Lock()
        self._sessions: dict[Role, _Table] = {role: {} for role in Role}
        self._codes: dict[Role, _Table] = {role: {} for role in Role}

    def make_code(self, visitor: Visitor) -> str:
        with self._lock:
            return self._put(self._codes[visitor.role], visitor, CODE_SECONDS)

    def use_code(self, code: str) -> Visitor | None:
        """Once."""
        with self._lock:
            entry = _taken(self._codes, code)
            return entry.visitor if entry is not None and entry.until > self._watch.seconds() else None

    def open(self, visitor: Visitor) -> str:
        with self._lock:
            return self._put(self._sessions[visitor.role], visitor, SESSION_SECONDS)

    def find(self, session: str) -> Visitor | None:
        with self._lock:
            entry = _taken(self._sessions, session)
            now = self._watch.seconds()
            if entry is None or entry.until <= now:
                return None
            # put back at the end: the first is the one unused for longest
            self._sessions[entry.visitor.role][session] = replace(entry, until=now + SESSION_SECONDS)
            return replace(entry.visitor, session=session)

    def close(self, session: str) -> None:
        with self._lock:
            _taken(self._sessions, session)

    def _put(self, table: _Table, visitor: Visitor, seconds: float) -> str:
        now = self._watch.seconds()
        for key in [key for key, entry in table.items() if entry.until <= now]:
            del table[key]
        while len(table) >= MAX_SESSIONS:
            del table[next(iter(table))]
        key = secrets.token_urlsafe(32)
        table[key] = _Entry(visitor, now + seconds)
        return key


def _taken(tables: dict[Role, _Table], key: str) -> _Entry | None:
    """The entry, which is then in no table."""
    return next((table.pop(key) for table in tables.values() if key in table), None)
