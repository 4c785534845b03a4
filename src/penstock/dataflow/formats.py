"""The formats of sources and sinks: one declaration each, and how a source or sink of a pipeline uses its format.

A format is a name in a pipeline (`format: parquet`). Built-in formats are declared in `BUILT_IN`; a package adds one
through an entry point of the group `penstock.connectors` that names a `Format`. Spark is asked for any other format:
nothing is known of it, so its rows are not sampled and its sinks deliver at least once.

`reading_of` and `writing_of` return format and options of an operator, however the pipeline declares them;
`admission_of` returns the rows that a micro-batch takes in of every source.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from glob import iglob
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.base.registry import Registry
from penstock.base.text import is_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.dataflow.pipeline import Operator, OutputMode, Pipeline, Watermark


class Medium(StrEnum):
    """The place that keeps the rows."""

    FILES = "files"
    """Files in a folder."""
    LOG = "log"
    """Topics of a log of messages: `connectors.log_contract`."""
    SPARK = "spark"
    """Anything else; only Spark knows how to reach it."""
    PENSTOCK = "penstock"
    """Nothing outside the run: Penstock makes or counts the rows."""


class SinkCommit(StrEnum):
    """The way a sink of a fused run skips a batch that it already has."""

    NOTHING = "nothing is kept"
    RENAME = "files are renamed under the number of their batch"
    TRANSACTION = "a transaction of the log carries the number of the batch"
    TABLE = "the number of the batch is in a table of the same database"
    VERSION = "options of the format carry the number of the batch"
    WRITER = "the writer of the format does"
    AT_LEAST_ONCE = "it does not: a batch may be there twice"


class PlacedCommit(StrEnum):
    """The way an epoch of a placed run reaches a sink."""

    NOTHING = "nothing is kept"
    CONSOLE = "some rows are printed"
    SLOTS = "slots stage files, and the commit renames them"
    LOG = "slots stage rows, and the commit sends them in one transaction"
    SPARK = "slots stage rows, and Spark writes them after the commit, as in a fused run"


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format and its properties. The defaults are those of a format that only Spark knows."""

    name: str
    former_names: tuple[str, ...] = ()
    medium: Medium = Medium.SPARK
    can_read: bool = True
    can_write: bool = True
    rereadable: bool = False
    """A second reader gets the same rows: after a death nothing is missing, and samples take no row from a run."""
    numbered_rows: bool = False
    """Files whose rows `connectors.file_source` finds by number, so that a placed run can read them."""
    replayable: bool = False
    """Files that profiling can write itself to replay a sample."""
    endings: tuple[str, ...] = ()
    """Endings of file names that mean this format."""
    files_options: Mapping[str, str] = field(default_factory=dict)
    """Options of a source that is written as `files=` and names none of them."""
    commit: SinkCommit = SinkCommit.AT_LEAST_ONCE
    placed_commit: PlacedCommit = PlacedCommit.SPARK
    version_options: tuple[str, str] | None = None
    """For `SinkCommit.VERSION`: the options that take the name of the writer and the number of the batch."""
    writer: str = ""
    """For `SinkCommit.WRITER`: `module:function` that makes the writer of a sink from (session, sink name, options,
    owner); the writer is an `engines.fused.sinks.writers.Writer`."""
    log: str = ""
    """For `Medium.LOG`: `module:function` that opens a `TopicLog` from the options of a source or sink."""
    address_option: str = "path"
    """The option with the place: the folder, or the servers of a log."""
    client_prefix: str = ""
    """Options that begin so are for the client library."""
    python_package: tuple[str, str] | None = None
    """The module it imports, and the command that installs it."""
    spark_package: str = ""
    """The package to give to --packages, without its version; empty if Spark brings it."""
    secret_options: frozenset[str] = frozenset()
    """Options that hold a secret although their names do not say so, in small letters."""
    plain_options: frozenset[str] = frozenset()
    """Options that look like a reference to a secret and are none, in small letters."""

    @property
    def is_files(self) -> bool:
        return self.medium is Medium.FILES

    @property
    def is_log(self) -> bool:
        return self.medium is Medium.LOG

    @property
    def is_path(self) -> bool:
        """Return whether an address of this log is a folder."""
        return self.address_option == "path"

    @property
    def exactly_once(self) -> bool:
        """Return whether a batch or an epoch that is written twice is there once."""
        return self.commit is not SinkCommit.AT_LEAST_ONCE


CLIENT_PREFIX = "kafka."
"""Prefix of options for Kafka's clients, as in Spark's own connector."""
LOAD = "load"
"""The format of a source that emits numbered rows at the rate of the run."""
COUNT = "count"
"""The format of a sink that only counts the rows that reach it."""


