"""Writers of sinks. A batch that is run again replaces its former output, if a sink can do that."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError, RunFailedError
from penstock.connectors.connection_settings import KAFKA, with_secrets
from penstock.connectors.topic_address import LogAddress, is_address
from penstock.dataflow.code import write_function
from penstock.dataflow.formats import SinkCommit, find_format, writing_of
from penstock.dataflow.pipeline import Kind, OutputMode
from penstock.engines.fused.sinks.table_writer import TableWriter
from penstock.engines.fused.sinks.topic_writer import TopicWriter, letter_topic
from penstock.engines.fused.sources.topics import DELIVERY, EXACTLY_ONCE, sparks_writing
from penstock.runtime.dead_letters import DEAD_LETTERS
from penstock.spark.internals.checkpoint import owner_of
from penstock.spark.internals.error_messages import first_line, in_one_line, java_error, raised_in_code
from penstock.spark.internals.hadoop_files import HadoopFiles
from penstock.spark.internals.plans import check_format_exists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.dataflow.formats import Writing
    from penstock.dataflow.pipeline import Operator, Pipeline
    from penstock.engines.fused.query import FusedSpec


class Writer(Protocol):
    exactly_once: bool
    """Whether a batch that is written twice is there once."""

    def prepare(self) -> None:
        """Complain before anything runs about what cannot be written."""

    def write(self, frame: DataFrame, batch: int) -> None: ...

    def close(self) -> None:
        """Remove all but the committed output at the end of the run."""


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
        """Check that Spark finds the format; raise if not."""
        with in_one_line(f"sink '{self._sink}'", self._writing.format):
            check_format_exists(self._session, self._writing.format)

    def close(self) -> None:
        pass

    def write(self, frame: DataFrame, batch: int) -> None:
        more = {**self._more, self._version: str(batch)} if self._more else {}
        frame.write.format(self._writing.format).options(**self._writing.options, **more).mode("append").save()


def make_writers(session: SparkSession, spec: FusedSpec) -> dict[str, Writer]:
    """Return the writers by sink, and of dead letters if they are kept: each has checked that it can write."""
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
    """Return the writer that commits as the format declares."""
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
    """Return the writer of dead letters: to a topic, or a folder of JSON."""
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


STAGING = "_penstock"


# Files of a sink, written by Spark and put in place whole: a folder that any reader may read at any time.
#
# Spark writes a batch into a folder of its own below the sink's, whose name (it begins with `_`) readers ignore; then
# its files are renamed to their final place, under names made of the run and the batch. A batch that is run again
# removes what its first attempt left. Hadoop's file systems do this, so it works wherever Spark can write. No two
# processes share a staging folder: an executor that outlives its driver may still write to that driver's.


def plain_owner(owner: str) -> str:
    """Return an owner with only characters that are safe in a file name, as earlier versions wrote it; several owners
    may share it."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", owner)


def owner_in_names(owner: str) -> str:
    """An owner as names of files have it: no other owner is written like that."""
    return f"{plain_owner(owner)}-{sha256(owner.encode()).hexdigest()[:8]}"


def left_by(owners: Sequence[str], batch: int | None) -> re.Pattern[str]:
    """Return the beginning of the names of all files that some writers left of a batch; None: of any batch. All sinks
    of a run write the same batch at the same time, so files left of it under a shared name are no longer in use."""
    number = r"\d{9,}" if batch is None else f"{batch:09d}"
    return re.compile(rf"part-({'|'.join(map(re.escape, owners))})-{number}-")


def begin_like(owners: Sequence[str], batch: int | None) -> str:
    """Hadoop's pattern for the names of files that some writers left of a batch; None: of any batch."""
    number = "" if batch is None else f"{batch:09d}-"
    return f"part-{{{','.join(owners)}}}-{number}*"


def batches_in(listing: str, owners: Sequence[str]) -> set[int]:
    """The numbers of all batches of which some writers left a file that is named in a text."""
    return {int(number) for number in re.findall(rf"part-(?:{'|'.join(map(re.escape, owners))})-(\d{{9,}})-", listing)}


