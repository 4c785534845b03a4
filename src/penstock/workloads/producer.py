"""A producer at work: every message leaves when it is due, with the time it left, and the rate is kept or it is said by
how much it is not."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self

from pydantic import Field, model_validator

from penstock.base.clock import Stopwatch, now, pause
from penstock.base.errors import BadInputError, nearest
from penstock.base.files import (
    Amount,
    Count,
    Name,
    Positive,
    Versioned,
    check,
    output_path,
    read_bytes,
    read_document,
    read_text,
)
from penstock.connectors.log_contract import UnknownTopicError
from penstock.connectors.topic_address import LogAddress, parse_topic
from penstock.dataflow.load import MOST_RATE, Load, parse_load
from penstock.dataflow.secrets import check_no_secret
from penstock.workloads.applications.messages import batch_reading, gateway_line, messages, reading_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.connectors.log_contract import Producer, TopicLog


# The specification of a producer, as a file has it.


FILES = "files:"
"""What `to` begins with where messages go into files."""


class ProducerSpec(Versioned):
    """Without `seconds` and `messages` it has no end."""

    to: Annotated[str, Field(min_length=1, max_length=4096)]
    """kafka:HOST:PORT/TOPIC, log:FOLDER/TOPIC, or files:FOLDER."""
    data: Name | None = None
    """The stream of messages, by name."""
    rows: Annotated[str | None, Field(max_length=4096)] = None
    """Instead: a pattern of files (JSON lines, .csv, .parquet); their rows are the messages, over and over."""
    rate: str | float | int
    """Messages/s: a number, or a rate over time (steps:..., on-off:..., sine:..., batches:..., trace:FILE)."""
    seconds: Positive | None = None
    messages: Count | None = None
    first: Amount = 0
    """The number of the first message."""
    partitions: Count | None = None
    """Makes the topic, or gives it more partitions; by default it must be there."""
    retention_seconds: Positive | None = None
    """Of a topic: messages that are older may be dropped; by default they are kept, or Kafka has a say in it."""
    each_partition: bool = False
    """Whether every partition has a producer of its own, each at the rate given."""
    key: Name | None = None
    """The field that decides the partition."""
    options: dict[str, str] = Field(default_factory=dict)
    """kafka.*: how to reach Kafka, as in sources."""
    event_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Part of the batches of data `batches` and `gateway-lines` that are events."""
    batch_length: Count = 80
    """Messages of one batch of data `batches` and `gateway-lines`."""

    @model_validator(mode="after")
    def _one_kind_of_data(self) -> Self:
        if (self.data is None) == (self.rows is None):
            raise ValueError("expected one of data (a stream by name) and rows (a pattern of files)")
        if self.each_partition and self.key is not None:
            raise ValueError("each_partition says where messages go; leave out key")
        if self.retention_seconds is not None and self.to.startswith(FILES):
            raise ValueError("retention_seconds: only topics forget what is old, and these are files")
        check_no_secret(self.options)
        return self


def read_producer(path: Path) -> ProducerSpec:
    return check(ProducerSpec, read_document(path), str(path))


def producer_spec(given: ProducerSpec | str | Path | dict[str, Any]) -> ProducerSpec:
    if isinstance(given, ProducerSpec):
        return given
    return check(ProducerSpec, given, "producer") if isinstance(given, dict) else read_producer(Path(given))


# Rates of a producer over time: those every load has, and the shapes the documents feed their pipelines with.


SINE_STEPS = 48
"""Spells one period of a sine is cut into."""
BATCH_RATE = 1_000.0
"""Messages/s within a batch, where nothing else is said."""


