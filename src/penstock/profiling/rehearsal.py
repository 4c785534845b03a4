"""The whole pipeline, fused, as fast as it goes: what its parts, measured alone, do not tell.

Its code is the user's, its ends are not: a source that is not the load generator is replayed from a sample, in files of
its own format where it reads files, and a sink of files writes to a folder of ours. What goes anywhere else is counted.
Nothing of the user's is read but the sample, and nothing is written.

Two sizes of batches tell what any batch takes and what a tuple does. Nothing counts until batches take no less than
those before: Java compiles meanwhile, ten seconds and more where Spark keeps state.
"""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field
from statistics import mean, median
from typing import TYPE_CHECKING

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import RunFailedError
from penstock.base.files import temporary_folder
from penstock.base.text import is_whole
from penstock.dataflow.formats import find_format, is_driven_by_load, reading_of
from penstock.dataflow.load import Load
from penstock.dataflow.logic import sparks_own_code
from penstock.dataflow.pipeline import Kind, Operator, Pipeline
from penstock.dataflow.regions import is_sparks_own, unaudited_by
from penstock.engines.fused.query import FusedQuery, FusedSpec
from penstock.modelling.fingerprint import file_end, shape_of
from penstock.modelling.model import Rehearsal, RehearsedBatches
from penstock.profiling.replay import ReplayFiles
from penstock.report.report import pace_seen
from penstock.runs.config import RunConfig
from penstock.spark import load_source
from penstock.spark.internals.plans import struct_of_arrow
from penstock.spark.session.embedded import divided_for
from penstock.spark.session.process_tree import (
    MachineUsage,
    cpu_between,
    cpu_by_process,
    java_started_here,
    share_given,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock.dataflow.logic import Logic
    from penstock.profiling.samples import OperatorSample
    from penstock.report.report import BatchObservation

SPAN = 4
"""Batches, and as many before them, tell whether batches still become faster: single ones vary by a fifth."""
SETTLED = 0.95
"""Of what a tuple took in the span before: less, and Java still compiles."""
WARM_SECONDS = 6.0
"""As long as that batches may become faster; after it they count, however they are."""
COUNTED_LARGE, COUNTED_SMALL = 6, 6
AHEAD = 2
"""Batches whose files are there before they are read."""
PATIENCE_SECONDS = 60.0
_MOST_FILES = "maxFilesPerTrigger"
MOST_FILES = 16
"""Of a batch."""


@dataclass(frozen=True)
class RehearsalSpec:
    """What is rehearsed: `threads` in each of `slots`, batches of `small` and of `large` tuples over all slots, so many
    due a second that batches are full."""

    pipeline: Pipeline
    code: Mapping[str, Logic]
    threads: Mapping[str, int]
    slots: int
    small: int
    large: int
    due_rate: float
    sources: Mapping[str, OperatorSample] = field(default_factory=dict)
    """Samples of those that are not the load generator."""
    environment: Mapping[str, str] = field(default_factory=dict)


def rehearse(session: SparkSession, spec: RehearsalSpec, tick: Callable[[], None]) -> Rehearsal:
    """Raises `RunFailedError` where too few batches came through in a minute."""
    with temporary_folder("rehearsal") as folder:
        inputs = _Inputs(session, spec, folder)
        inputs.prepare(spec.large, 2 * SPAN + COUNTED_LARGE + AHEAD)
        inputs.prepare(spec.small, COUNTED_SMALL + AHEAD)
        driven = is_driven_by_load(spec.pipeline)
        fused = FusedSpec(
            # workers keep the code, and the threads, of a run by its name
            run=f"rehearsal-{secrets.token_hex(3)}",
            pipeline=inputs.pipeline,
            code=spec.code,
            threads=spec.threads,
            slots=spec.slots,
            folder=folder / "run",
            checkpoint=str(folder / "run" / "checkpoint"),
            load=Load.constant(spec.due_rate) if driven else None,
            most_rows=spec.large,
            config=RunConfig(batch_interval_ms=1),
            environment=spec.environment,
            audit=driven and unaudited_by(spec.pipeline, sparks_own_code(spec.code)) is None,
        )
        with divided_for(session, spec.slots):
            query = FusedQuery(session, fused)
        try:
            machine = MachineUsage.now()
            query.begin()
            batches = _Batches(session, query, tick)
            inputs.bound(spec.large)
            batches.settle(inputs)
            large = batches.typical(inputs, COUNTED_LARGE)
            inputs.bound(spec.small)
            batches.skip_larger_than(inputs, spec.small)
            small = batches.typical(inputs, COUNTED_SMALL)
            given = share_given(machine, MachineUsage.now())
        finally:
            query.stop()
    if small.tuples >= large.tuples:
        raise RunFailedError(f"batches of {spec.large:,} tuples never filled: {large.tuples:,} came in one")
    pace = pace_seen(batches.counted)
    names = [name for name, operator in spec.pipeline.operators.items() if operator.kind is Kind.OPERATOR]
    return Rehearsal(
        pipeline=spec.pipeline.name,
        slots=spec.slots,
        threads={name: spec.threads.get(name, 1) for name in names},
        small=small,
        large=large,
        pace=None if pace is None else pace * given,
        shape=shape_of(spec.pipeline),
    )


def has_settled(each: Sequence[float]) -> bool:
    """By what a tuple took in every batch so far: that of the last `SPAN` is not below `SETTLED` of that of those
    before them, medians both."""
    last, before = each[-SPAN:], each[-2 * SPAN : -SPAN]
    return len(before) == SPAN and median(last) >= SETTLED * median(before)


def files_of_batch(options: Mapping[str, str], slots: int) -> int:
    """As many as the user's own batches hold, where that is said: opening a file takes as long as hundreds of rows. At
    least one for every slot."""
    given = next((value for name, value in options.items() if name.lower() == _MOST_FILES.lower()), "")
    return max(slots, min(int(given), MOST_FILES)) if is_whole(given) else slots


class _Inputs:
    """The pipeline with ends of ours, and what feeds it."""

    def __init__(self, session: SparkSession, spec: RehearsalSpec, folder: Path) -> None:
        self._files_of_batch = spec.slots
        self._run_folder = folder / "run"
        self._rows = spec.large
        self._waiting = 0
        self._files: ReplayFiles | None = None
        own_code = sparks_own_code(spec.code)
        # state of Spark's goes by keys; code may look them up somewhere, and would not find others
        new_keys = any(is_sparks_own(spec.pipeline, name, own_code) for name in spec.pipeline.operators)
        replaced: dict[str, Operator] = {}
        for name, operator in spec.pipeline.operators.items():
            if operator.kind is Kind.SINK:
                replaced[name] = _sink_of_ours(operator, folder / f"out-{len(replaced)}")
            elif name in spec.sources:
                place = folder / f"in-{len(replaced)}"
                end = file_end(operator)
                own = end if end is not None and find_format(end.format).replayable else None
                format_, options = ("parquet", {}) if own is None else (own.format, dict(own.options))
                self._files_of_batch = files_of_batch(reading_of(operator).options, spec.slots)
                self._files = ReplayFiles(session, spec.sources[name], place, format_, options, new_keys=new_keys)
                replaced[name] = Operator.model_validate(
                    {
                        "name": name,
                        "kind": Kind.SOURCE,
                        "format": format_,
                        "options": {**options, "path": self._files.pattern, _MOST_FILES: self._files_of_batch},
                        "schema": _ddl(spec.sources[name]),
                        "watermark": operator.watermark,
                    }
                )
        operators = [replaced.get(name, operator) for name, operator in spec.pipeline.operators.items()]
        self.pipeline = Pipeline.of(spec.pipeline.name, operators, spec.pipeline.streams)

    def bound(self, rows: int) -> None:
        self._rows = rows
        self._run_folder.mkdir(exist_ok=True)
        load_source.bound_batches(self._run_folder, rows)

    def prepare(self, rows: int, batches: int) -> None:
        """Where files are read: made before anything is measured."""
        if self._files is not None:
            self._files.prepare(rows, self._files_of_batch, batches)

    def feed(self) -> None:
        """Where files are read: some batches of them are ahead."""
        while self._files is not None and self._waiting < AHEAD * self._rows:
            self._files.write(self._rows, self._files_of_batch)
            self._waiting += self._rows

    def taken(self, tuples: int) -> None:
        self._waiting -= tuples


class _Batches:
    """Those that were committed, one after the other."""

    def __init__(self, session: SparkSession, query: FusedQuery, tick: Callable[[], None]) -> None:
        self._query = query
        self._java = java_started_here(session)
        self._tick = tick
        self._waited = Stopwatch()
        self._unread: deque[BatchObservation] = deque()
        self.counted: list[BatchObservation] = []

    def settle(self, inputs: _Inputs) -> None:
        """Until batches become no faster."""
        watch, each = Stopwatch(), list[float]()
        for batch in self._coming(inputs):
            each.append(batch.seconds / batch.tuples)
            if has_settled(each) or watch.seconds() > WARM_SECONDS:
                return

    def skip_larger_than(self, inputs: _Inputs, rows: int) -> None:
        """Batches that were cut before the bound changed, and the first behind it."""
        for batch in self._coming(inputs):
            if batch.tuples <= rows:
                return

    def typical(self, inputs: _Inputs, wanted: int) -> RehearsedBatches:
        cpu = cpu_by_process(self._java)
        coming = self._coming(inputs)
        batches = [next(coming) for _ in range(wanted)]
        used = cpu_between(cpu, cpu_by_process(self._java))
        self.counted += batches
        tuples = mean(batch.tuples for batch in batches)
        seconds = median(batch.seconds / batch.tuples for batch in batches) * tuples
        return RehearsedBatches(tuples=round(tuples), seconds=seconds, cpu_seconds=used / wanted)

    def _coming(self, inputs: _Inputs) -> Iterator[BatchObservation]:
        """Whoever breaks off leaves the rest to who comes next."""
        while True:
            while self._unread:
                yield self._unread.popleft()
            inputs.feed()
            for batch in self._query.poll():
                inputs.taken(batch.tuples)
                if batch.tuples:
                    self._unread.append(batch)
            if self._waited.seconds() > PATIENCE_SECONDS:
                raise RunFailedError(f"too few batches came through within {PATIENCE_SECONDS:g} s")
            self._tick()
            pause(0.01)


def _sink_of_ours(operator: Operator, place: Path) -> Operator:
    end = file_end(operator)
    if end is None:
        return Operator(name=operator.name, kind=Kind.SINK, mode=operator.mode)
    options = {**end.options, "path": str(place)}
    return Operator(name=operator.name, kind=Kind.SINK, format=end.format, options=options, mode=operator.mode)


def _ddl(sample: OperatorSample) -> str:
    fields = struct_of_arrow(sample.rows.schema).fields
    return ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in fields)


def rehearsable(pipeline: Pipeline, samples: Mapping[str, OperatorSample]) -> str | None:
    """Why a pipeline cannot be rehearsed; None: it can."""
    own = [name for name in pipeline.sources if not reading_of(pipeline.operators[name]).is_load]
    if own and len(pipeline.sources) > 1:
        return "it has several sources"
    return next((f"no tuple of source '{name}' was seen" for name in own if name not in samples), None)
