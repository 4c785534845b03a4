"""`penstock.run(...)`: start a pipeline, wait for its end, report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, RunError
from penstock.base.files import temporary_folder, write_text
from penstock.connectors.topic_address import absolute_place
from penstock.dataflow.load import Load
from penstock.engines.fused.foreground import SEARCH_SECONDS, await_with_interrupts, check_search, search_highest
from penstock.engines.fused.launcher import (
    FusedOptions,
    name_to_resume_by,
    resume_fused,
    start_fused,
    where_it_was_started,
)
from penstock.engines.fused.preparation import prepare
from penstock.engines.placed.placed_run import (
    PATIENCE_SECONDS,
    RunOptions,
    conducted,
    fresh_folder,
    searched,
    with_packages,
)
from penstock.engines.placed.placed_run import start_placed as started
from penstock.engines.placed.preparation import DEFAULT_PLACED_SEGMENTER, prepare_placed
from penstock.engines.run_index import is_fused, placed_or_found
from penstock.inputs.finders import runnable
from penstock.modelling.library import ModelLibrary
from penstock.report.listener import Listener
from penstock.report.report import MOST_DEAD
from penstock.runs.environment import SparkOptions, local_slots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.dataflow.pipeline import Pipeline
    from penstock.engines.placed.handle import PlacedHandle
    from penstock.engines.placed.run_folder import RunFolder
    from penstock.inputs.finders import ModelsLike, RunnableLike
    from penstock.planning.files import SavedPlan
    from penstock.planning.prediction.placement import Routing
    from penstock.report.result import PlacedResult, RunResult
    from penstock.runs.handle import RunHandle


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


# `penstock.start(...)`: a pipeline that runs from now on, as an object.


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


# `penstock.run_placed(...)`: a plan on a cluster, every operator on the slot the plan names.


def run_placed(
    plan: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    master: str | None = None,
    secret_file: str | Path | None = None,
    seconds: float = 20.0,
    warm_up: float = 5.0,
    find_max: bool = False,
    low: float | None = None,
    high: float | None = None,
    models: ModelsLike = None,
    routing: Routing | str | None = None,
    segmenter: str | None = None,
    folder: str | Path | None = None,
    given: Pipeline | None = None,
    dead_letters: str | Path | None = None,
    at_least_once: bool = False,
    tls: str | Path | None = None,
    packages: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    session: Any = None,
    listener: Listener | None = None,
) -> PlacedResult:
    """Run a plan with every operator on the slot the plan names, on a standalone cluster.

    `master` is its address, and `secret_file` holds what it asks for; None means the one of `penstock cluster up`.
    What `segmenter` joins and the plan puts on the same slots runs as one. `folder` is where the run keeps its commits
    and what it needs to be resumed: on several machines, one they all share, or a URI such as s3://bucket/run. A sink
    that cannot commit by epoch is refused, or with `at_least_once` may hold an epoch twice after a death. With `tls`, a
    file with a certificate and its key, the run's processes talk to each other by TLS. `packages` and `settings` are
    Spark's, for what sinks need. With `find_max` the highest stable rate is
    looked for, between `low` and `high`; every trial is a run of `seconds` in a folder of its own. A `session`
    of `placed_session` (`penstock.engines.placed.placed_run`) is used and left as it was: runs that share it find
    executors warm.
    """
    check_search(low, high, rate, search=find_max)
    job = prepare_placed(plan, rate, models, routing, given, segmenter or DEFAULT_PLACED_SEGMENTER)
    from penstock.engines.placed.run_folder import is_run  # noqa: PLC0415 - psutil belongs to the extra

    place = folder if folder is not None else fresh_folder(job.pipeline.name)
    if is_run(place):
        raise BadInputError(f"{place}: a run was started here before; resume it (penstock resume), or name another")
    options = RunOptions(
        seconds,
        warm_up,
        models,
        given,
        None if dead_letters is None else Path(dead_letters),
        listener or Listener(),
        None if secret_file is None else Path(secret_file),
        session,
        at_least_once=at_least_once,
        tls=None if tls is None else Path(tls),
        settings=with_packages(packages, settings),
    )
    if find_max:
        return searched(job, place, master, options, low, high)
    return conducted(job, place, master, options)


# `penstock.start_placed(...)`: a plan that runs on a cluster from now on, as an object.


ONTO = "onto.json"
"""Where a plan that is no file is put down, for the run to change to."""


def start_placed(
    plan: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    master: str | None = None,
    secret_file: str | Path | None = None,
    seconds: float | None = None,
    warm_up: float = 5.0,
    models: ModelsLike = None,
    routing: Routing | str | None = None,
    segmenter: str | None = None,
    folder: str | Path | None = None,
    given: Pipeline | None = None,
    dead_letters: str | Path | None = None,
    at_least_once: bool = False,
    tls: str | Path | None = None,
    packages: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    session: Any = None,
    listener: Listener | None = None,
) -> PlacedHandle:
    """As `penstock.run_placed`, but returns at once with a handle: `status`, `progress`, `hold()`, `resume(plan)`,
    `rescale(slots)`, `drain()`, `stop()`, `await_end()`. Without `seconds` it goes on until it is told to end.

    A `folder` in which a run was started before is gone on with, from its last commit: under the load it had, and by
    `plan` if that is another than it had.
    """
    from penstock.engines.placed.run_folder import RunFolder, is_run  # noqa: PLC0415 - psutil belongs to the extra

    options = RunOptions(
        seconds,
        warm_up,
        models,
        given,
        None if dead_letters is None else Path(dead_letters),
        listener or Listener(),
        None if secret_file is None else Path(secret_file),
        session,
        at_least_once=at_least_once,
        tls=None if tls is None else Path(tls),
        settings=with_packages(packages, settings),
    )
    if folder is None or not is_run(folder):
        job = prepare_placed(plan, rate, models, routing, given, segmenter or DEFAULT_PLACED_SEGMENTER)
        place = folder if folder is not None else fresh_folder(job.pipeline.name)
        return started(job, place, master, options)
    run = RunFolder(folder)
    described = run.description
    options = replace(options, settings={**described.settings, **options.settings})
    current, segments = run.plan()
    load = Load.of_document(described.load)
    job = prepare_placed(current, load, models, described.routing, given, described.segmenter, segments)
    onto = _other(plan, current, run)
    return started(job, run.place, master or described.master, options, going_on=True, onto=onto)


def _other(plan: RunnableLike, current: SavedPlan, run: RunFolder) -> Path | None:
    """The file of a plan that is another than the run has; None where it is the same."""
    _, saved = runnable(plan)
    if saved is None:
        raise BadInputError("placed execution needs a plan, not a pipeline: make one with `plan`")
    if saved == current:
        return None
    if isinstance(plan, str | Path):
        return Path(plan)
    if "://" in run.place:
        raise BadInputError(f"plan=: expected a file, where {run.place} is no folder to put it down in")
    write_text(run.path / ONTO, saved.model_dump_json() + "\n")
    return run.path / ONTO


# `penstock.resume(...)`: a run goes on, where it was or onto another plan.


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run that goes on. `seconds`: until it did, its first tuple at its end where it had waited."""

    seconds: float
    result: PlacedResult | RunResult | None
    """Of a run that was conducted from here; None: another process conducts it."""


