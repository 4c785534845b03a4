"""The formats of sources and sinks: one declaration each, and all that planning, runs and connectors ask of them.

A format is a name in a pipeline (`format: parquet`). Built-in formats are declared in `BUILT_IN`; a package adds one
through an entry point of the group `penstock.connectors` that names a `Format`. Spark is asked for any other format:
nothing is known of it, so its rows are not sampled and its sinks deliver at least once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.base.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
        client_prefix="kafka.",
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
