"""What operators get in their pipeline, for trials of them alone: some tuples are put through it first.

They go through the operators' own code, in a worker, as in a fused run, and what every operator receives is kept. A
trial repeats these tuples. One that still carries the number its source gave it gets a new number every time, so that
code that looks something up does not ask for the same few all along.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from penstock.clock import Stopwatch
from penstock.dataflow.logic import Logic
from penstock.spark.calls import StoppedError
from penstock.spark.file_feed import FileFeed
from penstock.spark.file_index import indexes_of
from penstock.spark.fused import fused_steps
from penstock.spark.fused_function import numbers_only
from penstock.spark.interrupts import ignore_interrupts
from penstock.spark.query import RunFailedError, reason
from penstock.spark.segment import Segment, Step
from penstock.spark.tuples import Tuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from penstock.dataflow.pipeline import Pipeline

MOST_TUPLES = 256
"""Of the source."""
AT_ONCE = 32
SECONDS = 2.0
"""No more are begun after that if every operator has got one."""
MOST_SECONDS = 15.0
THREADS = 16
"""Of every operator: some wait long."""
SCHEMA = "operator string, payloads binary"


@dataclass(frozen=True, slots=True)
class Payload:
    fields: dict[str, Any]
    numbered: bool
    """Its `value` is the number of its source tuple."""


def repeated(payloads: list[Payload]) -> Callable[[int], dict[str, Any]]:
    """The fields of tuple n of a trial."""

    def fields(number: int) -> dict[str, Any]:
        one = payloads[number % len(payloads)]
        return {**one.fields, "value": number} if one.numbered else dict(one.fields)

    return fields


def take_samples(
    session: SparkSession,
    pipeline: Pipeline,
    logic: Mapping[str, Logic],
    wanted: Iterable[str],
    environment: Mapping[str, str],
) -> dict[str, bytes]:
    """Pickled payloads by operator, for those of `wanted` that anything came to."""
    with tempfile.TemporaryDirectory(prefix="penstock-samples-") as folder:
        feed = FileFeed(Path(folder), indexes_of(pipeline))
        steps = sampling_steps(pipeline, {**logic, **feed.logic}, set(wanted))
        most = MOST_TUPLES if feed.tuples is None else min(MOST_TUPLES, feed.tuples)
        sampler = Sampler(_pickled(steps), most, tuple(environment.items()))
        try:
            rows = session.range(0, 1, 1, 1).mapInArrow(sampler, SCHEMA).collect()
        except PySparkException as error:
            raise RunFailedError(f"no tuple came through pipeline '{pipeline.name}': {reason(str(error))}") from error
    return {row["operator"]: bytes(row["payloads"]) for row in rows}


def sampling_steps(pipeline: Pipeline, logic: Mapping[str, Logic], wanted: set[str]) -> tuple[Step, ...]:
    """Those of a fused run, and beside every operator of `wanted` one that keeps what it gets; nothing behind the last
    of them. An aggregation lets nothing through: what it would send takes a window."""
    aggregates = {name: Logic(_nothing) for name, one in pipeline.operators.items() if one.aggregate is not None}
    code = {**logic, **aggregates}
    steps = fused_steps(pipeline, code, dict.fromkeys(code, THREADS))
    last = max((index for index, step in enumerate(steps) if step.operator in wanted), default=-1)
    taps = [Step(step.operator, None, 1, step.reads, delivers=True) for step in steps if step.operator in wanted]
    renamed = [Step(f"code of {step.operator}", step.logic, step.threads, step.reads) for step in steps[: last + 1]]
    return (*renamed, *taps)


def _nothing(_: dict[str, Any]) -> None:
    return None


@dataclass(frozen=True)
class Sampler:
    """For `DataFrame.mapInArrow`, on a frame with one row."""

    steps: bytes
    most_tuples: int
    environment: tuple[tuple[str, str], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ignore_interrupts()
        os.environ.update(self.environment)
        for _ in batches:
            found = sample(cloudpickle.loads(self.steps), self.most_tuples)
            names = pa.array(list(found), pa.string())
            payloads = pa.array([_pickled(found[name]) for name in found], pa.binary())
            yield pa.record_batch([names, payloads], names=["operator", "payloads"])


def sample(steps: tuple[Step, ...], most_tuples: int) -> dict[str, list[Payload]]:
    """What comes to each step that delivers."""
    found: dict[str, list[Payload]] = {step.operator: [] for step in steps if step.delivers}
    segment, watch = Segment(steps), Stopwatch()
    try:
        for first in range(0, most_tuples, AT_ONCE):
            result = segment.process(
                [Tuple(n, 0.0, 0, numbers_only(n)) for n in range(first, min(most_tuples, first + AT_ONCE))]
            )
            for name, items in result.delivered.items():
                found[name] += [Payload(item.payload, _is_numbered(item)) for item in items if _can_be_kept(item)]
            if watch.seconds() > (SECONDS if all(found.values()) else MOST_SECONDS):
                break
    except StoppedError:
        pass  # an operator stops its pipeline for this tuple: what came before it serves
    finally:
        segment.close()
    return {name: payloads for name, payloads in found.items() if payloads}


def _is_numbered(item: Tuple) -> bool:
    return item.payload.get("value") == item.id


def _can_be_kept(item: Tuple) -> bool:
    try:
        _pickled(item.payload)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return False
    return True


def _pickled(value: object) -> bytes:
    pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return pickled
