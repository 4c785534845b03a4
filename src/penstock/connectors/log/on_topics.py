"""A pipeline with other ends: the same operators, reading from a topic and writing into topics.

A built-in application reads numbers from the load generator and counts what reaches its sinks; this way it reads what
`penstock produce` sent, and leaves its answers where others read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.log.address import parse_topic
from penstock.dataflow.pipeline import Kind, Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.dataflow.pipeline import Operator


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
