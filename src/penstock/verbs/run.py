"""`penstock.run(...)`: start a pipeline, wait for its end, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.connectors.log.address import absolute_place
from penstock.errors import BadInputError
from penstock.files import temporary_folder
from penstock.jobs.conducting import SEARCH_SECONDS, await_with_interrupts, check_search, search_highest
from penstock.jobs.fused import prepare
from penstock.jobs.fused_run import FusedOptions, start_fused
from penstock.jobs.resuming import name_to_resume_by
from penstock.jobs.sessions import SparkOptions, local_slots
from penstock.report.listener import Listener
from penstock.report.report import MOST_DEAD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.dataflow.load import Load
    from penstock.jobs.find import ModelsLike, RunnableLike
    from penstock.report.result import RunResult

WARM_UP_SECONDS = 5.0


def run(
    pipeline: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    slots: int | None = None,
    seconds: float | None = None,
    warm_up: float | None = None,
    models: ModelsLike = None,
    find_max: bool = False,
    low: float | None = None,
    high: float | None = None,
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
) -> RunResult:
    """Run a pipeline or a plan fused, as one Structured Streaming query, and report predicted beside measured.

    `rate` is tuples/s of a source that is the load generator (or a load as `Load` and `parse_load` know it); a plan has
    its own, and sources of Spark's need none. It runs for `seconds` past its first batch (past its start where nothing
    comes in), to the end of its input (`until_end`), or until it is interrupted: then what is under way is finished and
    reported. `warm_up` seconds of it do not count (5, or a quarter of fewer than 20). With `find_max` the highest
    stable rate is looked for (between `low` and `high`), every trial taking `seconds` (20).

    `master` is local, local[N], spark://..., yarn or k8s://..., "cluster" for the one of `cluster_up`; or give a
    `session` of your own, which is left as it was. With a `folder` the run can be resumed after its process died;
    `checkpoint` is where Spark keeps its own, a URI where executors are on other machines. A run in which more than
    `most_dead` of all tuples became dead letters is not stable. On a cluster every executor gets `executor_memory_mb`:
    that of the plan's slots, or 1024, where it is not given.
    """
    check_search(low, high, rate, search=find_max)
    listener = listener or Listener()
    options = run_options(
        pipeline,
        SEARCH_SECONDS if find_max and seconds is None else seconds,
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
        search=find_max,
        interval_ms=interval_ms,
        here=spark.is_on_this_machine,
    )
    if find_max:
        with temporary_folder("search") as scratch:
            return search_highest(job, options, spark, low, high, listener, scratch)
    return await_with_interrupts(start_fused(job, options, spark, listener))


def warm_up_of(wanted: float | None, seconds: float | None) -> float:
    """What of a run does not count: as wanted; else five seconds, or a quarter of a run that is short."""
    if wanted is not None:
        return wanted
    return WARM_UP_SECONDS if seconds is None else min(WARM_UP_SECONDS, seconds / 4)


def run_options(
    pipeline: RunnableLike,
    seconds: float | None,
    warm_up: float | None,
    *,
    until_end: bool,
    audit: bool | None,
    dead_letters: str | Path | None,
    most_dead: float,
    folder: str | Path | None,
    checkpoint: str | None,
) -> FusedOptions:
    if folder is not None and "://" in str(folder):
        raise BadInputError(f"folder=: expected a folder of this machine, found '{folder}'; use checkpoint= for a URI")
    return FusedOptions(
        seconds=seconds,
        warm_up=warm_up_of(warm_up, seconds),
        until_end=until_end,
        audit=audit,
        dead_letters=None if dead_letters is None else absolute_place(str(dead_letters)),
        most_dead=most_dead,
        folder=None if folder is None else Path(folder),
        checkpoint=checkpoint,
        given=name_to_resume_by(pipeline),
    )


def spark_options(
    master: str | None,
    session: Any,
    packages: Sequence[str],
    settings: Mapping[str, str] | None,
    secret_file: str | Path | None,
    executor_memory_mb: int | None = None,
) -> SparkOptions:
    if master is not None and session is not None:
        raise BadInputError("master= and session=: keep one; a session has its master")
    options = SparkOptions(
        master=master,
        packages=tuple(packages),
        settings=settings or {},
        secret_file=None if secret_file is None else Path(secret_file),
        session=session,
        executor_memory_mb=executor_memory_mb,
    )
    if executor_memory_mb is not None and (options.is_local or session is not None):
        raise BadInputError("executor_memory_mb=: only on a cluster; embedded Spark, and a session, have their memory")
    return options
