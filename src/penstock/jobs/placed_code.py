"""What a placed run executes: code and schemas of its operators, where its sinks write, which topics it reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.jobs.find import logic_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.jobs.placed_application import PlacedApplication
    from penstock.spark.placed.laying_out import Code


def placed_code(
    application: PlacedApplication, session: Any, launcher: Any, feed: Any, environment: Mapping[str, str]
) -> Code:
    """Of the operators, with what they send; of sinks and sources that are topics, with the names of their run."""
    from penstock.spark.fused.schemas import arrow_of, struct_of  # noqa: PLC0415 - Spark loads only when it is used
    from penstock.spark.placed.endpoints import named_sinks, topic_shares  # noqa: PLC0415
    from penstock.spark.placed.execution import learn_schemas  # noqa: PLC0415
    from penstock.spark.placed.laying_out import Code, whole_pipeline  # noqa: PLC0415
    from penstock.spark.placed.plain_schemas import plain_schema  # noqa: PLC0415

    pipeline = application.job.pipeline
    logic = {**logic_of(pipeline), **feed.logic}
    declared = {name: own.schema for name, own in logic.items() if own.schema is not None}
    known = {
        name: plain_schema(words) or arrow_of(struct_of(words, f"operator '{name}'"))
        for name, words in declared.items()
    }
    sinks = named_sinks(application.sinks, application.folder.description.run, application.folder.place)
    topics = topic_shares(pipeline)
    services = tuple(environment.items())
    code = Code(pipeline, logic, known, sinks, application.shown, services, audit=not topics, topics=topics)
    whole = whole_pipeline(code)
    slot = next(iter(application.threads))
    learned = learn_schemas(session, launcher, slot, whole.steps, whole.sources, feed.tuples)
    return replace(code, schemas={**learned, **known})
