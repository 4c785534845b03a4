"""Sinks: what becomes of a batch. A batch that is run again replaces what it left before, where a sink can do that."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError, RunFailedError
from penstock.connectors.connection_settings import KAFKA, with_secrets
from penstock.connectors.topic_address import LogAddress, is_address
from penstock.dataflow.code import write_function
from penstock.dataflow.endpoints import writing_of
from penstock.dataflow.formats import SinkCommit, find_format
from penstock.dataflow.pipeline import Kind, OutputMode
from penstock.engines.fused.sinks.file_writer import FileWriter
from penstock.engines.fused.sinks.table_writer import TableWriter
from penstock.engines.fused.sinks.topic_writer import TopicWriter, letter_topic
from penstock.engines.fused.sources.topics import DELIVERY, EXACTLY_ONCE, sparks_writing
from penstock.runtime.dead_letters import DEAD_LETTERS
from penstock.spark.internals.checkpoint import owner_of
from penstock.spark.internals.error_messages import in_one_line, raised_in_code
from penstock.spark.internals.plans import check_format_exists

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.dataflow.endpoints import Writing
    from penstock.dataflow.pipeline import Operator, Pipeline
    from penstock.engines.fused.query import FusedSpec


class Writer(Protocol):
    exactly_once: bool
    """Whether a batch that is written twice is there once."""

    def prepare(self) -> None:
        """Complain before anything runs about what cannot be written."""

    def write(self, frame: DataFrame, batch: int) -> None: ...

    def close(self) -> None:
        """The run ended: nothing but what was written stays behind."""


class CountingWriter:
    """Nothing is kept; Spark works everything out all the same."""

    exactly_once = True

    def prepare(self) -> None:
        pass

    def close(self) -> None:
        pass

    def write(self, frame: DataFrame, batch: int) -> None:
        frame.write.format("noop").mode("overwrite").save()


class _Function:
    """The user's own function: whether a batch twice is there once is up to it, and it gets the number to see to it."""

    exactly_once = False

    def __init__(self, who: str, function: Callable[[DataFrame, int], None]) -> None:
        self._who = who
        self._function = function

    def prepare(self) -> None:
        pass

    def close(self) -> None:
        pass

    def write(self, frame: DataFrame, batch: int) -> None:
        with raised_in_code(self._who, RunFailedError):
            self._function(frame, batch)


class _Format:
    """Any other format of Spark's, batch by batch."""

    def __init__(self, session: SparkSession, writing: Writing, owner: str, sink: str) -> None:
        self._session = session
        self._sink = sink
        self._writing = writing
        self._more: Mapping[str, str] = {}
        self._version = ""
        form = find_format(writing.format)
        self.exactly_once = form.commit is SinkCommit.VERSION
        if form.version_options is not None:
            name, self._version = form.version_options
            self._more = {name: f"{owner}-{sink}"}

    def prepare(self) -> None:
        """Spark finds the format, or says so."""
        with in_one_line(f"sink '{self._sink}'", self._writing.format):
            check_format_exists(self._session, self._writing.format)

    def close(self) -> None:
        pass

    def write(self, frame: DataFrame, batch: int) -> None:
        more = {**self._more, self._version: str(batch)} if self._more else {}
        frame.write.format(self._writing.format).options(**self._writing.options, **more).mode("append").save()


def make_writers(session: SparkSession, spec: FusedSpec) -> dict[str, Writer]:
    """By sink, and of dead letters where they are kept: each has seen that it can write."""
    owner = owner_of(session, spec.checkpoint, spec.run)
    writers = {
        name: make_writer(session, operator, owner, spec.checkpoint)
        for name, operator in spec.pipeline.operators.items()
        if operator.kind is Kind.SINK
    }
    if spec.config.dead_letters is not None:
        writers[DEAD_LETTERS] = letter_writer(session, spec.pipeline, spec.config.dead_letters, owner, spec.checkpoint)
    for writer in writers.values():
        writer.prepare()
    return writers


def make_writer(session: SparkSession, operator: Operator, owner: str, checkpoint: str = "") -> Writer:
    """`owner` names whose batches these are, as long as they are numbered on: two that write to one place do not take
    each other's files for their own. `checkpoint` is the run's, which every executor reaches."""
    writing = writing_of(operator)
    if writing.of_the_user:
        function = cast("Callable[[DataFrame, int], None]", write_function(operator))
        return _Function(f"sink '{operator.name}'", function)
    return _format_writer(session, operator.name, writing, owner, checkpoint)


def _format_writer(session: SparkSession, sink: str, writing: Writing, owner: str, checkpoint: str) -> Writer:
    """Return the writer that commits as the declaration of the format says."""
    who, name = f"sink '{sink}'", f"{owner}-{sink}"
    form = find_format(writing.format)
    options = writing.options if form.is_log else with_secrets(writing.options, who, form.name)
    match form.commit:
        case SinkCommit.NOTHING:
            return CountingWriter()
        case SinkCommit.RENAME:
            whole = writing.mode is OutputMode.COMPLETE
            return FileWriter(session, who, form.name, options, name, replaces_all=whole)
        case SinkCommit.TABLE:
            return TableWriter(session, who, options, name)
        case SinkCommit.TRANSACTION:
            return _topic_writer(session, sink, writing, owner, checkpoint)
        case SinkCommit.WRITER:
            module, _, function = form.writer.partition(":")
            writer: Writer = getattr(import_module(module), function)(session, sink, options, owner)
            return writer
        case SinkCommit.VERSION | SinkCommit.AT_LEAST_ONCE:
            return _Format(session, replace(writing, options=options), owner, sink)


def letter_writer(session: SparkSession, pipeline: Pipeline, place: str, owner: str, checkpoint: str) -> Writer:
    """Of dead letters: a topic, or a folder of JSON."""
    who, name = "dead letters", f"{owner}-dead-letters"
    if is_address(place):
        address, topic = letter_topic(pipeline, place)
        return TopicWriter(session, who, address, {"topic": topic}, name, checkpoint)
    return FileWriter(session, who, "json", {"path": place}, name, replaces_all=False)


def _topic_writer(session: SparkSession, sink: str, writing: Writing, owner: str, checkpoint: str) -> Writer:
    who = f"sink '{sink}'"
    if writing.options.get(DELIVERY, EXACTLY_ONCE) == EXACTLY_ONCE:
        address = LogAddress(writing.format, writing.options)
        return TopicWriter(session, who, address, writing.options, f"{owner}-{sink}", checkpoint)
    if writing.format != KAFKA:
        raise BadInputError(f"{who}: format {writing.format} delivers exactly once; leave out delivery")
    return _Format(session, sparks_writing(session, writing, who), owner, sink)


def write_batch(writer: Writer, sink: str, frame: DataFrame, batch: int) -> None:
    with in_one_line(f"sink '{sink}'"):
        writer.write(frame, batch)


# Output of a console sink: a few rows a second, as JSON.


SHOWN = 5
EVERY_SECONDS = 1.0


class ConsoleSample:
    def __init__(self, show: Callable[[str, str], None] | None) -> None:
        self._show = show
        self._since: dict[str, Stopwatch] = {}

    @property
    def wanted(self) -> bool:
        return self._show is not None

    def take(self, sink: str, frame: DataFrame) -> None:
        last = self._since.get(sink)
        if self._show is None or (last is not None and last.seconds() < EVERY_SECONDS):
            return
        self._since[sink] = Stopwatch()
        for row in frame.limit(SHOWN).selectExpr("to_json(struct(*)) AS text").collect():
            self._show(sink, row.text)
