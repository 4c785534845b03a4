"""Waiting for the end of a run in the foreground: Ctrl-C and SIGTERM stop it."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.base.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.runs.run import Run

LOOK_SECONDS = 0.2


class Interrupted:
    """Whether a signal asked for the end. The second one raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def interrupted() -> Iterator[Interrupted]:
    """Inside the block Ctrl-C and SIGTERM are noted. Only the main thread receives signals; elsewhere nothing
    changes."""
    signalled = Interrupted()
    if threading.current_thread() is not threading.main_thread():
        yield signalled
        return

    def handle(_number: int, _frame: Any) -> None:
        signalled.ask()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signalled
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def await_with_interrupts(run: Run) -> Any:
    """Wait for the end of a run and return its report. Ctrl-C stops the run; a second one kills it."""
    with interrupted() as signalled:
        try:
            while not run.await_termination(LOOK_SECONDS):
                if signalled.asked:
                    return replace(run.stop(), interrupted=True)
        except KeyboardInterrupt:
            with suppress(PenstockError):  # its log has why it failed as well; what counts is that it was to end
                run.kill()
            raise
    return run.report()
