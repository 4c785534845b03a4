"""Going on with a fused run whose process is gone."""

from __future__ import annotations

import os
from contextlib import chdir, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.dataflow.file import parse_pipeline
from penstock.dataflow.load import Load
from penstock.errors import BadInputError
from penstock.jobs.find import find_code_in
from penstock.jobs.fused import prepare
from penstock.jobs.fused_run import FusedOptions, start_fused

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from penstock.dataflow.pipeline import Pipeline
    from penstock.jobs.find import ModelsLike, RunnableLike
    from penstock.jobs.fused import FusedJob
    from penstock.jobs.handle import RunHandle
    from penstock.jobs.sessions import SparkOptions
    from penstock.report.listener import Listener
    from penstock.spark.fused.run_folder import FusedDescription


def name_to_resume_by(given: RunnableLike) -> str | None:
    """What names a pipeline or plan wherever the run is resumed: a file by its whole path. None: it is an object."""
    if not isinstance(given, str | Path):
        return None
    is_file = os.path.isfile(given)  # noqa: PTH113 - no error for odd names
    return str(Path(given).absolute()) if is_file else str(given)


def where_it_was_started(folder: Path) -> AbstractContextManager[None]:
    """Inside the block this process is in the folder the run was started in: paths of its pipeline, of files and of
    modules, are relative to that. Where it is gone, this one has to do."""
    from penstock.spark.fused.run_folder import FusedRunFolder  # noqa: PLC0415 - Spark loads only when it is used

    started_in = FusedRunFolder(folder).description().started_in
    return chdir(started_in) if started_in is not None and Path(started_in).is_dir() else nullcontext()


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

    its_folder = FusedRunFolder(folder.absolute())
    known = its_folder.description()
    if plan is None:
        job = _as_before(known, given if given is not None else _named(known, folder), slots, models)
    else:
        job = prepare(plan, _load(known), slots, models, search=False)
    options = FusedOptions(
        seconds=seconds,
        warm_up=warm_up,
        until_end=known.until_end,
        audit=known.audit,
        dead_letters=known.dead_letters,
        most_dead=known.most_dead,
        interval_ms=known.interval_ms,
        folder=folder,
        checkpoint=None if its_folder.is_own_checkpoint(known.checkpoint) else known.checkpoint,
        given=known.given if plan is None else name_to_resume_by(plan),
    )
    if spark.session is None:
        spark = replace(
            spark,
            master=spark.master or known.master,
            packages=spark.packages or known.packages,
            executor_memory_mb=spark.executor_memory_mb or (known.executor_memory_mb if plan is None else None),
            settings={**known.settings, **spark.settings},
        )
    return start_fused(job, options, spark, listener)


def _as_before(known: FusedDescription, pipeline: RunnableLike, slots: int | None, models: ModelsLike) -> FusedJob:
    """With the threads it had, over as many slots as are wanted now; and with batches as it had them, unless other
    slots or models say otherwise."""
    threads = {name: count * known.slots for name, count in known.threads.items()}
    job = prepare(pipeline, _load(known), slots or known.slots, models, search=False, threads=threads)
    if models is None and job.slots == known.slots:
        return replace(job, most_rows=known.most_rows, batch_seconds=known.batch_seconds)
    return job


def _load(known: FusedDescription) -> Load | None:
    return None if known.load is None else Load.of_document(known.load)


def _named(known: FusedDescription, folder: Path) -> RunnableLike:
    """The pipeline or plan by the name it was given: code that lies beside its file is found by that. Without a name
    code is found where the run was started."""
    if known.given is not None:
        return known.given
    if known.definition is None:
        raise BadInputError(
            f"{folder}: the code of pipeline '{known.pipeline}' exists only in Python; go on with "
            f"penstock.start(pipeline, folder='{folder}')"
        )
    if known.started_in is not None:
        find_code_in(Path(known.started_in))
    return parse_pipeline(known.definition, f"{folder}: definition")
