"""Batches from the event log of a Spark application: what it says of every micro-batch, and of its executors."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError
from penstock.base.files import parse_json, read_document, read_text
from penstock.base.text import is_whole
from penstock.control.attached.query_model import BatchSeen, BatchTasks, batch_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


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


# Batches from the checkpoint of a query: offsets read of Kafka, start times, and the backlog there.


MOST_BATCHES = 500
LARGEST_FILE = 4 * 2**20
MAX_OFFSET = 2**63 - 1
MAX_MS = 10**14
"""Since the epoch, in the year 5138."""

Offsets = dict[str, dict[str, int]]
"""By topic and partition."""


def batches_of_checkpoint(folder: Path, slots: int | None, end: Offsets | None) -> list[BatchSeen]:
    """A batch lasts until the next one begins, as long as there was always something to do: where the query waited for
    rows this takes the wait for work. `end` is where the topics end now."""
    if not (folder / "offsets").is_dir():
        raise BadInputError(f"{folder}: no checkpoint of a query: it has no folder 'offsets'")
    numbers = sorted(int(file.name) for file in (folder / "offsets").iterdir() if is_whole(file.name))[-MOST_BATCHES:]
    entries = [_entry(folder / "offsets" / str(number)) for number in numbers]
    batches = []
    # a batch's entry holds its end offsets and is written when the batch starts
    for (_, before), (began, offsets), (following, _) in zip(entries, entries[1:], entries[2:], strict=False):
        rows = _difference(offsets, before)
        if rows > 0 and following > began:
            partitions = sum(len(parts) for parts in offsets.values()) or None
            batches.append(BatchSeen(began, rows, following - began, slots, partitions, query=folder.resolve().name))
    if batches and end is not None:
        batches[-1] = replace(batches[-1], backlog=_difference(end, entries[-1][1]))
    return batches


def _entry(file: Path) -> tuple[float, Offsets]:
    """v1, then a line about the batch, then one line for every source."""
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise BadInputError(f"{file}: too large for the offsets of a batch")
    except OSError as error:
        raise BadInputError(f"{file}: cannot be read: {error}") from error
    lines = read_text(file).splitlines()
    if len(lines) < 3 or lines[0] != "v1":
        raise BadInputError(f"{file}: not the offsets of a batch: expected 'v1' and two lines more")
    about = parse_json(lines[1], f"{file}: line 2")
    milliseconds = about.get("batchTimestampMs") if isinstance(about, dict) else None
    if not isinstance(milliseconds, int) or isinstance(milliseconds, bool) or not 0 <= milliseconds <= MAX_MS:
        raise BadInputError(f"{file}: line 2: expected batchTimestampMs")
    offsets: Offsets = {}
    for number, line in enumerate(lines[2:], 3):
        if line != "-":
            where = f"{file}: line {number}"
            offsets.update(kafka_offsets(_json(line, where), where))
    return milliseconds / 1000, offsets


def _json(text: str, where: str) -> Any:
    """None: Spark's own sources may say where they are in words of their own."""
    try:
        return parse_json(text, where)
    except BadInputError:
        return None


def kafka_offsets(value: Any, where: str) -> Offsets:
    """`{"topic": {"0": 17}}`; other sources do not say how many rows lie between two offsets."""
    if not isinstance(value, dict) or not value or not all(isinstance(parts, dict) for parts in value.values()):
        raise BadInputError(f"{where}: not Kafka's offsets; only those tell how many rows a batch had")
    offsets: Offsets = {}
    for topic, parts in value.items():
        for part, offset in parts.items():
            is_offset = isinstance(offset, int) and not isinstance(offset, bool) and abs(offset) <= MAX_OFFSET
            if not is_offset or not is_whole(str(part)):
                raise BadInputError(f"{where}: topic '{topic}': expected whole numbers by partition")
            offsets.setdefault(str(topic), {})[str(part)] = offset
    return offsets


def read_end_offsets(path: Path) -> Offsets:
    return kafka_offsets(read_document(path), str(path))


def _difference(later: Mapping[str, Mapping[str, int]], earlier: Mapping[str, Mapping[str, int]]) -> float:
    return float(
        sum(
            max(0, offset - earlier.get(topic, {}).get(part, offset))
            for topic, parts in later.items()
            for part, offset in parts.items()
        )
    )


def last_offsets(folder: Path) -> Offsets:
    """Up to where the last batch reads."""
    numbers = [int(file.name) for file in (folder / "offsets").iterdir() if is_whole(file.name)]
    return _entry(folder / "offsets" / str(max(numbers)))[1] if numbers else {}


# Batches from Spark's own metrics: the text its driver answers at /metrics/prometheus, sampled a few times.