def _files(name: str, *endings: str, **more: object) -> Format:
    # each keyword is a field of `Format`
    return Format(
        name=name, medium=Medium.FILES, rereadable=True, endings=endings, commit=SinkCommit.RENAME, **more  # type: ignore[arg-type]
    )  # fmt: skip


BUILT_IN = (
    Format(name=LOAD, medium=Medium.PENSTOCK, can_write=False, rereadable=True),
    Format(
        name=COUNT, medium=Medium.PENSTOCK, can_read=False,
        commit=SinkCommit.NOTHING, placed_commit=PlacedCommit.NOTHING,
    ),
    Format(name="noop", can_read=False, commit=SinkCommit.NOTHING, placed_commit=PlacedCommit.NOTHING),
    Format(name="console", can_read=False, placed_commit=PlacedCommit.CONSOLE),
    _files(
        "json", ".jsonl", ".ndjson", ".json",
        former_names=("jsonl",), numbered_rows=True, replayable=True, placed_commit=PlacedCommit.SLOTS,
    ),
    _files("csv", ".csv", files_options={"header": "true"}, numbered_rows=True, replayable=True),
    _files("parquet", ".parquet", numbered_rows=True, replayable=True, placed_commit=PlacedCommit.SLOTS),
    _files("orc", ".orc", replayable=True),
    _files("text", ".txt", ".log", numbered_rows=True),
    _files("avro", spark_package="org.apache.spark:spark-avro_2.13"),
    _files("xml"),
    Format(
        name="kafka",
        medium=Medium.LOG,
        rereadable=True,
        commit=SinkCommit.TRANSACTION,
        placed_commit=PlacedCommit.LOG,
        log="penstock.connectors.kafka_log:open_log",
        address_option="kafka.bootstrap.servers",
        client_prefix=CLIENT_PREFIX,
        python_package=("confluent_kafka", "pip install 'penstock[kafka]'"),
        spark_package="org.apache.spark:spark-sql-kafka-0-10_2.13",
        plain_options=frozenset({"kafka.sasl.oauthbearer.assertion.private.key.file"}),
    ),
    Format(
        name="log",
        medium=Medium.LOG,
        rereadable=True,
        commit=SinkCommit.TRANSACTION,
        placed_commit=PlacedCommit.LOG,
        log="penstock.connectors.embedded_log:open_log",
    ),
    Format(
        name="delta",
        rereadable=True,
        commit=SinkCommit.VERSION,
        version_options=("txnAppId", "txnVersion"),
        spark_package="io.delta:delta-spark_2.13",
    ),
    Format(name="iceberg", rereadable=True, spark_package="org.apache.iceberg:iceberg-spark-runtime-4.0_2.13"),
    Format(name="hudi", rereadable=True),
    Format(name="jdbc", can_read=False, commit=SinkCommit.TABLE, address_option="url"),
    Format(name="rate", can_write=False, rereadable=True),
    Format(name="rate-micro-batch", can_write=False, rereadable=True),
    Format(name="socket", can_write=False),
)  # fmt: skip

_BUILT_IN = {name: declared for declared in BUILT_IN for name in (declared.name, *declared.former_names)}

CONNECTORS: Registry[Format] = Registry(
    kind="connector",
    group="penstock.connectors",
    built_in={declared.name: "" for declared in BUILT_IN},
)
"""All declared formats by name; those of other packages are loaded when a pipeline names them."""


@lru_cache(maxsize=1024)
def find_format(name: str) -> Format:
    """Return the declaration of a format; names ignore case. An undeclared format has the defaults."""
    small = name.lower()
    if small in _BUILT_IN:
        return _BUILT_IN[small]
    if small not in CONNECTORS.names():
        return Format(name=name)
    declared = CONNECTORS.load(small)
    if not isinstance(declared, Format) or declared.name != small:
        raise BadInputError(f"connector '{small}': expected a penstock.dataflow.formats.Format of this name")
    return declared


def declared_formats() -> Iterator[Format]:
    """Return all declared formats, those of other packages last."""
    return (find_format(name) for name in CONNECTORS.names())


def log_formats() -> tuple[str, ...]:
    """Return the names of formats that are logs of messages."""
    return tuple(declared.name for declared in declared_formats() if declared.is_log)


def log_addresses(topic: str = "") -> str:
    """Return the forms of the addresses of logs, for messages and help; `topic` follows each."""
    forms = map(find_format, log_formats())
    return " or ".join(f"{form.name}:{'FOLDER' if form.is_path else 'HOST:PORT'}{topic}" for form in forms)


def format_of_ending(ending: str) -> str | None:
    """Return the format that the ending of a file name means."""
    return next((form.name for form in declared_formats() if ending.lower() in form.endings), None)


def formats_with_endings() -> tuple[str, ...]:
    """Return the names of formats that `files=` knows by an ending."""
    return tuple(declared.name for declared in declared_formats() if declared.endings)


