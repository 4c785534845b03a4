"""`penstock.run(...)`: start a pipeline, wait for its end, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.connectors.log.address import absolute_place
from penstock.errors import BadInputError
from penstock.files import temporary_folder
from penstock.jobs.conducting import SEARCH_SECONDS, await_with_interrupts, search_highest
from penstock.jobs.fused import check_search, prepare
from penstock.jobs.fused_run import FusedOptions, start_fused
from penstock.jobs.sessions import SparkOptions, local_slots
from penstock.report.listener import Listener

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
    interval_ms: int = 100,
    folder: str | Path | None = None,
    checkpoint: str | None = None,
    master: str | None = None,
    session: Any = None,
    packages: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    secret_file: str | Path | None = None,
    listener: Listener | None = None,
) -> RunResult:
    """Run a pipeline or a plan fused, as one Structured Streaming query, and report predicted beside measured.

    `rate` is tuples/s of a source that is the load generator (or a load as `Load` and `parse_load` know it); a plan has
    its own, and sources of Spark's need none. It runs for `seconds` past its first batch (past its start where nothing
    comes in), to the end of its input (`until_end`), or until it is interrupted: then what is under way is finished and
    reported. `warm_up` seconds of it do not count (5, or a quarter of fewer than 20). With `find_max` the highest
    stable rate is looked for (between `low` and `high`), every trial taking `seconds` (20).

    `master` is local, local[N], spark://..., yarn or k8s://..., "cluster" for the one of `cluster_up`; or give a
    `session` of your own, which is left as it was. With a `folder` the run can be resumed after its process died.
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
        interval_ms=interval_ms,
        folder=folder,
        checkpoint=checkpoint,
    )
    spark = spark_options(master, session, packages, settings, secret_file)
    job = prepare(pipeline, rate, slots or local_slots(master), models, search=find_max)
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
    interval_ms: int,
    folder: str | Path | None,
    checkpoint: str | None,
) -> FusedOptions:
    return FusedOptions(
        seconds=seconds,
        warm_up=warm_up_of(warm_up, seconds),
        until_end=until_end,
        audit=audit,
        dead_letters=None if dead_letters is None else absolute_place(str(dead_letters)),
        interval_ms=interval_ms,
        folder=None if folder is None else Path(folder),
        checkpoint=checkpoint,
        given=str(pipeline) if isinstance(pipeline, str | Path) else None,
    )


def spark_options(
    master: str | None,
    session: Any,
    packages: Sequence[str],
    settings: Mapping[str, str] | None,
    secret_file: str | Path | None,
) -> SparkOptions:
    if master is not None and session is not None:
        raise BadInputError("master= and session=: keep one; a session has its master")
    return SparkOptions(
        master=master,
        packages=tuple(packages),
        settings=settings or {},
        secret_file=None if secret_file is None else Path(secret_file),
        session=session,
    )
