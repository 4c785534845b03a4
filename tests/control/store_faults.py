"""A store whose database fails on demand: full, locked, slow, at any statement, or while it commits.

Faults are injected below SQLAlchemy, into the calls of the driver that writes; connections that only read keep working.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from penstock.base.clock import pause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.control.store.store import Store


class Fault(StrEnum):
    FULL = "database or disk is full"
    LOCKED = "database is locked"
    BROKEN = "disk I/O error"
    LOST_COMMIT = "disk I/O error while committing, nothing written"
    LOST_ANSWER = "disk I/O error after committing, everything written"
    SLOW = "slow"


@dataclass
class StoreFaults:
    """Injects one fault at a time: `at` is the number of statements that succeed before it."""

    store: Store
    fault: Fault | None = None
    at: int = 0
    injected: int = 0
    """Faults that were met."""

    def __post_init__(self) -> None:
        dialect: Any = self.store._engine.dialect
        for name in ("do_execute", "do_executemany", "do_execute_no_params"):
            setattr(dialect, name, self._statement(getattr(dialect, name)))
        self._commit = dialect.do_commit
        dialect.do_commit = self._on_commit

    @contextlib.contextmanager
    def failing(self, fault: Fault | None, at: int = 0) -> Iterator[None]:
        self.fault, self.at = fault, at
        try:
            yield
        finally:
            self.fault = None

    def _statement(self, call: Any) -> Any:
        def statement(*arguments: Any, **more: Any) -> Any:
            if self.fault is Fault.SLOW:
                self.injected += 1
                pause(0.001)
            elif self.fault in {Fault.FULL, Fault.LOCKED, Fault.BROKEN}:
                if self.at == 0:
                    self.injected += 1
                    raise sqlite3.OperationalError(str(self.fault))
                self.at -= 1
            return call(*arguments, **more)

        return statement

    def _on_commit(self, connection: Any) -> None:
        if self.fault is Fault.LOST_COMMIT:
            self.injected += 1
            connection.rollback()
            raise sqlite3.OperationalError(str(self.fault))
        self._commit(connection)
        if self.fault is Fault.LOST_ANSWER:
            self.injected += 1
            raise sqlite3.OperationalError(str(self.fault))