def in_pattern(path: str) -> str:
    """A path as a part of a pattern of Hadoop's, in which it stands for itself."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


class FileWriter:
    exactly_once = True

    def __init__(
        self,
        session: SparkSession,
        who: str,
        format: str,  # noqa: A002 - Spark's word
        options: Mapping[str, str],
        owner: str,
        *,
        replaces_all: bool,
    ) -> None:
        given = dict(options)
        self._who = who
        self._path = given.pop("path", "")
        if not self._path:
            raise BadInputError(f"{who}: format {format} needs options: path")
        self._partitioned_by = [name.strip() for name in given.pop("partitionBy", "").split(",") if name.strip()]
        self._format = format
        self._options = given
        self._owner = owner_in_names(owner)
        self._earlier_owner = plain_owner(owner)
        self._owners = (self._owner, self._earlier_owner)
        self._replaces_all = replaces_all
        self._process = secrets.token_hex(4)
        self._left: set[int] | None = None
        """Batches that were there when this process wrote its first; None: it wrote none yet."""
        self._last = -1
        """The last batch this process began to put in place."""
        self._files = HadoopFiles(session)

    def prepare(self) -> None:
        """Makes the folder, and clears what an attempt before left half done."""
        try:
            made = self._files.make_folder(self._path)
            for staging in (self._staging, self._staging_of(self._earlier_owner)):
                self._files.delete(staging)
            # the folder may be there and not ours to write to
            probe = f"{self._staging}-probe"
            self._files.touch(probe)
            self._files.delete(probe)
        except java_error() as error:
            reason = first_line(getattr(error, "java_exception", error))
            raise BadInputError(f"{self._who}: '{self._path}' cannot be written: {reason}") from error
        if not made:
            raise BadInputError(f"{self._who}: '{self._path}' cannot be written: no folder can be made there")

    def close(self) -> None:
        """Nothing of its own stays behind."""
        self._files.delete(self._staging)

    def write(self, frame: DataFrame, batch: int) -> None:
        staged = f"{self._staging}/{batch:09d}-{self._process}"
        writer = frame.write.format(self._format).options(**self._options).mode("overwrite")
        if self._partitioned_by:
            writer = writer.partitionBy(*self._partitioned_by)
        with in_one_line(self._who):
            writer.save(staged)
            self._put_in_place(staged, batch)

    @property
    def _staging(self) -> str:
        return self._staging_of(self._owner)

    def _staging_of(self, owner: str) -> str:
        return f"{self._path.rstrip('/')}/{STAGING}-{owner}"

    def _put_in_place(self, staged: str, batch: int) -> None:
        mine = f"part-{self._owner}-{batch:09d}-"
        if self._replaces_all:
            self._remove_earlier(None)
        elif self._may_be_there(batch):
            self._remove_earlier(batch)
        self._last = max(self._last, batch)
        for number, (path, folder, name) in enumerate(self._data_files(staged)):
            ending = name.partition(".")[2]
            target = f"{self._path.rstrip('/')}{folder}"
            self._files.make_folder(target)
            if not self._files.rename(path, target, f"{mine}{number:05d}.{ending}"):
                raise BadInputError(f"{self._who}: {path} could not be put in place")
        self._files.delete(staged)

    def _may_be_there(self, batch: int) -> bool:
        """Whether something of a batch may be left from an attempt before, of this process or of another. To look for
        every batch would take longer with every file the run has written: so the folder is looked at once."""
        if self._left is None:
            self._left = batches_in(self._files.text_of_matching(self._pattern(None)), self._owners)
        return batch in self._left or batch <= self._last

    def _remove_earlier(self, batch: int | None) -> None:
        """Remove files of this sink for a batch (None: for all), also under the names of earlier versions. Java looks
        for names with this beginning, some of which may be another program's; each is checked."""
        left = left_by(self._owners, batch)
        for path, name in self._files.matching(self._pattern(batch)):
            if left.match(name):
                self._files.delete(path)

    def _pattern(self, batch: int | None) -> str:
        names = begin_like(self._owners, batch)
        return "/".join([in_pattern(self._path.rstrip("/")), *["*"] * len(self._partitioned_by), names])

    def _data_files(self, staged: str) -> Iterator[tuple[str, str, str]]:
        """Every file Spark wrote, its folder below the sink's own (partitions), and its name."""
        for path, folder, name, size in self._files.files_below(staged):
            if not name.startswith(("_", ".")) and size:
                yield path, folder, name
