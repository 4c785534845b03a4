"""`penstock.run(...)`: a pipeline on embedded Spark."""

from __future__ import annotations

import math
import os
import signal
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import api
from penstock.allocation.pipeline import demands_of
from penstock.dataflow.file import parse_pipeline
from penstock.dataflow.load import Load, parse_load
from penstock.dataflow.logic import Logic, find_logic
from penstock.dataflow.pipeline import Kind, Pipeline
from penstock.dataflow.rates import checked_rate, gains
from penstock.errors import BadInputError, nearest
from penstock.files import read_document
from penstock.modelling.fit import QUIET
from penstock.modelling.handling import handling_seconds, without_handling
from penstock.modelling.model import Model
from penstock.planning.file import SavedPlan, read_plan
from penstock.planning.plan import Plan
from penstock.prediction.fused import FusedSetup, fused_batch, fused_threads
from penstock.report.progress import Progress
from penstock.report.result import RunResult, TriedRate
from penstock.workloads.operators import reference_logic, services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.modelling.library import ModelLibrary
    from penstock.prediction.rate import Demands
    from penstock.report.report import BatchObservation, Report
    from penstock.spark.find_max import RateTrial
    from penstock.spark.fused import FusedRun, Hooks

ASSUMED_OVERHEAD_SECONDS = 0.15
"""What the engine needs for a batch where no model says."""
ASSUMED_BATCH_CPU_SECONDS = 0.1
"""CPU the engine needs for a batch where no model says."""
BATCH_SECONDS = 1.0
"""Batches of a run hold at most so much work."""
FIRST_ROWS = 50
"""Tuples per slot of the first batch where no model says how many are a second of work."""

RunnableLike = api.PipelineLike | Plan | SavedPlan


def logic_of(pipeline: Pipeline) -> dict[str, Logic]:
    """The code of every operator: given in Python, named by `run`, or that of the reference task its model names."""
    found: dict[str, Logic] = {}
    for name, operator in pipeline.operators.items():
        if operator.logic is not None:
            found[name] = operator.logic
        elif operator.run is not None:
            found[name] = find_logic(operator.run)
        elif operator.kind is Kind.OPERATOR and operator.aggregate is None:
            model = operator.model or name
            if model not in reference_logic:
                raise BadInputError(
                    f"operator '{name}' has no code: give run: module:attribute, or a reference model; "
                    f"{nearest(model, reference_logic)}"
                )
            found[name] = reference_logic[model]
    return found


@contextmanager
def _session(slots: int) -> Iterator[Any]:
    try:
        from penstock.spark.session import start_session  # noqa: PLC0415 - Spark loads only when it is used
    except ImportError as error:
        raise BadInputError("running needs pyspark; install it with: pip install 'penstock[spark]'") from error
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as folder:
        handler = signal.getsignal(signal.SIGINT)
        session = start_session(slots, Path(folder) / "java.log")
        if threading.current_thread() is threading.main_thread():
            # Spark has put its own in place, which raises out of the middle of its calls
            signal.signal(signal.SIGINT, handler)
        try:
            yield session
        finally:
            session.stop()


@dataclass(frozen=True)
class PlannedRun:
    """What a plan says about running it: rate, threads of each operator over all slots, slots, and its prediction."""

    rate: float
    threads: Mapping[str, int]
    slots: int
    rates: Mapping[str, float | None]


@dataclass(frozen=True)
class Job:
    """A pipeline ready to be run, whichever way: code, threads of each operator in one slot, batches, a prediction."""

    pipeline: Pipeline
    logic: Mapping[str, Logic]
    threads: Mapping[str, int]
    slots: int
    load: Load
    most_rows: int
    batch_seconds: float | None
    predicted_rate: float | None
    notes: tuple[str, ...]
    plan_rates: Mapping[str, float | None] | None
    predicted_use: Callable[[float], tuple[float, float]] | None
    models_pace: float | None
    rate_at_pace: Callable[[float], float] | None

    def result(self, report: Report, load: Load, **more: Any) -> RunResult:
        noted = replace(report, notes=(*self.notes, *report.notes))
        return RunResult(
            self.pipeline.name,
            self.slots,
            self.threads,
            self.predicted_rate,
            noted,
            load,
            plan_rates=self.plan_rates,
            predicted_use=self.predicted_use,
            models_pace=self.models_pace,
            rate_at_pace=self.rate_at_pace,
            **more,
        )