def producer_load(text: str) -> Load:
    """As `parse_load`, and: `on-off:HIGH,ON,OFF,LOW` (a low rate instead of none), `sine:MEAN,AMPLITUDE,SECONDS`, and
    `batches:LENGTH,GAP[,RATE]` (so many messages, then seconds of silence)."""
    kind, _, rest = text.partition(":")
    parts = rest.split(",")
    try:
        if kind == "on-off" and len(parts) == 4:
            high, on_seconds, off_seconds, low = map(float, parts)
            return Load(((on_seconds, high), (off_seconds, low)), repeats=True)
        if kind == "sine":
            mean, amplitude, seconds = map(float, parts)
            return sine(mean, amplitude, seconds)
        if kind == "batches":
            length, gap, *more = map(float, parts)
            return batches(length, gap, *more)
    except (ValueError, TypeError) as error:
        raise BadInputError(f"rate '{text}': {error}") from error
    return parse_load(text)


def sine(mean: float, amplitude: float, seconds: float) -> Load:
    """mean + amplitude sin(2 pi t / seconds), in steps; each has the rate of its middle."""
    if not 0 <= amplitude <= mean:
        raise BadInputError(f"sine: expected an amplitude from 0 to the mean of {mean:g}, found {amplitude:g}")
    middles = ((step + 0.5) / SINE_STEPS for step in range(SINE_STEPS))
    rates = (max(0.0, mean + amplitude * math.sin(2 * math.pi * middle)) for middle in middles)
    return Load(tuple((seconds / SINE_STEPS, rate) for rate in rates), repeats=True)


def batches(length: float, gap: float, rate: float = BATCH_RATE) -> Load:
    """`length` messages at `rate`, then `gap` seconds of nothing."""
    if not length >= 1:
        raise BadInputError(f"batches: expected at least one message, found {length:g}")
    if not 0 < rate <= MOST_RATE:
        raise BadInputError(f"batches: expected a rate above 0, found {rate:g}")
    return Load(((length / rate, rate), (gap, 0.0)), repeats=True)


# Messages of a producer: made by number, or the rows of files repeated.


BATCHES, GATEWAYS = "batches", "gateway-lines"
Message = dict[str, Any] | str
"""Fields, which are sent as JSON, or a line of comma-separated values, which is sent as it is."""
TABLES = (".csv", ".parquet")
"""Endings of files whose rows have columns; all others are lines of JSON."""


def making(spec: ProducerSpec) -> Callable[[int, int], Message]:
    """A function of the number of a message and of its producer."""
    if spec.rows is not None:
        rows = _rows(spec.rows)
        return lambda number, producer: rows[number % len(rows)]
    if spec.data == BATCHES:
        return lambda number, producer: batch_reading(number, producer, spec.batch_length, spec.event_share)
    if spec.data == GATEWAYS:
        if spec.each_partition:
            return lambda number, producer: reading_line(number, producer, spec.batch_length, spec.event_share)
        return lambda number, producer: gateway_line(number, spec.batch_length, spec.event_share)
    make = messages(spec.data or "")
    return lambda number, producer: make(number)


