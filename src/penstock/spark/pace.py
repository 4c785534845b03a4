"""How fast the cores are just now: a small piece of work of fixed size, timed over and over beside the operators' code.

The same code may need twice the CPU a minute later: cores of a virtual machine share their hardware with those of
others, clocks rise and fall. None of that shows as load. So a slot's worker does a piece ten times a second while it is
at work, and says how much CPU they took; that costs it less than a hundredth of its time. Models and runs both say at
what pace they were measured, and one can be told for the pace of the other (`penstock.modelling.pace`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.clock import thread_cpu_seconds

if TYPE_CHECKING:
    from types import TracebackType

EVERY_SECONDS = 0.1
_ITERATIONS = 4000
"""About a third of a millisecond."""


class PaceProbe:
    """A context, inside which pieces are done; `pieces` and the `seconds` of CPU they took can be read behind it."""

    def __init__(self) -> None:
        self.pieces = 0
        self.seconds = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pace", daemon=True)

    def __enter__(self) -> PaceProbe:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            began = thread_cpu_seconds()
            _piece()
            self.seconds += thread_cpu_seconds() - began
            self.pieces += 1


def _piece() -> int:
    total = 0
    for number in range(_ITERATIONS):
        total += number * number % 7
    return total
