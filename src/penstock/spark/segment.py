"""Operators fused into one function: they run one after the other on a batch, each with its own threads.

A segment is built once per Python worker and kept: its threads, and what the code opened, live across batches. A tuple
never disappears: it leaves at a sink, is filtered by code that returned nothing for it, or becomes a dead letter.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from penstock.clock import Stopwatch
from penstock.dataflow.logic import Per
from penstock.spark.calls import DeadLetter, call_batch, call_row
from penstock.spark.pace import PaceProbe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.dataflow.logic import Logic
    from penstock.spark.calls import Outcome, Outcomes
    from penstock.spark.tuples import Tuple

CHUNKS_PER_THREAD = 8
"""Small enough that a slow tuple does not hold up many others, large enough that handing over costs little."""

LOOK_SECONDS = 0.02
"""How often it is asked about whether it is time to look how fast the core is."""
MOST_ROWS_PER_LOOK = 1024


@dataclass(frozen=True, slots=True)
class Step:
    """One operator. `reads` are (position of an earlier step, number of the stream); position -1 is what enters.

    Stream number 0: the only way between the two, so that paths need not tell it apart.
    """

    operator: str
    logic: Logic | None
    """None: a source, or a sink; what arrives leaves the segment as it is."""
    threads: int
    reads: tuple[tuple[int, int], ...]
    leaves: bool = False
    """Streams carry what it sends out of the segment."""
    delivers: bool = False
    """A sink: what it sends, with or without code, has come to its end."""


@dataclass(slots=True)
class StepCount:
    """What one step did with one batch."""

    received: int = 0
    sent: int = 0
    filtered: int = 0
    dead: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Result:
    """What became of one batch."""

    delivered: dict[str, list[Tuple]] = field(default_factory=dict)
    sent: dict[str, list[Tuple]] = field(default_factory=dict)
    """What leaves the segment, by operator."""
    dead: list[DeadLetter] = field(default_factory=list)
    filtered: list[Tuple] = field(default_factory=list)
    counts: dict[str, StepCount] = field(default_factory=dict)


class Segment:
    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._read_often = _read_often(steps)
        self.pace = PaceProbe()
        self._crews = [_Crew(step.logic, step.threads, self.pace) if step.logic is not None else None for step in steps]

    def process(self, entering: list[Tuple]) -> Result:
        result = Result()
        sent: list[list[Tuple]] = []
        for step, crew in zip(self._steps, self._crews, strict=True):
            watch = Stopwatch()
            received = _received(step, entering, sent, self._read_often)
            count = result.counts[step.operator] = StepCount(received=len(received))
            if crew is None:
                leaving = received
                count.sent = len(received)
            else:
                leaving = _sort_out(received, crew.run(step.operator, received), result, count)
            if step.delivers:
                result.delivered[step.operator] = leaving
            count.seconds = watch.seconds()
            sent.append(leaving)
            if step.leaves:
                result.sent[step.operator] = leaving
        return result

    def close(self) -> None:
        for crew in self._crews:
            if crew is not None:
                crew.close()


def _read_often(steps: Sequence[Step]) -> set[int]:
    """Positions whose tuples go to several steps."""
    readers = Counter(position for step in steps for position, _ in step.reads)
    return {position for position, count in readers.items() if count > 1}


def _received(step: Step, entering: list[Tuple], sent: list[list[Tuple]], read_often: set[int]) -> list[Tuple]:
    """Code that changes its tuple in place must not change it for others that get it: it has one of its own."""
    inputs = []
    for position, stream in step.reads:
        items = entering if position < 0 else sent[position]
        if stream:
            items = [item.along(stream) for item in items]
        if step.logic is not None and position in read_often:
            items = [item.own() for item in items]
        inputs.append(items)
    return inputs[0] if len(inputs) == 1 else list(chain.from_iterable(inputs))


def _sort_out(received: list[Tuple], outcomes: list[Outcomes], result: Result, count: StepCount) -> list[Tuple]:
    leaving: list[Tuple] = []
    for item, outcome in zip(received, outcomes, strict=True):
        several: Sequence[Outcome] = outcome if isinstance(outcome, list) else (outcome,)
        for one in several:
            if one is None:
                result.filtered.append(item)
                count.filtered += 1
            elif isinstance(one, DeadLetter):
                result.dead.append(one)
                count.dead += 1
            else:
                leaving.append(one)
    count.sent = len(leaving)
    return leaving


def rows_per_look(rows: int, seconds: float) -> int:
    """How many rows until the next look, if the last `rows` took `seconds`."""
    if seconds < LOOK_SECONDS / 2:
        return min(MOST_ROWS_PER_LOOK, 2 * rows)
    return max(1, rows // 2) if seconds > 2 * LOOK_SECONDS else rows


class _Crew:
    """The threads of one operator, and what its code opened in each of them."""

    def __init__(self, logic: Logic, threads: int, pace: PaceProbe) -> None:
        self._logic = logic
        self._pace = pace
        self._rows_per_look = 1
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._local = threading.local()
        self._opened: list[Any] = []

    def run(self, operator: str, items: list[Tuple]) -> list[Outcomes]:
        """An outcome (or several) for every item, in order."""
        logic = self._logic
        per_row = logic.per is Per.ROW

        def work(chunk: Sequence[Tuple]) -> list[Outcomes]:
            arguments = self._arguments()
            if not per_row:
                self._pace.look()
                return call_batch(operator, logic, chunk, arguments)
            outcomes: list[Outcomes] = []
            while len(outcomes) < len(chunk):
                self._pace.look()
                watch = Stopwatch()
                rows = chunk[len(outcomes) : len(outcomes) + self._rows_per_look]
                outcomes += [call_row(operator, logic, item, arguments) for item in rows]
                self._rows_per_look = rows_per_look(self._rows_per_look, watch.seconds())
            return outcomes

        if not items:
            return []
        if self._pool is None:
            return work(items)
        size = -(-len(items) // (self._threads * (CHUNKS_PER_THREAD if per_row else 1)))
        chunks = [items[start : start + size] for start in range(0, len(items), size)]
        return list(chain.from_iterable(self._pool.map(work, chunks)))

    def _arguments(self) -> tuple[Any, ...]:
        """What the code gets behind its tuple: what `open` made for this thread, if there is an `open`."""
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
