"""The endpoints of sources and sinks, in Spark's words, for every way a pipeline can declare them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.base.text import is_whole
from penstock.dataflow.formats import COUNT, LOAD, SinkCommit, find_format, format_of_ending
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.secrets import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.pipeline import Operator, OutputMode, Pipeline, Watermark


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
        name = small if small.startswith(PREFIX) else _SPELLED.get(small, option)
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


ABOUT_THE_FOLDER = frozenset(
    {"path", "maxFilesPerTrigger", "maxBytesPerTrigger", "maxFileAge", "latestFirst", "pathGlobFilter", "cleanSource"}
    | {"recursiveFileLookup", "sourceArchiveDir", "modifiedBefore", "modifiedAfter", "basePath"}
)
"""Options of files that select files and do not describe their contents."""


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


def file_end(operator: Operator) -> Reading | Writing | None:
    """Return how a source or sink of files reads or writes, without the place of the files; None if it is not files."""
    if operator.kind is Kind.OPERATOR:
        return None
    end: Reading | Writing = reading_of(operator) if operator.kind is Kind.SOURCE else writing_of(operator)
    if not find_format(end.format).is_files:
        return None
    return replace(end, options={name: value for name, value in end.options.items() if name not in ABOUT_THE_FOLDER})


def is_driven_by_load(pipeline: Pipeline) -> bool:
    """Whether a rate means something: some source emits what the run asks for."""
    return any(reading_of(operator).is_load for operator in pipeline.operators.values() if operator.kind is Kind.SOURCE)


def _texts(options: Mapping[str, str | bool | int | float]) -> dict[str, str]:
    """Spark takes options as text; its booleans are small letters."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}
