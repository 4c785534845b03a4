"""`penstock.run(...)`: start a pipeline, wait for its end, report."""

from __future__ import annotations

from contextlib import chdir, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from penstock.api.live import absolute, ask_run
from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError
from penstock.base.former_names import report_former_name
from penstock.connectors.topic_address import absolute_place
from penstock.inputs.finders import find_code_beside, runnable
from penstock.report.listener import Listener
from penstock.runs.config import AUTO, FUSED, PLACED, Appears, RunConfig, options, takes_options
from penstock.runs.engine import ENGINES, Engine
from penstock.runs.folder import ANSWER_SECONDS, RunFolder, is_run, is_unnamed, run_folder
from penstock.runs.foreground import await_with_interrupts
from penstock.runs.run import Run
from penstock.runs.states import LIVING, RunRequest, RunState

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from penstock.dataflow.load import Load
    from penstock.dataflow.pipeline import Pipeline
    from penstock.inputs.finders import RunnableLike
    from penstock.report.result import PlacedResult, RunResult
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
    if not config.find_max:
        return await_with_interrupts(_started(config, pipeline, given, hear))
    chosen: Engine = ENGINES.create(config.engine)
    named = _named_folder(config)
    prepared = chosen.prepare(config, pipeline, hear, given=given)
    folder = named or RunFolder(chosen.default_folder(prepared.pipeline.name))
    return chosen.find_highest_rate(prepared, folder, hear)


def _config(pipeline: RunnableLike, keywords: dict[str, Any]) -> RunConfig:
    """Return the options for the engine that is to run the pipeline."""
    config = RunConfig.of_keywords(keywords, stacklevel=4)
    engine = config.engine
    if engine == AUTO:
        find_code_beside(pipeline)
        is_plan = runnable(pipeline)[1] is not None
        engine = PLACED if is_plan and config.session is None and not config.is_local else FUSED
    return config.for_engine(engine)


def _named_folder(config: RunConfig) -> RunFolder | None:
    """Return the folder that the user named; None: no folder. Raise BadInputError if it cannot be reached."""
    if config.folder is None:
        return None
    try:
        folder = RunFolder(config.folder)
        is_run(folder.place)
    except BadInputError as error:
        raise BadInputError(f"folder=: {error}") from error
    return folder


def _started(config: RunConfig, pipeline: RunnableLike, given: Pipeline | None, listener: Listener) -> Run:
    engine: Engine = ENGINES.create(config.engine)
    named = _named_folder(config)
    prepared = engine.prepare(config, pipeline, listener, given=given)
    folder = named or RunFolder(engine.default_folder(prepared.pipeline.name))
    own = named is None or (folder.is_local and is_unnamed(folder.path))
    return Run(engine, prepared, folder, listener, own=own)


# `penstock.start(...)`: a pipeline that runs from now on, as an object.


@takes_options(Appears.PYTHON)
def start(
    pipeline: RunnableLike,
    rate: Any = None,
    *,
    engine: str = FUSED,
    given: Pipeline | None = None,
    listener: Listener | None = None,
    **keywords: Unpack[RunKeywords],
) -> Run:
    """Start a run as `penstock.run` does, and return its handle at once. In a `folder` in which this pipeline ran
    before, the run is resumed from its last commit."""
    config = _config(pipeline, {"rate": rate, "engine": engine, **keywords})
    if config.find_max:
        raise BadInputError("find_max=: only of `run`, which waits for the result")
    return _started(config, pipeline, given, listener or Listener())


FORMER_PLACED_SECONDS = 20.0
"""Length of a run of `run_placed`, unless given."""


def run_placed(plan: RunnableLike, rate: float | str | Load | None = None, **keywords: Any) -> PlacedResult:
    """Former name of `run(..., engine="placed")`."""
    report_former_name("run_placed(...)", "run(..., engine='placed')")
    result: PlacedResult = run(plan, rate, engine="placed", **{"seconds": FORMER_PLACED_SECONDS, **keywords})
    return result


def start_placed(plan: RunnableLike, rate: float | str | Load | None = None, **keywords: Any) -> Run:
    """Former name of `start(..., engine="placed")`."""
    report_former_name("start_placed(...)", "start(..., engine='placed')")
    return start(plan, rate, engine="placed", **keywords)


# `penstock.resume(...)`: a run continues from its last commit, as it was or by another plan.


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run that was resumed. `seconds`: until it started, or until rows flowed if another process conducts it."""

    seconds: float
    result: Any
    """Report of a run that was conducted from here; None: another process conducts it."""


@takes_options(Appears.PYTHON | Appears.RESUME)
def resume(
    folder: str | Path,
    plan: str | Path | None = None,
    *,
    given: Pipeline | None = None,
    patience: float = ANSWER_SECONDS,
    listener: Listener | None = None,
    **keywords: Unpack[ResumeKeywords],
) -> Resumed:
    """Resume a run from its last commit, by another plan if one is given.

    A run that is paused is asked to; the process that conducts it will report. A run that was stopped, failed or was
    lost is conducted from here, with the options it had and those given anew, until it is interrupted or for `seconds`.
    `folder` is its folder or URI, or the name that `runs` shows. The run is resumed in the folder it was started in, to
    which paths of its pipeline are relative.
    """
    anew = RunConfig.of_keywords(dict(keywords), stacklevel=3)
    for option in options():
        if Appears.RESUME not in option.appears and getattr(anew, option.key) != option.default:
            raise BadInputError(f"{option.key}=: cannot be changed by resume; start another run")
    where, took = run_folder(folder), Stopwatch()
    known, state = where.description, where.state()[0]
    onto = absolute(plan)
    if state is RunState.RUNNING and plan is not None:
        report_former_name("resume of a run that runs", "rescale(run, plan=plan)")
        return Resumed(ask_run(folder, RunRequest.RESCALE, patience, plan=onto), None)
    if state in LIVING:
        return Resumed(ask_run(folder, RunRequest.RESUME, patience, plan=onto, slots=anew.slots), None)
    engine: Engine = ENGINES.create(known.engine)
    hear = listener or Listener()
    anew = _with_absolute_paths(replace(anew, engine=known.engine).for_engine(known.engine))
    with _inside(known.started_in):
        prepared = engine.prepare_again(where, anew, onto, hear, given=given)
        own = where.is_local and is_unnamed(where.path)
        run = Run(engine, prepared, where, hear, own=own)
        started = took.seconds()
        return Resumed(started, await_with_interrupts(run))


def _inside(started_in: str | None) -> AbstractContextManager[None]:
    """Work in the folder the run was started in, if it is still there: paths of its pipeline are relative to it."""
    return chdir(started_in) if started_in is not None and Path(started_in).is_dir() else nullcontext()


def _with_absolute_paths(anew: RunConfig) -> RunConfig:
    """Return options whose paths, relative to the present folder, hold in every folder."""
    return replace(
        anew,
        models=absolute(anew.models) if isinstance(anew.models, str | Path) else anew.models,
        secret_file=absolute(anew.secret_file),
        dead_letters=None if anew.dead_letters is None else absolute_place(anew.dead_letters),
    )
