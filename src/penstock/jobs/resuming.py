"""Going on with a fused run whose process is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.dataflow.file import parse_pipeline
from penstock.dataflow.load import Load
from penstock.errors import BadInputError
from penstock.jobs.find import find_pipeline
from penstock.jobs.fused import prepare
from penstock.jobs.fused_run import FusedOptions, start_fused

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataflow.pipeline import Pipeline
    from penstock.jobs.find import ModelsLike, RunnableLike
    from penstock.jobs.handle import RunHandle
    from penstock.jobs.sessions import SparkOptions
    from penstock.report.listener import Listener


def resume_fused(
    folder: Path,
    plan: RunnableLike | None,
    *,
    slots: int | None,
    seconds: float | None,
    warm_up: float,
    models: ModelsLike,
    given: Pipeline | None,
    spark: SparkOptions,
    listener: Listener,
) -> RunHandle:
    """From the last commit, with the options it was started with; another plan brings other threads and slots."""
    from penstock.spark.fused.run_folder import FusedRunFolder  # noqa: PLC0415 - Spark loads only when it is used

    known = FusedRunFolder(folder).description()
    pipeline = plan if plan is not None else given if given is not None else _named(known, folder)
    load = None if known.load is None else Load.of_document(known.load)
    job = prepare(pipeline, load, slots or (known.slots if plan is None else None), models, search=False)
    options = FusedOptions(
        seconds=seconds,
        warm_up=warm_up,
        until_end=known.until_end,
        audit=known.audit,
        dead_letters=known.dead_letters,
        interval_ms=known.interval_ms,
        folder=folder,
        checkpoint=known.checkpoint,
        given=known.given,
    )
    if spark.session is None:
        spark = replace(
            spark,
            master=spark.master or known.master,
            packages=spark.packages or known.packages,
            settings={**known.settings, **spark.settings},
        )
    return start_fused(job, options, spark, listener)


def _named(known: Any, folder: Path) -> Pipeline:
    if known.given is not None:
        return find_pipeline(known.given)
    if known.definition is None:
        raise BadInputError(
            f"{folder}: the code of pipeline '{known.pipeline}' exists only in Python; go on with "
            f"penstock.start(pipeline, folder='{folder}')"
        )
    return parse_pipeline(known.definition, f"{folder}: definition")
