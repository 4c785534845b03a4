"""`penstock.run(...)`: start a pipeline, wait for its end, report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, RunError
from penstock.base.files import temporary_folder, write_text
from penstock.base.former_names import report_former_name
from penstock.connectors.topic_address import absolute_place
from penstock.engines.fused.foreground import await_with_interrupts, search_highest
from penstock.engines.fused.launcher import (
    name_to_resume_by,
    resume_fused,
    start_fused,
    where_it_was_started,
)
from penstock.engines.fused.preparation import prepare
from penstock.engines.placed.placed_run import PATIENCE_SECONDS, conducted, fresh_folder, searched
from penstock.engines.placed.placed_run import start_placed as started
from penstock.engines.placed.preparation import prepare_placed
from penstock.engines.run_index import is_fused, placed_or_found
from penstock.inputs.finders import find_code_beside, runnable
from penstock.report.listener import Listener
from penstock.runs.config import AUTO, FUSED, PLACED, Appears, RunConfig, options, takes_options

if TYPE_CHECKING:
    from penstock.dataflow.load import Load
    from penstock.dataflow.pipeline import Pipeline
    from penstock.engines.placed.handle import PlacedHandle
    from penstock.engines.placed.preparation import PlacedJob
    from penstock.engines.placed.run_folder import RunFolder
    from penstock.inputs.finders import RunnableLike
    from penstock.planning.files import SavedPlan
    from penstock.report.result import PlacedResult, RunResult
    from penstock.runs.handle import RunHandle
    from penstock.runs.keywords import ResumeKeywords, RunKeywords


@overload
def run(
    pipeline: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    engine: Literal["fused"] = "fused",
    given: Pipeline | None = None,
    listener: Listener | None = None,
    **keywords: Unpack[RunKeywords],
) -> RunResult: ...


@overload
def run(
    pipeline: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    engine: Literal["placed"],
    given: Pipeline | None = None,
    listener: Listener | None = None,
    **keywords: Unpack[RunKeywords],
) -> PlacedResult: ...


@overload
def run(
    pipeline: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    engine: str,
    given: Pipeline | None = None,
    listener: Listener | None = None,
    **keywords: Unpack[RunKeywords],
) -> RunResult | PlacedResult: ...


@takes_options(Appears.PYTHON)
def run(
    pipeline: RunnableLike,
    rate: Any = None,
    *,
    engine: str = FUSED,
    given: Pipeline | None = None,
    listener: Listener | None = None,
    **keywords: Any,
) -> Any:
    """Run a pipeline or a plan, and report predicted beside measured. docs/options.md describes all options.

    It runs for `seconds` after its first batch, to the end of its input (`until_end`), or until it is interrupted: then
    the batch under way is finished and reported. With `find_max` the highest stable rate is searched for, between `low`
    and `high`. With a `folder` the run can be resumed after its process died. `given` is the pipeline of a plan whose
    code exists only in Python.
    """
    config = _config(pipeline, {"rate": rate, "engine": engine, **keywords})
    hear = listener or Listener()
    if config.engine == PLACED:
        return _run_placed(prepare_placed(pipeline, config, given), hear)
    job = prepare(pipeline, config)
    if config.find_max:
        with temporary_folder("search") as scratch:
            return search_highest(job, hear, scratch)
    return await_with_interrupts(start_fused(job, hear, name_to_resume_by(pipeline)))


def _config(pipeline: RunnableLike, keywords: dict[str, Any]) -> RunConfig:
    """Return the options for the engine that is to run the pipeline."""
    config = RunConfig.of_keywords(keywords, stacklevel=4)
    engine = config.engine
    if engine == AUTO:
        find_code_beside(pipeline)
        is_plan = runnable(pipeline)[1] is not None
        engine = PLACED if is_plan and config.session is None and not config.is_local else FUSED
    if engine not in {FUSED, PLACED}:
        raise BadInputError(f"engine='{engine}': not for `run`; use `simulate`")
    return config.for_engine(engine)


def _run_placed(job: PlacedJob, listener: Listener) -> PlacedResult:
    from penstock.engines.placed.run_folder import is_run  # noqa: PLC0415 - psutil belongs to the extra

    place = job.config.folder or fresh_folder(job.pipeline.name)
    if is_run(place):
        raise BadInputError(f"{place}: a run was started here before; resume it (penstock resume), or name another")
    return (searched if job.config.find_max else conducted)(job, place, listener)


# `penstock.start(...)`: a pipeline that runs from now on, as an object.


@overload
def start(
    pipeline: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    engine: Literal["fused"] = "fused",
    given: Pipeline | None = None,
    listener: Listener | None = None,
    **keywords: Unpack[RunKeywords],
) -> RunHandle: ...


@overload
def start(
    pipeline: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    engine: Literal["placed"],
    given: Pipeline | None = None,
    listener: Listener | None = None,
    **keywords: Unpack[RunKeywords],
) -> PlacedHandle: ...


@overload
def start(
    pipeline: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    engine: str,
    given: Pipeline | None = None,
    listener: Listener | None = None,
    **keywords: Unpack[RunKeywords],
) -> RunHandle | PlacedHandle: ...


@takes_options(Appears.PYTHON)
def start(
    pipeline: RunnableLike,
    rate: Any = None,
    *,
    engine: str = FUSED,
    given: Pipeline | None = None,
    listener: Listener | None = None,
    **keywords: Any,
) -> Any:
    """Start a run as `penstock.run` does, and return its handle at once. In a `folder` in which this pipeline ran
    before, the run is resumed from its last commit."""
    config = _config(pipeline, {"rate": rate, "engine": engine, **keywords})
    if config.find_max:
        raise BadInputError("find_max=: only of `run`, which waits for the result")
    if config.engine == PLACED:
        return _start_placed(pipeline, config, given, listener or Listener())
    return start_fused(prepare(pipeline, config), listener or Listener(), name_to_resume_by(pipeline))


ONTO = "onto.json"
"""File in a run's folder with a plan that was given as an object, for the run to change to."""


