"""Who has logged in with a browser: sessions behind a cookie, and codes that open one session once.

A token never stands in an address or in a page. A browser gets a cookie that scripts cannot read and that other sites'
pages cannot make it send; it ends with the service, or after a day without use.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from threading import Lock

from penstock.clock import Stopwatch

SESSION_SECONDS = 86_400.0
"""Without use."""
CODE_SECONDS = 600.0
"""A code that nobody used by then opens nothing."""
MOST_SESSIONS = 1000
"""The oldest gives way."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who was let in: what they call themselves, and whether they may change anything."""

    who: str
    may_act: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    visitor: Visitor
    until: float


class Sessions:
    def __init__(self) -> None:
        self._watch = Stopwatch()
        self._lock = Lock()
        self._sessions: dict[str, _Entry] = {}
        self._codes: dict[str, _Entry] = {}

    def make_code(self, visitor: Visitor) -> str:
        with self._lock:
            return self._put(self._codes, visitor, CODE_SECONDS)

    def use_code(self, code: str) -> Visitor | None:
        """Once."""
        with self._lock:
            entry = self._codes.pop(code, None)
            return entry.visitor if entry is not None and entry.until > self._watch.seconds() else None

    def open(self, visitor: Visitor) -> str:
        with self._lock:
            return self._put(self._sessions, visitor, SESSION_SECONDS)

    def find(self, session: str) -> Visitor | None:
        with self._lock:
            entry = self._sessions.pop(session, None)
            now = self._watch.seconds()
            if entry is None or entry.until <= now:
                return None
            # put back at the end: the first is the one unused for longest
            self._sessions[session] = replace(entry, until=now + SESSION_SECONDS)
            return entry.visitor

    def close(self, session: str) -> None:
        with self._lock:
            self._sessions.pop(session, None)

    def _put(self, table: dict[str, _Entry], visitor: Visitor, seconds: float) -> str:
        now = self._watch.seconds()
        for key in [key for key, entry in table.items() if entry.until <= now]:
            del table[key]
        while len(table) >= MOST_SESSIONS:
            del table[next(iter(table))]
        key = secrets.token_urlsafe(32)
        table[key] = _Entry(visitor, now + seconds)
        return key
