"""Batches from the event log of a Spark application: what it says of every micro-batch, and of its executors."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from penstock.control.attached.batches import BatchSeen, BatchTasks, batch_of
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
STATE = "StateStore"
"""What Spark calls its data sets that have state begins so."""
LARGEST_LINE = 16 * 2**20
CODECS = {".zstd": "zstd", ".zst": "zstd", ".gz": "gzip"}
"""Spark writes zstd unless told otherwise."""
OTHER_CODECS = frozenset({".lz4", ".lzf", ".snappy"})
"""In forms of Spark's own."""
UNFINISHED = ".inprogress"
TRUNCATED = "Truncated"
"""So pyarrow says of a file that ends within a block."""


@dataclass
class _StageTasks:
    """In seconds."""

    together: float = 0.0
    longest: float = 0.0
    first: float = float("inf")
    """When the first was started."""
    last: float = 0.0
    """When the last was over."""


@dataclass
class _Reading:
    cores: dict[str, int] = field(default_factory=dict)
    tasks: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of the first stage of a batch: its input."""
    stages: dict[int, tuple[str, str]] = field(default_factory=dict)
    """The batch a stage is of."""
    ran: dict[tuple[str, str], dict[int, _StageTasks]] = field(default_factory=dict)
    """By batch and stage."""
    with_state: set[int] = field(default_factory=set)
    """Stages that read and write state."""
    batches: list[BatchSeen] = field(default_factory=list)


def batches_of_log(path: Path) -> list[BatchSeen]:
    """A file, or the folder of a rolling log. A line that is no event of Spark is an error; an unknown event is not."""
    reading = _Reading()
    for file in _files(path):
        for number, event in _events(file):
            try:
                _take(reading, event)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                raise BadInputError(f"{file}: line {number}: not an event of Spark's log ({error})") from error
    return reading.batches


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(path.glob("events_*"), key=lambda file: (len(file.name), file.name))
        if not files:
            raise BadInputError(f"{path}: no event log in this folder: it has no events_* files")
    else:
        files = [path]
    for file in files:
        if file.exists() and not file.is_file():
            raise BadInputError(f"{file}: cannot be read: not a regular file")
        if _suffix(file) in OTHER_CODECS:
            raise BadInputError(f"{file}: this compression is not read; set spark.eventLog.compression.codec=zstd")
    return files


def _suffix(file: Path) -> str:
    return Path(file.name.removesuffix(UNFINISHED)).suffix


def _opened(file: Path) -> TextIO:
    codec = CODECS.get(_suffix(file))
    if codec is None:
        return file.open("r", encoding="utf-8", errors="replace")
    try:
        import pyarrow  # noqa: PLC0415 - loads slowly, and only compressed logs need it
    except ImportError as error:
        raise BadInputError(f"{file}: reading it compressed needs pyarrow: pip install 'penstock[spark]'") from error
    stream = pyarrow.input_stream(str(file), compression=codec)
    return io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8", errors="replace")


def _events(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with _opened(file) as lines:
            for number, line in enumerate(iter(lambda: lines.readline(LARGEST_LINE + 1), ""), 1):
                if len(line) > LARGEST_LINE:
                    raise BadInputError(f"{file}: line {number} is longer than any event")
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError) as error:
                    if not line.endswith("\n"):
                        return  # a log that is still being written ends in half a line
                    raise BadInputError(f"{file}: line {number}: expected JSON") from error
                if isinstance(event, dict):
                    yield number, event
    except OSError as error:
        if _suffix(file) in CODECS and TRUNCATED in str(error):
            return  # still being written, too
        raise BadInputError(f"{file}: {error.strerror or error}") from error


def _take(reading: _Reading, event: dict[str, Any]) -> None:
    kind = event.get("Event", "")
    if kind == "SparkListenerExecutorAdded":
        reading.cores[str(event["Executor ID"])] = int(event["Executor Info"]["Total Cores"])
    elif kind == "SparkListenerExecutorRemoved":
        reading.cores.pop(str(event["Executor ID"]), None)
    elif kind == "SparkListenerJobStart":
        _take_job(reading, event)
    elif kind == "SparkListenerTaskEnd":
        _take_task(reading, event)
    elif kind == PROGRESS:
        progress = event["progress"]
        if isinstance(progress, str):
            progress = json.loads(progress)
        key = (str(progress.get("id", "")), str(progress.get("batchId", "")))
        stages = reading.ran.pop(key, {})
        stateful = sum(tasks.together for stage, tasks in stages.items() if stage in reading.with_state)
        wall = sum(tasks.last - tasks.first for tasks in stages.values()) if stages else None
        for stage in stages:
            reading.stages.pop(stage, None)
            reading.with_state.discard(stage)
        batch_tasks = BatchTasks(reading.tasks.pop(key, None), _at_once(stages.values()), stateful, wall)
        batch = batch_of(progress, _slots(reading.cores), batch_tasks)
        if batch is not None:
            reading.batches.append(batch)


def _take_job(reading: _Reading, event: dict[str, Any]) -> None:
    words = event.get("Properties") or {}
    query, batch = words.get("sql.streaming.queryId"), words.get("streaming.sql.batchId")
    stages = [stage for stage in event.get("Stage Infos") or () if not stage.get("Parent IDs")]
    if query and batch and stages:
        key = (str(query), str(batch))
        reading.tasks.setdefault(key, max(int(stage["Number of Tasks"]) for stage in stages))
        for stage in event.get("Stage Infos") or ():
            reading.stages[int(stage["Stage ID"])] = key
            if any(str(data.get("Name", "")).startswith(STATE) for data in stage.get("RDD Info") or ()):
                reading.with_state.add(int(stage["Stage ID"]))


def _take_task(reading: _Reading, event: dict[str, Any]) -> None:
    stage, times = int(event["Stage ID"]), event.get("Task Info") or {}
    key = reading.stages.get(stage)
    began, ended = (float(times.get(name, 0)) / 1000 for name in ("Launch Time", "Finish Time"))
    if key is not None and ended > began:
        tasks = reading.ran.setdefault(key, {}).setdefault(stage, _StageTasks())
        tasks.together += ended - began
        tasks.longest = max(tasks.longest, ended - began)
        tasks.first, tasks.last = min(tasks.first, began), max(tasks.last, ended)


def _at_once(stages: Iterable[_StageTasks]) -> float | None:
    """Stages come one after the other, and none is over before its longest task: sum of all / sum of longest."""
    stages = list(stages)
    longest = sum(tasks.longest for tasks in stages)
    return sum(tasks.together for tasks in stages) / longest if longest > 0 else None


def _slots(cores: dict[str, int]) -> int | None:
    """In local mode the driver is the only executor, and it works."""
    apart = [count for name, count in cores.items() if name != "driver"]
    slots = sum(apart) if apart else sum(cores.values())
    return slots or None


def queries_of(batches: Iterable[BatchSeen]) -> list[str]:
    return sorted({batch.query for batch in batches})