def _start_placed(plan: RunnableLike, config: RunConfig, given: Pipeline | None, listener: Listener) -> PlacedHandle:
    from penstock.engines.placed.run_folder import RunFolder, is_run  # noqa: PLC0415 - psutil belongs to the extra

    if config.folder is None or not is_run(config.folder):
        job = prepare_placed(plan, config, given)
        return started(job, config.folder or fresh_folder(job.pipeline.name), listener)
    run = RunFolder(config.folder)
    job = _as_committed(run, config, given)
    return started(job, run.place, listener, going_on=True, onto=_other(plan, job.plan, run))


def _as_committed(run: RunFolder, anew: RunConfig, given: Pipeline | None) -> PlacedJob:
    """Return a placed run as its last commit left it, with the options given anew."""
    current, segments = run.plan()
    return prepare_placed(current, run.description.config.resumed_with(anew), given, segments)


def _other(plan: RunnableLike, current: SavedPlan, run: RunFolder) -> Path | None:
    """Return the file of a plan that is another than the run has; None if it is the same."""
    _, saved = runnable(plan)
    if saved is None:
        raise BadInputError("placed execution needs a plan, not a pipeline: make one with `plan`")
    if saved == current:
        return None
    if isinstance(plan, str | Path):
        return Path(plan)
    if "://" in run.place:
        raise BadInputError(f"plan=: expected a file: {run.place} is no folder to write the plan to")
    write_text(run.path / ONTO, saved.model_dump_json() + "\n")
    return run.path / ONTO


FORMER_PLACED_SECONDS = 20.0
"""Length of a run of `run_placed`, unless given."""


def run_placed(plan: RunnableLike, rate: float | str | Load | None = None, **keywords: Any) -> PlacedResult:
    """Former name of `run(..., engine="placed")`."""
    report_former_name("run_placed(...)", "run(..., engine='placed')")
    result: PlacedResult = run(plan, rate, engine="placed", **{"seconds": FORMER_PLACED_SECONDS, **keywords})
    return result


def start_placed(plan: RunnableLike, rate: float | str | Load | None = None, **keywords: Any) -> PlacedHandle:
    """Former name of `start(..., engine="placed")`."""
    report_former_name("start_placed(...)", "start(..., engine='placed')")
    handle: PlacedHandle = start(plan, rate, engine="placed", **keywords)
    return handle


# `penstock.resume(...)`: a run continues from its last commit, as it was or onto another plan.


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run that goes on. `seconds`: until it did, its first tuple at its end where it had waited."""

    seconds: float
    result: PlacedResult | RunResult | None
    """Of a run that was conducted from here; None: another process conducts it."""


@takes_options(Appears.PYTHON | Appears.RESUME)
def resume(
    folder: str | Path,
    plan: str | Path | None = None,
    *,
    given: Pipeline | None = None,
    patience: float = PATIENCE_SECONDS,
    listener: Listener | None = None,
    **keywords: Unpack[ResumeKeywords],
) -> Resumed:
    """Resume a run from its last commit, onto another plan if one is given.

    A run that waits, drained, is asked to; the process that conducts it will report. A run that no process conducts (it
    was stopped, or its process died) is conducted from here, with the options it had and those given anew, until it is
    interrupted or for `seconds`. `folder` is its folder, or the name that `runs` shows. A fused run is resumed in the
    folder it was started in, to which paths of its pipeline are relative.
    """
    from penstock.engines.placed.run_folder import RunFolder  # noqa: PLC0415 - psutil belongs to the extra

    anew = RunConfig.of_keywords(dict(keywords), stacklevel=3)
    for entry in options():
        if Appears.RESUME not in entry.appears and getattr(anew, entry.key) != entry.default:
            raise BadInputError(f"{entry.key}=: cannot be changed by resume; start another run")
    where = placed_or_found(folder)
    if isinstance(where, Path) and is_fused(where):
        return _resume_fused(where.resolve(), plan, anew, given, listener or Listener())
    run = RunFolder(where)
    anew = anew.for_engine(PLACED)
    other = None if plan is None else Path(plan)
    if run.held_by is not None:
        return Resumed(float(run.ask("resume", patience, other)["seconds"]), None)
    job = _as_committed(run, anew, given)
    result = conducted(job, run.place, listener or Listener(), going_on=True, onto=other)
    return Resumed(result.start_seconds, result)


def _resume_fused(
    where: Path, plan: str | Path | None, anew: RunConfig, given: Pipeline | None, listener: Listener
) -> Resumed:
    """Resume in the folder the run was started in; paths given anew are relative to the present one."""
    models = anew.models
    anew = replace(
        anew,
        models=_absolute(models) if isinstance(models, str | Path) else models,
        secret_file=_absolute(anew.secret_file),
        dead_letters=None if anew.dead_letters is None else absolute_place(anew.dead_letters),
    )
    onto = _absolute(plan)
    with where_it_was_started(where):
        watch = Stopwatch()
        handle = resume_fused(where, onto, anew, given, listener)
        started_after = watch.seconds()
        return Resumed(started_after, await_with_interrupts(handle))


def _absolute(path: str | Path | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


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