def prepare(
    pipeline: RunnableLike,
    rate: float | str | Load | None,
    slots: int | None,
    models: api.ModelsLike,
    *,
    search: bool,
) -> Job:
    """Everything about a run that can be known, and be wrong, before Spark is started."""
    found, plan = runnable(pipeline)
    check_streams(found)
    planned = None if plan is None else planned_run(plan)
    if rate is None and planned is not None:
        rate = planned.rate
    if search:
        load = Load.constant(1.0)
    elif rate is None:
        raise BadInputError("--rate: expected tuples/s; only a plan has a rate of its own")
    else:
        load = rate if isinstance(rate, Load) else parse_load(str(rate))
    demands = demands_to_run(found, api.models(models))
    setup = fused_setup(found, planned, demands, slots, math.inf if search else load.peak_rate, os.cpu_count() or 1)
    slots = setup.slots
    unknown = [n for n, one in found.operators.items() if one.kind is Kind.OPERATOR and demands[n] is None]
    modelled = any(isinstance(demand, Model) for demand in demands.values())

    def use(rate: float) -> tuple[float, float]:
        slot = setup.use(rate)
        return slot.cpu, slot.memory_mb

    notes = [f"operator '{name}' has no model: its work is not in the prediction" for name in unknown if modelled]
    cores = os.cpu_count()
    if modelled and cores is not None and slots > cores:
        notes.append(f"{slots} slots share {cores} cores here")
    return Job(
        pipeline=found,
        logic=logic_of(found),
        threads=setup.threads,
        slots=slots,
        load=load,
        most_rows=FIRST_ROWS * slots if unknown else setup.most_rows,
        batch_seconds=BATCH_SECONDS if unknown or search else None,
        predicted_rate=setup.rate() if modelled else None,
        notes=tuple(notes),
        plan_rates=planned.rates if planned else None,
        predicted_use=use if modelled else None,
        models_pace=setup.pace,
        rate_at_pace=(lambda pace: setup.at_pace(pace).rate()) if modelled else None,
    )


