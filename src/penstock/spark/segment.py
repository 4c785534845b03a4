"""Operators fused into one function: they run one after the other on a batch, each with its own threads.

A segment is built once per Python worker and kept: its threads, and what the code opened, live across batches. A tuple
never disappears: it leaves to a sink, is filtered by code that returned None, or becomes a dead letter with the error.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from penstock.spark.tuples import Tuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.dataflow.logic import Logic

CHUNKS_PER_THREAD = 8
"""Small enough that slow tuples do not hold up a whole batch, large enough that handing over costs little."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a segment; `reads` are positions of earlier steps, -1 is what enters the segment."""

    operator: str
    logic: Logic | None
    """None: a sink; what arrives leaves the segment."""
    threads: int
    reads: tuple[int, ...]
    stream: int
    """A number for what this step sends on, so that paths of different operators differ."""


@dataclass(slots=True)
class StepCount:
    """What one step did with one batch."""

    received: int = 0
    sent: int = 0
    filtered: int = 0
    dead: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    operator: str
    tuple: Tuple
    error: str


@dataclass(slots=True)
class Result:
    """What left a segment for one batch."""

    delivered: dict[str, list[Tuple]] = field(default_factory=dict)
    dead: list[DeadLetter] = field(default_factory=list)
    filtered: list[int] = field(default_factory=list)
    """Ids of tuples that code dropped by returning nothing for them."""
    counts: dict[str, StepCount] = field(default_factory=dict)


class Worker:
    """The threads of one step, and what its code opened in each of them."""

    def __init__(self, logic: Logic, threads: int) -> None:
        self._logic = logic
        self._local = threading.local()
        self._opened: list[Any] = []
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._threads = threads

    def map(self, call: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        if self._pool is None:
            return [call(item) for item in items]
        size = max(1, len(items) // (self._threads * CHUNKS_PER_THREAD))
        chunks = [items[start : start + size] for start in range(0, len(items), size)]
        return list(chain.from_iterable(self._pool.map(lambda chunk: [call(item) for item in chunk], chunks)))

    def arguments(self) -> tuple[Any, ...]:
        """What the code gets behind its tuples: what `open` made for this thread, if there is an `open`."""
        if self._logic.open is None:
            return ()
        if not hasattr(self._local, "handle"):
            self._local.handle = self._logic.open()
            self._opened.append(self._local.handle)
        return (self._local.handle,)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        if self._logic.close is not None:
            for handle in self._opened:
                self._logic.close(handle)
        self._opened.clear()
