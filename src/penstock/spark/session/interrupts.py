"""Ctrl-C while a pipeline runs: the first asks for an orderly end, the second ends at once."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Interrupt:
    """Whether somebody asked for the end."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def ask(self) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self._asked.set()


@contextmanager
def interrupts(interrupt: Interrupt) -> Iterator[None]:
    """Inside the block Ctrl-C goes to `interrupt`; Spark's own handler raises in the middle of whatever runs.

    Only the main thread hears of signals; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_number: int, _frame: Any) -> None:
        interrupt.ask()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ignore_interrupts() -> None:
    """In a worker process: Ctrl-C in a terminal reaches it too, and is none of its business."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