LINE = re.compile(
    r"^(?P<name>[A-Za-z_][\w:]*)(?:\{[^}]*\})?\s+(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*$", re.ASCII
)
"""Values that are no number (NaN, +Inf) are no value."""
GAUGES = ("inputRate_total", "processingRate_total", "latency", "states_rowsTotal", "states_usedBytes")
STREAMING = re.compile(rf"_driver_spark_streaming_(?P<query>.+)_(?P<what>{'|'.join(GAUGES)})_Value$")
CORES = "metrics_executor_totalCores"
MAX_CORES = 1e6
MAX_ANSWER = 16 * 2**20
ANSWER_SECONDS = 10.0
"""For an answer as a whole."""


def answer_of(address: str) -> str:
    """Return the text that is answered at an address. Raise BadInputError if there is none, whatever answers."""
    from http.client import HTTPException  # noqa: PLC0415 - only for applications that run
    from urllib.error import HTTPError  # noqa: PLC0415
    from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener  # noqa: PLC0415

    class ClosingRedirects(HTTPRedirectHandler):
        def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
            """Follow, or close the answer: Python forgets to, if the new address is none."""
            try:
                return super().http_error_302(req, fp, code, msg, headers)
            except ValueError:
                fp.close()
                raise

        http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    watch, received = Stopwatch(), bytearray()
    try:
        with build_opener(ProxyHandler({}), ClosingRedirects).open(address, timeout=ANSWER_SECONDS) as answer:
            while len(received) < MAX_ANSWER and (part := answer.read1(1 << 16)):
                received += part
                if watch.seconds() > ANSWER_SECONDS:
                    raise TimeoutError(f"no whole answer within {ANSWER_SECONDS:g} s")
    except HTTPError as error:
        error.close()
        raise no_metrics(address) from error
    except HTTPException as error:
        raise BadInputError(f"{address}: what answers there does not speak HTTP ({_words(error)})") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        cause = reason if isinstance(reason, TimeoutError) else error
        raise BadInputError(f"{address}: {_words(reason)}") from cause
    return received.decode("utf-8", "replace")


def _words(error: object) -> str:
    """An error in one line: it may repeat whatever was answered."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def no_metrics(address: str) -> BadInputError:
    return BadInputError(
        f"{address}: no metrics of streaming queries there; its application needs "
        "spark.sql.streaming.metricsEnabled=true, "
        "spark.metrics.conf.*.sink.prometheusServlet.class=org.apache.spark.metrics.sink.PrometheusServlet and "
        "spark.metrics.conf.*.sink.prometheusServlet.path=/metrics/prometheus"
    )


@dataclass(frozen=True, slots=True)
class MetricSample:
    """What one query said of its last batch."""

    query: str
    input_rate: float
    processing_rate: float
    latency_ms: float
    state_rows: float | None
    state_bytes: float | None


def samples_of(text: str) -> list[MetricSample]:
    """Queries without a batch yet are left out."""
    values: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        parts = LINE.match(line)
        metric = STREAMING.search(parts["name"]) if parts else None
        if parts and metric:
            values.setdefault(metric["query"], {})[metric["what"]] = float(parts["value"])
    return [
        MetricSample(
            query,
            row.get("inputRate_total", 0.0),
            row["processingRate_total"],
            row["latency"],
            row.get("states_rowsTotal"),
            row.get("states_usedBytes"),
        )
        for query, row in sorted(values.items())
        if row.get("processingRate_total", 0) > 0 and row.get("latency", 0) > 0
    ]


def cores_of(text: str) -> int | None:
    """Of /metrics/executors/prometheus: cores of all executors but the driver, or of the driver where it is alone."""
    apart, alone = 0, 0
    for line in text.splitlines():
        parts = LINE.match(line)
        if parts and parts["name"] == CORES:
            value = int(min(float(parts["value"]), MAX_CORES))
            if 'executor_id="driver"' in line:
                alone += value
            else:
                apart += value
    return apart or alone or None


def batches_of_samples(samples: Iterable[tuple[float, MetricSample]], slots: int | None) -> list[BatchSeen]:
    """rows = processing rate * seconds of the batch. A sample like the one before it is the same batch."""
    batches: list[BatchSeen] = []
    last: MetricSample | None = None
    for at, sample in samples:
        if sample == last:
            continue
        last = sample
        seconds = sample.latency_ms / 1000
        batches.append(
            BatchSeen(
                at=at - seconds,
                rows=sample.processing_rate * seconds,
                seconds=seconds,
                slots=slots,
                state_rows=sample.state_rows,
                state_bytes=sample.state_bytes,
                arrived_rate=sample.input_rate,
                query=sample.query,
            )
        )
    return batches
