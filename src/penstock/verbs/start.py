"""`penstock.start(...)`: a pipeline that runs from now on, as an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.jobs.fused import prepare
from penstock.jobs.fused_run import start_fused
from penstock.jobs.sessions import local_slots
from penstock.report.listener import Listener
from penstock.report.report import MOST_DEAD
from penstock.verbs.run import run_options, spark_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.dataflow.load import Load
    from penstock.jobs.find import ModelsLike, RunnableLike
    from penstock.jobs.handle import RunHandle


def start(
    pipeline: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    slots: int | None = None,
    seconds: float | None = None,
    warm_up: float | None = None,
    models: ModelsLike = None,
    until_end: bool = False,
    audit: bool | None = None,
    dead_letters: str | Path | None = None,
    most_dead: float = MOST_DEAD,
    interval_ms: int = 100,
    folder: str | Path | None = None,
    checkpoint: str | None = None,
    master: str | None = None,
    session: Any = None,
    packages: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    secret_file: str | Path | None = None,
    executor_memory_mb: int | None = None,
    listener: Listener | None = None,
) -> RunHandle:
    """As `penstock.run`, but returns at once with a handle: `status`, `progress`, `rescale(n)`, `drain()`, `stop()`,
    `await_end()`. A `folder` in which this pipeline ran before is gone on with, from what was committed there."""
    options = run_options(
        pipeline,
        seconds,
        warm_up,
        until_end=until_end,
        audit=audit,
        dead_letters=dead_letters,
        most_dead=most_dead,
        folder=folder,
        checkpoint=checkpoint,
    )
    spark = spark_options(master, session, packages, settings, secret_file, executor_memory_mb)
    job = prepare(
        pipeline,
        rate,
        slots or local_slots(master),
        models,
        search=False,
        interval_ms=interval_ms,
        here=spark.is_on_this_machine,
    )
    return start_fused(job, options, spark, listener or Listener())
