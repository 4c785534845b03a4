"""Logs and topics by address, as people write them: `log:FOLDER` and `kafka:HOST:PORT`, with `/TOPIC` behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.connectors.log_contract import LogError, check_topic
from penstock.dataflow.formats import find_format, log_addresses, log_formats
from penstock.dataflow.pipeline import Kind, Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.connectors.log_contract import TopicLog
    from penstock.dataflow.pipeline import Operator


@dataclass(frozen=True)
class LogAddress:
    """A log by its format and the options of a source or sink."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> TopicLog:
        form = find_format(self.format)
        if form.python_package is not None and find_spec(form.python_package[0]) is None:
            module, install = form.python_package
            raise BadInputError(f"format {form.name} needs {module}: {install}")
        module, _, function = form.log.partition(":")
        log: TopicLog = getattr(import_module(module), function)(self.options)
        return log

    def __str__(self) -> str:
        return f"{self.format}:{self.options.get(find_format(self.format).address_option, '?')}"


def is_address(text: str) -> bool:
    return ":" in text and text.partition(":")[0] in log_formats()


def absolute_place(text: str) -> str:
    """A topic as it is, and the path of a folder wherever it is looked at from."""
    return text if is_address(text) else str(Path(text).absolute())


def parse_log(text: str) -> LogAddress:
    """`log:FOLDER`, `kafka:HOST:PORT[,HOST:PORT...]`, or another log that is declared as a format."""
    kind, _, where = text.partition(":")
    if not is_address(text) or not where.strip("/"):
        raise BadInputError(f"'{text[:80]}': expected {log_addresses()}")
    where = where.removeprefix("//")
    form = find_format(kind)
    return LogAddress(kind, {form.address_option: str(Path(where).absolute()) if form.is_path else where})


def parse_topic(text: str) -> tuple[LogAddress, str]:
    """`log:FOLDER/TOPIC` or `kafka:HOST:PORT/TOPIC`."""
    log, slash, topic = text.rpartition("/")
    if not slash or not is_address(log):
        raise BadInputError(f"'{text[:80]}': expected {log_addresses('/TOPIC')}")
    return parse_log(log), check_topic(topic)


def subscribed(options: Mapping[str, str]) -> tuple[str, ...]:
    """The topics that a source names."""
    return tuple(check_topic(name.strip()) for name in options.get("subscribe", "").split(",") if name.strip())


def topics_there(address: LogAddress, who: str) -> tuple[str, ...]:
    """Return the topics that a source names. A missing broker or topic is an error before anything runs."""
    topics = subscribed(address.options)
    if not topics:
        raise BadInputError(f"{who}: expected the option subscribe: TOPIC[,TOPIC...]")
    log = address.open()
    try:
        for topic in topics:
            log.spans(topic)
    except LogError as error:
        raise BadInputError(f"{who}: {error}") from error
    finally:
        log.close()
    return topics


# A pipeline with other ends: the same operators, reading from a topic and writing into topics.
#
# A built-in application reads numbers from the load generator and counts what reaches its sinks; this way it reads what
# `penstock dev produce` sent, and leaves its answers where others read them.


def reading_from(pipeline: Pipeline, topic: str) -> Pipeline:
    """Every source reads the topic at `kafka:HOST:PORT/TOPIC` or `log:FOLDER/TOPIC`, from its beginning."""
    address, name = parse_topic(topic)
    options = {**address.options, "subscribe": name}
    return _with(pipeline, Kind.SOURCE, lambda operator: {"format": address.format, "options": options})


def writing_to(pipeline: Pipeline, topic: str) -> Pipeline:
    """Every sink writes to the topic; one of several to TOPIC-SINK."""
    address, name = parse_topic(topic)
    sinks = [operator for operator in pipeline.operators.values() if operator.kind is Kind.SINK]

    def into(operator: Operator) -> dict[str, object]:
        own = name if len(sinks) == 1 else f"{name}-{operator.name}"
        return {"format": address.format, "options": {**address.options, "topic": own}}

    return _with(pipeline, Kind.SINK, into)


def _with(pipeline: Pipeline, kind: Kind, more: Callable[[Operator], Mapping[str, object]]) -> Pipeline:
    operators = [
        operator.model_copy(update={"files": None, "parquet": None, **more(operator)})
        if operator.kind is kind
        else operator
        for operator in pipeline.operators.values()
    ]
    return Pipeline.of(pipeline.name, operators, pipeline.streams, pipeline.constraints)
