"""What is to be run, with other ends: reading from a topic and writing to topics, whatever its own sources and sinks
are. A built-in application reads the numbers of the load generator; this way it reads what `penstock dev produce` sent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.connectors import topic_address as on_topics
from penstock.connectors.topic_address import LogAddress, topics_there
from penstock.dataflow.code import pipeline_document
from penstock.dataflow.formats import reading_of, writing_of
from penstock.dataflow.pipeline import Kind, Pipeline
from penstock.inputs.finders import RunnableLike, find_code_beside, runnable
from penstock.planning.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.dataflow.pipeline import Operator
    from penstock.planning.files import SavedPlan


def reading_from(pipeline: RunnableLike, topic: str) -> Pipeline | Plan | SavedPlan:
    """A pipeline or plan whose sources read the topic at `kafka:HOST:PORT/TOPIC` or `log:FOLDER/TOPIC`, from its
    beginning; it must be there."""
    changed = _with_ends(pipeline, Kind.SOURCE, lambda own_ends: on_topics.reading_from(own_ends, topic))
    for operator in _of_kind(changed, Kind.SOURCE):
        reading = reading_of(operator)
        topics_there(LogAddress(reading.format, reading.options), f"source '{operator.name}'")
    return changed


def writing_to(pipeline: RunnableLike, topic: str) -> Pipeline | Plan | SavedPlan:
    """A pipeline or plan whose sinks write to the topic; one of several to TOPIC-SINK. Topics that are not there are
    made, with one partition each."""
    changed = _with_ends(pipeline, Kind.SINK, lambda own_ends: on_topics.writing_to(own_ends, topic))
    for operator in _of_kind(changed, Kind.SINK):
        writing = writing_of(operator)
        _make_topic(LogAddress(writing.format, writing.options), writing.options["topic"])
    return changed


def _make_topic(address: LogAddress, topic: str) -> None:
    log = address.open()
    try:
        log.create(topic, 1)
    finally:
        log.close()


def _of_kind(given: RunnableLike, kind: Kind) -> list[Operator]:
    pipeline, _ = runnable(given)
    return [operator for operator in pipeline.operators.values() if operator.kind is kind]


def _with_ends(given: RunnableLike, kind: Kind, change: Callable[[Pipeline], Pipeline]) -> Pipeline | Plan | SavedPlan:
    """A plan keeps its placement. What was a file is none any more: code beside it has to be found from now on."""
    find_code_beside(given)
    for operator in _of_kind(given, kind):
        functions = (operator.frame, operator.frame_code, operator.write, operator.write_code)
        if any(function is not None for function in (*functions, operator.run, operator.logic)):
            raise BadInputError(f"{kind} '{operator.name}' has code of its own, and cannot be a topic instead")
    pipeline, saved = runnable(given)
    changed = change(pipeline)
    if isinstance(given, Plan):
        return replace(given, pipeline=changed)
    return changed if saved is None else saved.model_copy(update={"definition": pipeline_document(changed)})
