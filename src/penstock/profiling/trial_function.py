"""What runs in the worker of a trial: the operator that is on trial, with the threads the setting names.

The segment is that of a fused run, with one operator; it gets a sample of what the operator gets in its pipeline, over
and over. What it makes leaves the worker as bytes, as it would in a run, and goes no further.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.clock import Stopwatch, cpu_seconds
from penstock.base.files import write_text
from penstock.profiling.replay import Replay
from penstock.profiling.trial_source import TrialSetting
from penstock.runtime.batch import Batch, Marks
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.runtime.steps import Read, Step
from penstock.spark.internals.worker_process import close_at_end, die_of_signals, pickled, unpickled
from penstock.spark.session.interrupts import ignore_interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.dataflow.logic import Logic
    from penstock.profiling.samples import OperatorSample

SINK = "sink of trial"
OUTPUT_SCHEMA = "rows binary, first bigint, wall_seconds double, cpu_seconds double, account binary"
"""One row for what leaves at a time; the last one of a task says instead what it did, from which tuple on."""
_OUTPUT = pa.schema(
    [
        ("rows", pa.binary()),
        ("first", pa.int64()),
        ("wall_seconds", pa.float64()),
        ("cpu_seconds", pa.float64()),
        ("account", pa.binary()),
    ]
)

_introduced: set[str] = set()
"""Folders in which this worker process has said who it is."""


def packed(logic: Mapping[str, tuple[Logic, OperatorSample]]) -> tuple[tuple[str, bytes], ...]:
    """The code of every operator by name, and what it gets. A worker unpacks the one on trial and imports nothing for
    the others."""
    return tuple((name, pickled(code_and_sample)) for name, code_and_sample in logic.items())


@dataclass(frozen=True)
class TrialFunction:
    """For `DataFrame.mapInArrow`."""

    folder: str
    code: tuple[tuple[str, bytes], ...]
    environment: tuple[tuple[str, str], ...] = ()
    audit: bool = False
    """Fold ids into bitmaps, as in runs of the same pipeline."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ignore_interrupts()
        die_of_signals()
        _introduce(self.folder)
        os.environ.update(self.environment)
        setting = TrialSetting.read(Path(self.folder))
        on_trial = _on_trial(self, setting.operator, setting.threads)
        # The wait for the first tuple is the engine's: it would be a smaller part of a longer batch. So is the wait for
        # more tuples while no thread works: Spark's time is measured separately.
        watch: Stopwatch | None = None
        cpu = cpu_seconds()
        first = 0
        waited = 0.0

        def entering() -> Iterator[Batch]:
            nonlocal watch, first, waited
            while True:
                waiting = Stopwatch()
                numbers = next(batches, None)
                if watch is not None:
                    waited += waiting.seconds()
                if numbers is None:
                    return
                if numbers.num_rows:
                    ids, due = np.asarray(numbers["id"]), np.asarray(numbers["due"])
                    if watch is None:
                        watch, first = Stopwatch(), int(ids[0])
                    yield from on_trial.entering(ids, due)

        for _, batch in on_trial.segment.process(entering()):
            yield _row(rows=_as_bytes(batch.rows))
        account = on_trial.segment.take_account()
        if not on_trial.waits_alone:
            waited = 0.0
        yield _row(
            first=first,
            wall_seconds=0.0 if watch is None else watch.seconds() - waited,
            cpu_seconds=cpu_seconds() - cpu - account.pieces_seconds,
            account=account.to_bytes(),
        )


class OnTrial:
    """What a worker keeps of the trial under way: threads, and what code opened, live across batches."""

    def __init__(self, operator: str, logic: Logic, sample: OperatorSample, threads: int, *, audit: bool) -> None:
        steps = (
            Step(operator, logic, threads, (Read(),), schema=sample.sends, leaves=True),
            Step(SINK, None, 1, (Read(0),), delivers=True),
        )
        self.segment = Segment(steps, SegmentOptions(audit=audit))
        self.waits_alone = threads == 1 and not logic.timeout_seconds
        """While it waits for tuples nothing is at work."""
        self._replay = Replay(sample)

    def entering(self, ids: Any, due: Any) -> Iterator[Batch]:
        start = 0
        for rows in self._replay.rows(int(ids[0]), len(ids)):
            stop = start + rows.num_rows
            yield Batch(rows, Marks(ids[start:stop], due[start:stop]))
            start = stop


_kept: dict[tuple[str, str, int], OnTrial] = {}
"""Of this worker process: the trial under way, by folder, operator and threads."""


def _on_trial(function: TrialFunction, operator: str, threads: int) -> OnTrial:
    key = (function.folder, operator, threads)
    if key not in _kept:
        _close_kept()
        logic, sample = unpickled(dict(function.code)[operator])
        _kept[key] = OnTrial(operator, logic, sample, threads, audit=function.audit)
        close_at_end(_close_kept)
    return _kept[key]


def _close_kept() -> None:
    while _kept:
        _kept.popitem()[1].segment.close()


def _row(**values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([values], schema=_OUTPUT)


def _as_bytes(rows: pa.RecordBatch) -> bytes:
    return bytes(rows.serialize())


def _introduce(folder: str) -> None:
    """Say which process has the operator on trial: it is watched from outside."""
    if folder not in _introduced:
        _introduced.add(folder)
        write_text(Path(folder) / "worker", str(os.getpid()))