# Options of sources and sinks that are topics, by their names. As Spark takes them, in small and capital letters
# alike.


OURS = (
    "connector",
    "delivery",
    "failOnDataLoss",
    "groupId",
    "maxOffsetsPerTrigger",
    "path",
    "startingOffsets",
    "subscribe",
    "topic",
)
"""Options of our own connector, besides those of its clients (`kafka.*`)."""
ONLY_SPARKS = (
    "assign",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribePattern",
)
"""Other options that Spark's own connector to Kafka has for a source."""

_SPELLED = {name.lower(): name for name in (*OURS, *ONLY_SPARKS)}


def well_spelled(options: Mapping[str, str], who: str) -> dict[str, str]:
    """Options as the lists above spell them, those for Kafka's clients in small letters as all their names are."""
    spelled: dict[str, str] = {}
    for option, value in options.items():
        small = option.lower()
        name = small if small.startswith(CLIENT_PREFIX) else _SPELLED.get(small, option)
        if name in spelled:
            raise BadInputError(f"{who}: option {name} is there twice, in other letters: leave out one")
        spelled[name] = value
    return spelled


def check_known_to_us(options: Mapping[str, str], who: str) -> None:
    """Reject options that our own connector would ignore, for sources that it reads."""
    for option in options:
        if option in ONLY_SPARKS:
            raise BadInputError(
                f"{who}: option {option}: only Spark's own connector knows it; say connector: spark (in a fused run, "
                "with its package), or leave it out"
            )


def most_per_batch(options: Mapping[str, str], who: str) -> int | None:
    """Return the max offsets a batch takes from a source; None if no option limits it."""
    text = options.get("maxOffsetsPerTrigger")
    if text is None:
        return None
    if not is_whole(text) or int(text) < 1:
        raise BadInputError(f"{who}: option maxOffsetsPerTrigger: expected a number of at least 1, found '{text[:80]}'")
    return int(text)


@dataclass(frozen=True, slots=True)
class Reading:
    """Options of `readStream`. `of_the_user`: a function makes the frame, and there are no other options."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    watermark: Watermark | None = None
    of_the_user: bool = False

    @property
    def is_load(self) -> bool:
        return self.format == LOAD


@dataclass(frozen=True, slots=True)
class Writing:
    """Options of `writeStream`."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    mode: OutputMode | None = None
    of_the_user: bool = False

    @property
    def keeps_rows(self) -> bool:
        return self.of_the_user or find_format(self.format).commit is not SinkCommit.NOTHING


def reading_of(operator: Operator) -> Reading:
    """Return how a source reads."""
    if operator.frame is not None or operator.frame_code is not None:
        return Reading("frame", {}, None, operator.watermark, of_the_user=True)
    options = _texts(operator.options)
    if operator.files is None:
        form = find_format(operator.format or LOAD)
        options = well_spelled(options, f"source '{operator.name}'") if form.is_log else options
        return Reading(form.name, options, operator.schema_, operator.watermark)
    name = operator.format or format_of_ending(PurePath(operator.files).suffix) or ""
    form = find_format(name)
    options = {**form.files_options, **options, "path": operator.files}
    return Reading(form.name, options, operator.schema_, operator.watermark)


def writing_of(operator: Operator) -> Writing:
    """Return how a sink writes."""
    if operator.write is not None or operator.write_code is not None:
        return Writing("write", {}, operator.mode, of_the_user=True)
    options = _texts(operator.options)
    if operator.parquet is not None:
        return Writing("parquet", {**options, "path": operator.parquet}, operator.mode)
    form = find_format(operator.format or COUNT)
    options = well_spelled(options, f"sink '{operator.name}'") if form.is_log else options
    return Writing(form.name, options, operator.mode)


def is_driven_by_load(pipeline: Pipeline) -> bool:
    """Return whether some source emits rows at the rate of the run."""
    return any(reading_of(pipeline.operators[name]).is_load for name in pipeline.sources)


def _texts(options: Mapping[str, str | bool | int | float]) -> dict[str, str]:
    """Spark takes options as text; its booleans are small letters."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}


# The rows that a micro-batch takes in of every source, from the options of sources and the files there.


MAX_SAMPLED_FILES = 8
"""Files that are looked into, the first by name."""
SAMPLED_BYTES = 1_000_000
"""Bytes of a text file that are looked into; the rest is taken to be alike."""


@dataclass(frozen=True, slots=True)
class BatchAdmission:
    """Rows that a batch takes in of every source, if the sources decide and not the load generator."""

    own_source: bool = False
    """The sources are the user's own: batches hold what these admit."""
    rows: int | None = None
    """Rows of one source in a full batch; None: no limit."""
    unknown: str | None = None
    """Reason why it is not known, and what to do."""