def fused_setup(
    pipeline: Pipeline, planned: PlannedRun | None, demands: Demands, slots: int | None, rate: float, cores: int
) -> FusedSetup:
    """How `pipeline` runs fused at up to `rate` tuples/s: on the slots given, else those of the plan, else a slot for
    every core; with the threads of the plan, else those declared, else those the models say."""
    slots = slots or (planned.slots if planned else None) or cores
    pipeline_gains = gains(pipeline)
    threads = fused_threads(pipeline_gains, demands, rate, slots)
    given = planned.threads if planned else {n: one.threads for n, one in pipeline.operators.items() if one.threads}
    threads |= {name: -(-count // slots) for name, count in given.items()}
    modelled = [demand for demand in demands.values() if isinstance(demand, Model)]
    overhead = _overhead(modelled)
    handling = handling_seconds(modelled)
    demands = {
        name: without_handling(demand) if isinstance(demand, Model) else demand for name, demand in demands.items()
    }
    most_rows = fused_batch(pipeline_gains, demands, threads, slots, BATCH_SECONDS, overhead, handling)
    engine_cpu = batch_cpu_seconds(modelled)
    return FusedSetup(
        pipeline_gains,
        demands,
        threads,
        slots,
        cores,
        most_rows,
        overhead,
        engine_cpu,
        handling_seconds=handling,
    )


def runnable(given: RunnableLike) -> tuple[Pipeline, SavedPlan | None]:
    """The pipeline, and its plan where one was given (a file counts if it holds a placement)."""
    where = "plan"
    pipeline: Pipeline | None = None
    if isinstance(given, Plan):
        pipeline, given = given.pipeline, SavedPlan.model_validate(given.document())
    elif isinstance(given, str | Path) and Path(given).suffix == ".json" and Path(given).is_file():
        document = read_document(Path(given))
        if isinstance(document, dict) and "placement" in document and "definition" in document:
            where, given = str(given), read_plan(Path(given))
    if not isinstance(given, SavedPlan):
        return api.find_pipeline(given), None
    pipeline = pipeline or parse_pipeline(given.definition, f"{where}: definition")
    if set(pipeline.operators) != set(given.operators):
        raise BadInputError(f"{where}: its operators are not those of the pipeline in its definition")
    return pipeline, given


def check_streams(pipeline: Pipeline) -> None:
    """Refuses what planning knows of streams and no way of running them does."""
    for stream in pipeline.streams:
        if stream.weight != 1:
            raise BadInputError(f"stream {stream}: running a stream of weight {stream.weight:g} is not possible yet")


def planned_run(plan: SavedPlan) -> PlannedRun:
    threads = {name: one.threads for name, one in plan.operators.items()}
    return PlannedRun(plan.rate, threads, max(1, plan.slots.used), _plan_rates(plan, "plan"))


def _plan_rates(plan: SavedPlan, where: str) -> dict[str, float | None]:
    rates = plan.prediction.get("rate")
    if not isinstance(rates, dict) or not all(one is None or isinstance(one, int | float) for one in rates.values()):
        raise BadInputError(f"{where}: prediction.rate: expected tuples/s by routing")
    return dict(rates)


def demands_to_run(pipeline: Pipeline, library: ModelLibrary) -> Demands:
    """As planning knows them, but an operator nobody has a model of may run: None."""
    unknown = {
        name
        for name, one in pipeline.operators.items()
        if one.kind is Kind.OPERATOR and one.model is None and not one.is_declared and name not in library.models
    }
    known = Pipeline.of(pipeline.name, [one for one in pipeline.operators.values() if one.name not in unknown], [])
    return {**demands_of(known, library), **dict.fromkeys(unknown)}


def run(
    pipeline: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    slots: int | None = None,
    seconds: float = 20.0,
    warm_up: float = 5.0,
    models: api.ModelsLike = None,
    find_max: bool = False,
    low: float | None = None,
    high: float | None = None,
    until_end: bool = False,
    dead_letters: str | Path | None = None,
    watch: Callable[[BatchObservation], None] | None = None,
    show: Callable[[str, str], None] | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Run a pipeline or a plan fused on embedded Spark for `seconds`, and report predicted beside measured.

    `rate` is tuples/s, or a load as `penstock.dataflow.load.parse_load` reads it; a plan has its own. With `find_max`
    the highest stable rate is looked for (between `low` and `high`), every run taking `seconds`. `until_end` ends a run
    early when every row of all files has been taken in. `watch` hears of every batch, `show` (sink, tuple as JSON) of
    what reaches a console. Ctrl-C ends a run in order: what is under way is finished and reported.
    """
    if not 0 < warm_up < seconds:
        raise BadInputError(f"seconds: expected more than the warm-up of {warm_up:g}, found {seconds:g}")
    check_search(low, high, rate, search=find_max)
    job = prepare(pipeline, rate, slots, models, search=find_max)
    told = progress or Progress()
    needed = {operator.model or name for name, operator in job.pipeline.operators.items()}

    def building(rows: int, of: int) -> None:
        told.say(f"building the reference table, once: {rows:,} of {of:,} rows")

    def hear(batch: BatchObservation) -> None:
        told.add(batch)
        if watch is not None:
            watch(batch)

    fused = _fused_run(job, dead_letters, until_end=until_end)
    with services(needed, given=os.environ, progress=building) as environment, _session(job.slots) as session:
        from penstock.spark.fused import Hooks  # noqa: PLC0415 - Spark loads only when it is used
        from penstock.spark.interrupts import Interrupt, interrupts  # noqa: PLC0415

        fused = replace(fused, environment=environment)
        interrupt = Interrupt()
        hooks = Hooks(hear, show, interrupt)

        def offer(load: Load) -> Report:
            told.begin(load, seconds)
            return execute(session, replace(fused, load=load), seconds, warm_up, hooks)

        with interrupts(interrupt):
            if find_max:
                return _search(job, offer, lambda: interrupt.asked, low, high, told)
            return job.result(offer(job.load), job.load, interrupted=interrupt.asked)


def _fused_run(job: Job, dead_letters: str | Path | None, *, until_end: bool) -> FusedRun:
    """Checks the files of sources, too: that needs no Spark."""
    try:
        from penstock.spark.file_index import indexes_of  # noqa: PLC0415 - Spark loads only when it is used
        from penstock.spark.fused import FusedRun  # noqa: PLC0415
    except ImportError as error:
        raise BadInputError("running needs pyspark; install it with: pip install 'penstock[spark]'") from error
    if until_end and not any(one.files for one in job.pipeline.operators.values()):
        raise BadInputError("--until-end: no source has files, so there is no end")
    return FusedRun(
        job.pipeline,
        job.logic,
        job.threads,
        job.load,
        job.slots,
        job.most_rows,
        job.batch_seconds,
        indexes=indexes_of(job.pipeline),
        dead_letters=None if dead_letters is None else Path(dead_letters),
        until_end=until_end,
    )


def execute(session: Any, run: FusedRun, seconds: float, warm_up: float, hooks: Hooks) -> Report:
    """The one place where a job meets an engine."""
    from penstock.spark.fused import run_fused  # noqa: PLC0415 - Spark loads only when it is used
    from penstock.spark.process_tree import MachineUsage, share_given, share_of_others  # noqa: PLC0415
    from penstock.spark.segmented import has_aggregates, run_segmented  # noqa: PLC0415

    began = MachineUsage.now()
    if has_aggregates(run.pipeline):
        report = run_segmented(session, run, seconds, warm_up, hooks)
    else:
        report = run_fused(session, run, seconds, warm_up, hooks=hooks)
    ended = MachineUsage.now()
    others = share_of_others(began, ended)
    pace = None if report.pace is None else report.pace * share_given(began, ended)
    return replace(report, others_cpu=others, pace=pace, notes=(*report.notes, *disturbance(others)))


def disturbance(others_cpu: float) -> list[str]:
    """A note where others used much of the machine during a run."""
    if others_cpu <= QUIET:
        return []
    return [
        f"other processes, or the host of this machine, used {100 * others_cpu:.0f} % of it meanwhile: what was "
        "measured is lower than it would be on a quiet one"
    ]


def check_search(low: float | None, high: float | None, rate: object, *, search: bool) -> None:
    if not search:
        if low is not None or high is not None:
            raise BadInputError("--low and --high mean something only with --find-max")
        return
    if rate is not None:
        raise BadInputError("--find-max looks for the rate itself; leave out --rate")
    for name, value in (("--low", low), ("--high", high)):
        if value is not None:
            checked_rate(value, name)
    if low is not None and high is not None and low >= high:
        raise BadInputError(f"--low: expected less than --high, found {low:g} and {high:g}")


def _search(
    job: Job,
    offer: Callable[[Load], Report],
    stopped: Callable[[], bool],
    low: float | None,
    high: float | None,
    progress: Progress,
) -> RunResult:
    from penstock.spark.find_max import MORE_THAN_ANY, find_highest_rate  # noqa: PLC0415 - Spark loads only when it is used

    def tried(trial: RateTrial) -> None:
        verdict = "saturated" if trial.saturated else "stable" if trial.stable else "falls behind"
        progress.say(f"{trial.rate:,.4g} tuples/s: {verdict}")

    def offering(rate: float) -> Report:
        what = "more than can be done" if rate == MORE_THAN_ANY else f"{rate:,.4g} tuples/s"
        progress.say(f"{progress.saying}; now offering {what}")
        return offer(Load.constant(rate))

    progress.say("looking for the highest stable rate")
    found = find_highest_rate(offering, stopped, low, high, tried)
    shown = found.best or found.trials[-1]
    return job.result(
        shown.report,
        Load.constant(shown.report.offered_rate),
        interrupted=stopped(),
        searched=True,
        highest_rate=found.best.rate if found.best else None,
        tried=tuple(TriedRate(t.rate, t.stable, t.report.sustained_rate, t.saturated) for t in found.trials),
    )


def batch_cpu_seconds(models: list[Model]) -> float:
    """CPU the engine needs for a micro-batch, as the models say."""
    told = [one.measured_on.batch_cpu_ms for one in models if one.measured_on.batch_cpu_ms is not None]
    return sum(told) / len(told) / 1000 if told else ASSUMED_BATCH_CPU_SECONDS


def _overhead(models: list[Model]) -> float:
    told = [m.measured_on.batch_overhead_ms for m in models if m.measured_on.batch_overhead_ms is not None]
    return sum(told) / len(told) / 1000 if told else ASSUMED_OVERHEAD_SECONDS