def _rows(pattern: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in sorted(glob(pattern)):  # noqa: PTH207 - the user's pattern, from anywhere
        path = Path(name)
        rows += _table_rows(path) if path.suffix.lower() in TABLES else _json_rows(path)
    if not rows:
        raise BadInputError(f"rows: no line in any file that matches '{pattern}'")
    return rows


def _json_rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for position, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise BadInputError(f"{path}: line {position}: not valid JSON: {error}") from error
        if not isinstance(value, dict):
            raise BadInputError(f"{path}: line {position}: expected a JSON object")
        rows.append(value)
    return rows


def _table_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of CSV (the first line has the names) or Parquet, as the JSON that a sink would make of them."""
    import pyarrow as pa  # noqa: PLC0415 - belongs to the extra
    from pyarrow import csv, parquet  # noqa: PLC0415

    from penstock.connectors.spark_text import json_lines  # noqa: PLC0415

    file = pa.BufferReader(read_bytes(path))
    try:
        table = csv.read_csv(file) if path.suffix.lower() == ".csv" else parquet.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise BadInputError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
    return [json.loads(line) for batch in table.to_batches() for line in json_lines(batch)]


# Targets of a producer: a topic, or files that appear complete.


SHOWN_SECONDS = 0.1
"""What was sent is there for readers after so long."""
FILE_SECONDS = 1.0
"""One file holds what was sent in so long."""


class ProducerTarget(Protocol):
    partitions: int

    def send(
        self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, partition: int | None, time_ms: int
    ) -> None: ...

    def tick(self) -> None:
        """Time has passed: let readers see what was sent."""

    def close(self) -> None: ...


class _TopicTarget:
    def __init__(self, log: TopicLog, topic: str) -> None:
        self._topic = topic
        self.partitions = log.topics()[topic]
        self._producer: Producer = log.producer()
        self._shown = Stopwatch()

    def send(
        self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, partition: int | None, time_ms: int
    ) -> None:
        self._producer.send(self._topic, values, keys, partition=partition, times_ms=[time_ms] * len(values))

    def tick(self) -> None:
        if self._shown.seconds() >= SHOWN_SECONDS:
            self._producer.flush()
            self._shown = Stopwatch()

    def close(self) -> None:
        self._producer.close()


class _FileTarget:
    partitions = 1

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(f"{folder}: cannot be written: {error.strerror or error}") from error
        self._folder = folder
        # two producers may write into one folder: each has names of its own
        self._token = token_hex(4)
        self._written = len(list(folder.glob("*.jsonl")))
        self._held: list[bytes] = []
        self._since = Stopwatch()

    def send(
        self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, partition: int | None, time_ms: int
    ) -> None:
        self._held += values

    def tick(self) -> None:
        if self._since.seconds() >= FILE_SECONDS:
            self._write()

    def close(self) -> None:
        self._write()

    def _write(self) -> None:
        if self._held:
            with output_path(self._folder / f"{self._written:09d}-{self._token}.jsonl") as temporary:
                temporary.write_bytes(b"".join(value + b"\n" for value in self._held))
            self._written += 1
        self._held, self._since = [], Stopwatch()


def target_of(spec: ProducerSpec) -> ProducerTarget:
    if spec.to.startswith(FILES):
        return _FileTarget(Path(spec.to.removeprefix(FILES)))
    address, topic = parse_topic(spec.to)
    log = LogAddress(address.format, {**address.options, **spec.options}).open()
    if spec.partitions is None:
        try:
            log.spans(topic)  # its error lists the topics
        except UnknownTopicError as error:
            raise UnknownTopicError(f"{error}; partitions (--partitions N) makes it") from error
    if spec.partitions is not None or spec.retention_seconds is not None:
        log.create(topic, spec.partitions or log.topics()[topic], spec.retention_seconds)
    return _TopicTarget(log, topic)


TICK_SECONDS = 0.02
MOST_AT_ONCE = 2_000
"""Messages of one producer between two looks at the clock."""
KEPT = 0.95
"""The part of the rate that must be kept."""
GRACE_SECONDS = 0.5
"""What a producer that keeps its rate may need behind its last message: to look at the clock, and to flush."""


@dataclass(frozen=True, slots=True)
class Produced:
    """What a producer did: `messages` of the `due` ones were in the log after `seconds`, and the last of them was due
    after `due_seconds`. `behind_seconds` is the longest that the oldest message had waited to be sent."""

    messages: int
    due: int
    seconds: float
    due_seconds: float
    behind_seconds: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def asked_rate(self) -> float:
        return self.due / self.due_seconds if self.due_seconds else 0.0

    @property
    def late_seconds(self) -> float:
        """By how much the last message was there after it was due."""
        return max(0.0, self.seconds - self.due_seconds)

    @property
    def kept(self) -> bool:
        """The last message was not late (`allowed_late`). Whoever is stopped may leave a few unsent that just became
        due."""
        return self.messages >= KEPT * self.due and self.late_seconds <= allowed_late(self.due_seconds)

    def document(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "seconds": round(self.seconds, 3),
            "rate": round(self.rate, 3),
            "asked_rate": round(self.asked_rate, 3),
            "due": self.due,
            "late_seconds": round(self.late_seconds, 3),
            "behind_seconds": round(self.behind_seconds, 3),
            "kept": self.kept,
        }


def allowed_late(due_seconds: float) -> float:
    """A part of 1 - KEPT of the time that was given, and what every producer needs behind its last message."""
    return (1 - KEPT) * due_seconds + GRACE_SECONDS


@dataclass
class _Stream:
    """One sequence of messages: `partition` where it has a producer of its own."""

    producer: int
    partition: int | None
    sent: int = 0


def produce(
    spec: ProducerSpec,
    listen: Callable[[int, float], None] = lambda messages, seconds: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Produced:
    """Until its end, or until `stopped`; `listen` hears of messages and seconds so far."""
    load = producer_load(str(spec.rate))
    if spec.seconds is None and spec.messages is None and load.spells[-1][1] == 0 and not load.repeats:
        raise BadInputError(f"rate '{spec.rate}' ends with nothing: give seconds or messages")
    make = making(spec)
    _check_key(spec, make)
    target = target_of(spec)
    streams = [_Stream(0, None)]
    if spec.each_partition:
        streams = [_Stream(number, number) for number in range(target.partitions)]
    # a limit of seconds is one of due times: late messages are sent after it, within `allowed_late`
    end_seconds = math.inf if spec.seconds is None else float(spec.seconds)
    watch, behind, at = Stopwatch(), 0.0, 0.0
    try:
        while not stopped():
            at = min(watch.seconds(), end_seconds)
            done = []
            for stream in streams:
                due = _due(load, at, spec)
                if stream.sent < due:
                    behind = max(behind, at - float(load.due_seconds(stream.sent, stream.sent + 1)[0]))
                    _send(stream, min(due, stream.sent + MOST_AT_ONCE), make, target, spec)
                done.append(stream.sent >= due)
            target.tick()
            listen(sum(stream.sent for stream in streams), at)
            over = at == end_seconds or all(stream.sent == spec.messages for stream in streams)
            if over and (all(done) or watch.seconds() > end_seconds + allowed_late(end_seconds)):
                break
            if all(done):
                pause(TICK_SECONDS)
    finally:
        target.close()
    due = _due(load, at, spec)
    # a limit of messages: the time they should have taken ends when the last of them was due
    due_seconds = at if spec.messages is None or due < spec.messages else float(load.due_seconds(due - 1, due)[0])
    return Produced(
        sum(stream.sent for stream in streams), due * len(streams), watch.seconds(), min(at, due_seconds), behind
    )


def _check_key(spec: ProducerSpec, make: Callable[[int, int], Message]) -> None:
    """A field that the first message does not have is a slip; later ones may be without it."""
    if spec.key is None:
        return
    first = make(int(spec.first), 0)
    if isinstance(first, str):
        raise BadInputError(f"key: messages of '{spec.data}' are lines, whose fields have no names")
    if spec.key not in first:
        raise BadInputError(f"key: messages have no field '{spec.key}'; {nearest(spec.key, first)}")


def _encoded(message: Message, sent: float) -> bytes:
    if isinstance(message, str):
        return message.encode()
    return json.dumps({**message, "sent": sent}, default=str).encode()


def _key(value: object) -> bytes | None:
    return None if value is None else str(value).encode()


def _due(load: Load, at: float, spec: ProducerSpec) -> int:
    due = load.due(at)
    return due if spec.messages is None else min(due, spec.messages)


def _send(
    stream: _Stream, until: int, make: Callable[[int, int], Message], target: ProducerTarget, spec: ProducerSpec
) -> None:
    sent = now()
    rows = [make(int(spec.first) + number, stream.producer) for number in range(stream.sent, until)]
    values = [_encoded(row, sent) for row in rows]
    keys = None if spec.key is None else [_key(row.get(spec.key)) for row in rows if not isinstance(row, str)]
    target.send(values, keys, stream.partition, int(sent * 1000))
    stream.sent = until
