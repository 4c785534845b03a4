"""What a producer is told, as a file says it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from penstock.dataflow.secret_options import check_no_secret
from penstock.files import Amount, Count, Name, Positive, Versioned, check, read_document

if TYPE_CHECKING:
    from typing import Any

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
    """Of data `batches`: the part of the batches that are events."""
    batch_length: Count = 80
    """Of data `batches`: messages of one."""

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