_UNLIMITED = BatchAdmission(own_source=True)


def admission_of(pipeline: Pipeline, folder: Path | None = None) -> BatchAdmission:
    """Return the rows that a batch takes in of every source. Of several sources the one that admits least decides.
    Relative paths are those of `folder`, else of the current one."""
    if is_driven_by_load(pipeline):
        return BatchAdmission()
    admitted = [_of_source(name, reading_of(pipeline.operators[name]), folder) for name in pipeline.sources]
    unknown = next((admission for admission in admitted if admission.unknown), None)
    if unknown is not None:
        return unknown
    limits = [admission.rows for admission in admitted if admission.rows is not None]
    return BatchAdmission(own_source=True, rows=min(limits)) if limits else _UNLIMITED


def _of_source(name: str, reading: Reading, folder: Path | None) -> BatchAdmission:
    form, options = find_format(reading.format), {key.lower(): value for key, value in reading.options.items()}
    if reading.of_the_user:
        return _unknown(name, "its rows come from a function of the pipeline; use format=, or run it")
    if form.is_log:
        return BatchAdmission(own_source=True, rows=most_per_batch(reading.options, f"source '{name}'"))
    if form.is_files:
        return _of_files(name, form.name, options, folder)
    if form.name == "rate-micro-batch" and is_whole(options.get("rowsperbatch", "")):
        return BatchAdmission(own_source=True, rows=int(options["rowsperbatch"]))
    if form.name in {"rate", "socket"}:
        return _UNLIMITED
    return _unknown(name, f"format '{reading.format}' decides by itself; run it, and compare")


def _of_files(name: str, form: str, options: Mapping[str, str], folder: Path | None) -> BatchAdmission:
    files, size = options.get("maxfilespertrigger"), options.get("maxbytespertrigger")
    if files is None and size is None:
        return _UNLIMITED
    sampled = list(islice(_files_at(options.get("path", ""), folder), MAX_SAMPLED_FILES))
    counts = [rows for file in sampled if (rows := rows_of_file(file, form, options)) is not None]
    if not counts or not sum(counts):
        return _unknown(name, "no file is there whose rows could be counted; put one there")
    mean_rows = sum(counts) / len(counts)
    if files is not None and is_whole(files):
        return BatchAdmission(own_source=True, rows=max(1, round(int(files) * mean_rows)))
    if size is not None and is_whole(size):
        mean_bytes = max(1.0, sum(file.stat().st_size for file in sampled) / len(sampled))
        return BatchAdmission(own_source=True, rows=max(1, round(int(size) * mean_rows / mean_bytes)))
    return _unknown(name, "maxFilesPerTrigger or maxBytesPerTrigger is not a whole number")


def _unknown(source: str, reason: str) -> BatchAdmission:
    return BatchAdmission(own_source=True, unknown=f"how many rows of source '{source}' a batch takes in: {reason}")


def _files_at(path: str, folder: Path | None) -> list[Path]:
    """Files of a path, a folder or a pattern, as Spark reads them: without hidden ones."""
    scheme, colon, rest = path.partition(":")
    if colon and scheme.lower() != "file":
        return []
    place = os.path.join(folder or "", rest if colon else path)  # noqa: PTH118 - it may hold a pattern
    pattern = f"{place}/*" if os.path.isdir(place) else place  # noqa: PTH112 - no error for odd names
    matching = (Path(file) for file in sorted(iglob(pattern)))  # noqa: PTH207 - the user's pattern, from anywhere
    return [file for file in matching if file.is_file() and not file.name.startswith((".", "_"))]


def rows_of_file(file: Path, form: str, options: Mapping[str, str]) -> int | None:
    """Return the rows of a file, of a large text file by its first part; None: only Spark can read it."""
    if form in {"parquet", "orc"}:
        return _rows_in_footer(file, form)
    if form not in {"json", "csv", "text"} or options.get("multiline") == "true" or file.suffix in {".gz", ".bz2"}:
        return None
    with file.open("rb") as opened:
        part = opened.read(SAMPLED_BYTES)
    whole = file.stat().st_size
    lines = part.count(b"\n") + (len(part) == whole and bool(part) and not part.endswith(b"\n"))
    header = form == "csv" and options.get("header") == "true"
    return max(0, round(lines * whole / max(1, len(part))) - header)


def _rows_in_footer(file: Path, form: str) -> int | None:
    import pyarrow as pa  # noqa: PLC0415 - loads only where such files are read
    from pyarrow import orc, parquet  # noqa: PLC0415

    try:
        if form == "parquet":
            return int(parquet.read_metadata(file).num_rows)
        return int(orc.ORCFile(file).nrows)
    except (pa.ArrowInvalid, OSError):
        return None
