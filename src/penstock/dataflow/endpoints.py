"""Where the tuples of a source come from and those of a sink go, in Spark's words, however the pipeline said it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from penstock.dataflow.pipeline import FORMAT_OF_ENDING, Kind
from penstock.dataflow.topic_options import well_spelled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.pipeline import Operator, OutputMode, Pipeline, Watermark

LOAD = "load"
"""The format of a source that emits numbered tuples at the rate of the run."""
COUNT = "count"
"""The format of a sink that only counts what reaches it."""

FILE_FORMATS = ("json", "csv", "parquet", "orc", "text", "avro", "xml")
ABOUT_THE_FOLDER = frozenset(
    {"path", "maxFilesPerTrigger", "maxBytesPerTrigger", "maxFileAge", "latestFirst", "pathGlobFilter", "cleanSource"}
    | {"recursiveFileLookup", "sourceArchiveDir", "modifiedBefore", "modifiedAfter", "basePath"}
)
"""Options of files that say which there are, not what is in them."""
"""What Spark reads and writes as files in a folder."""

_OLD_NAMES = {"jsonl": "json"}
_TOPICS = ("kafka", "log")


@dataclass(frozen=True, slots=True)
class Reading:
    """What `readStream` is told. `of_the_user`: a function makes the frame, nothing else is said."""

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
    """What `writeStream` is told."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    mode: OutputMode | None = None
    of_the_user: bool = False


def reading_of(operator: Operator) -> Reading:
    """How a source reads."""
    if operator.frame is not None or operator.frame_code is not None:
        return Reading("frame", {}, None, operator.watermark, of_the_user=True)
    options = _texts(operator.options)
    if operator.files is None:
        name = _OLD_NAMES.get(operator.format or LOAD, operator.format or LOAD)
        options = well_spelled(options, f"source '{operator.name}'") if name in _TOPICS else options
        return Reading(name, options, operator.schema_, operator.watermark)
    given = operator.format or FORMAT_OF_ENDING[PurePath(operator.files).suffix.lower()]
    name = _OLD_NAMES.get(given, given)
    header = {"header": "true"} if name == "csv" else {}
    return Reading(name, {**header, **options, "path": operator.files}, operator.schema_, operator.watermark)


def writing_of(operator: Operator) -> Writing:
    """How a sink writes."""
    if operator.write is not None or operator.write_code is not None:
        return Writing("write", {}, operator.mode, of_the_user=True)
    options = _texts(operator.options)
    if operator.parquet is not None:
        return Writing("parquet", {**options, "path": operator.parquet}, operator.mode)
    options = well_spelled(options, f"sink '{operator.name}'") if operator.format in _TOPICS else options
    return Writing(operator.format or COUNT, options, operator.mode)


def file_end(operator: Operator) -> Reading | Writing | None:
    """How a source or sink that is files is read or written, without where they are; None: it is something else."""
    if operator.kind is Kind.OPERATOR:
        return None
    end: Reading | Writing = reading_of(operator) if operator.kind is Kind.SOURCE else writing_of(operator)
    if end.format not in FILE_FORMATS:
        return None
    return replace(end, options={name: value for name, value in end.options.items() if name not in ABOUT_THE_FOLDER})


def is_driven_by_load(pipeline: Pipeline) -> bool:
    """Whether a rate means something: some source emits what the run asks for."""
    return any(reading_of(operator).is_load for operator in pipeline.operators.values() if operator.kind is Kind.SOURCE)


def _texts(options: Mapping[str, str | bool | int | float]) -> dict[str, str]:
    """Spark takes options as text; its booleans are small letters."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}