def resume(
    folder: str | Path,
    plan: str | Path | None = None,
    *,
    master: str | None = None,
    secret_file: str | Path | None = None,
    slots: int | None = None,
    seconds: float | None = None,
    warm_up: float | None = None,
    models: ModelsLike = None,
    given: Pipeline | None = None,
    dead_letters: str | Path | None = None,
    patience: float = PATIENCE_SECONDS,
    listener: Listener | None = None,
) -> Resumed:
    """Go on with a run, onto another plan where one is given.

    A run that waits, drained, is told to; the process that conducts it will report. A run that nobody conducts (it was
    stopped, or its process died) is conducted from here, for `seconds` (a placed one for 20, a fused one until it is
    interrupted, where nothing is said); a fused one may get other `slots`. `folder` is its folder, or the name that
    `runs` shows. `secret_file` holds the secret of the cluster
    at `master`; that of `penstock cluster up` is known. A fused run goes on in the folder it was started in, to which
    paths of its pipeline are relative. `dead_letters` is another place for them; a fused run must have had one.
    """
    from penstock.engines.placed.run_folder import RunFolder  # noqa: PLC0415 - psutil belongs to the extra

    where = placed_or_found(folder)
    if isinstance(where, Path) and is_fused(where):
        where = where.resolve()
        onto, measured = _absolute(plan), models if isinstance(models, ModelLibrary) else _absolute(models)
        spark = spark_options(master, None, (), None, _absolute(secret_file))
        kept_in = None if dead_letters is None else absolute_place(str(dead_letters))
        with where_it_was_started(where):
            watch = Stopwatch()
            handle = resume_fused(
                where,
                onto,
                slots=slots,
                seconds=seconds,
                warm_up=warm_up_of(warm_up, seconds),
                models=measured,
                given=given,
                dead_letters=kept_in,
                spark=spark,
                listener=listener or Listener(),
            )
            started = watch.seconds()
            return Resumed(started, await_with_interrupts(handle))
    run = RunFolder(where)
    description = run.description
    other = None if plan is None else Path(plan)
    if run.held_by is not None:
        return Resumed(float(run.ask("resume", patience, other)["seconds"]), None)
    current, segments = run.plan()
    job = prepare_placed(
        current, Load.of_document(description.load), models, description.routing, given, description.segmenter, segments
    )
    letters = dead_letters or description.dead_letters
    length = 20.0 if seconds is None else seconds
    options = RunOptions(
        length,
        warm_up_of(warm_up, length),
        models,
        given,
        None if letters is None else Path(letters),
        listener or Listener(),
        None if secret_file is None else Path(secret_file),
        at_least_once=description.at_least_once,
        tls=None if description.tls is None else Path(description.tls),
        settings=description.settings,
    )
    result = conducted(job, run.place, master or description.master, options, going_on=True, onto=other)
    return Resumed(result.start_seconds, result)


def _absolute(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path).absolute()


# `penstock.drain(...)`: a run finishes what is in flight and waits, or ends.


def drain(folder: str | Path, *, stop: bool = False, patience: float = PATIENCE_SECONDS) -> float:
    """Ask a run to stop its sources and finish what is in flight; it then waits to be resumed, or ends (`stop`).

    A fused run ends with that; `resume` goes on with it. The seconds that took.
    """
    from penstock.engines.placed.run_folder import RunFolder  # noqa: PLC0415 - psutil belongs to the extra

    where = placed_or_found(folder)
    if isinstance(where, Path) and is_fused(where):
        return _drain_fused(where, patience)
    run = RunFolder(where)
    name = run.description.pipeline
    if run.held_by is None:
        raise RunError(f"{run.place}: nothing runs '{name}' now; penstock resume goes on with it")
    return float(run.ask("stop" if stop else "drain", patience)["seconds"])


def _drain_fused(where: Path, patience: float) -> float:
    from penstock.runs.run_folder import FusedRunFolder  # noqa: PLC0415 - psutil belongs to the extra

    run, watch = FusedRunFolder(where), Stopwatch()
    run.ask("drain", patience)
    while run.is_conducted:
        if watch.seconds() > patience:
            raise RunError(f"{where}: did not end within {patience:g} s of being drained")
        pause(0.1)
    return watch.seconds()
