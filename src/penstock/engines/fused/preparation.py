"""Make a pipeline or plan ready to run fused, or a run ready to resume: everything that needs no Spark, its checks,
the specification of its query, and its description in run.json."""

from __future__ import annotations

import math
import os
import re
import secrets
from dataclasses import dataclass, field, replace
from glob import iglob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch, stamp
from penstock.base.errors import BadInputError
from penstock.cluster.cores import cores_here
from penstock.dataflow.aggregate import Emit
from penstock.dataflow.code import parse_pipeline, pipeline_document, said_in_a_file
from penstock.dataflow.formats import admission_of, find_format, is_driven_by_load, reading_of, writing_of
from penstock.dataflow.load import Load, parse_load
from penstock.dataflow.logic import sparks_own_code
from penstock.dataflow.pipeline import Kind, Pipeline
from penstock.dataflow.regions import unaudited_by
from penstock.inputs.finders import RunnableLike, find_code_beside, find_code_in, find_models_for, logic_of, runnable
from penstock.modelling.fingerprint import file_end
from penstock.modelling.library import demands_to_run, doubts_about
from penstock.modelling.machine import this_machine
from penstock.modelling.model import Model
from penstock.planning.prediction.fused import PlannedRun, fused_setup, most_work_seconds
from penstock.planning.prediction.placement import closing_seconds
from penstock.report.figures import RecentBatches
from penstock.report.result import RunResult
from penstock.runs.config import FUSED, RunConfig
from penstock.runs.description import RunDescription
from penstock.runs.environment import is_on_this_machine, local_slots, with_executor_memory
from penstock.spark.session.hadoop import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.dataflow.logic import Logic
    from penstock.engines.fused.query import FusedSpec
    from penstock.planning.files import SavedPlan
    from penstock.planning.prediction.forecast import RunForecast
    from penstock.planning.prediction.fused import FusedSetup
    from penstock.planning.prediction.placement import Demands
    from penstock.report.figures import Figures
    from penstock.report.listener import Listener
    from penstock.report.report import BatchObservation, Report
    from penstock.runs.folder import RunFolder


# Predictions in the report of a fused run, and notes on parts that they leave out.


def unmeasured_ends(pipeline: Pipeline, demands: Demands, *, rehearsed: bool) -> list[str]:
    """Return notes on the ends that a prediction leaves out. The load generator and sinks that only count take next to
    nothing, and rehearsals hold the cost of files."""
    notes = []
    for name, operator in pipeline.operators.items():
        reads = operator.kind is Kind.SOURCE and not reading_of(operator).is_load
        writes = operator.kind is Kind.SINK and writing_of(operator).keeps_rows
        known = isinstance(demands[name], Model) or (rehearsed and file_end(operator) is not None)
        if (reads or writes) and not known:
            notes.append(
                f"what {operator.kind} '{name}' needs to {'read' if reads else 'write'} is in no model: the prediction "
                "leaves it out"
            )
    return notes


def closing_notes(pipeline: Pipeline, setup: FusedSetup, rate: float, interval_seconds: float) -> list[str]:
    """Return notes on the wait that latency leaves out: it ends when a tuple's batch is committed."""
    steady = setup.steady_batch(rate, interval_seconds)
    return [
        f"operator '{name}' sends windows on when they are closed: half of its tuples are in what has left it "
        f"{closing_seconds(aggregate, *steady):.1f} s after they were due, as predicted; latency is counted until a "
        "tuple's batch is committed"
        for name, operator in pipeline.operators.items()
        if (aggregate := operator.aggregate) is not None and aggregate.emit is Emit.CLOSED and steady is not None
    ]


def predictions(setup: FusedSetup, interval_seconds: float, sources: int) -> dict[str, Any]:
    """Return the predictions in a result: rates are of all `sources` together.

    The latency of a source of the user's own is counted from when Spark took a tuple in: it is that of the batch.
    """

    def use(rate: float) -> tuple[float, float]:
        slot = setup.use(rate / sources)
        return slot.cpu, slot.memory_mb

    def latency(rate: float, pace: float | None) -> Mapping[str, float] | None:
        run = setup if pace is None else setup.at_pace(pace)
        return run.latencies(rate / sources, interval_seconds)

    return {
        "predicted_use": use,
        "models_pace": setup.pace,
        "rate_at_pace": lambda pace: sources * setup.at_pace(pace).rate(interval_seconds),
        "latency_at": latency,
    }


FIGURES_SECONDS = 1.0
"""Seconds between two reports of figures to a listener."""
UNKNOWN_RATE = 1e9
"""Assumed rate of a source of the user's own, which is not known: threads are chosen for more than can be processed."""
FIRST_ROWS = 50
"""Tuples per slot of the first batch if no model gives the number for a second of work."""


@dataclass(frozen=True)
class FusedJob:
    """A pipeline ready to be run, whichever way: code, threads of each operator in one slot, batches, a prediction."""

    pipeline: Pipeline
    logic: Mapping[str, Logic]
    threads: Mapping[str, int]
    slots: int
    load: Load
    most_rows: int
    batch_seconds: float | None
    notes: tuple[str, ...]
    plan_rates: Mapping[str, float | None] | None
    setup: FusedSetup | None
    """Source of all predictions; None: no operator has a model."""
    slot_memory_mb: float | None = None
    """Memory of a slot of the plan; None: there is no plan."""
    planned_rate: float | None = None
    """Rate of the plan; None: there is no plan."""
    config: RunConfig = field(default_factory=RunConfig)

    @property
    def all_threads(self) -> dict[str, int]:
        """Threads of each operator over all slots."""
        return {name: count * self.slots for name, count in self.threads.items()}

    @property
    def interval_seconds(self) -> float:
        """Seconds from one batch to the next, at least."""
        return self.config.batch_interval_ms / 1000

    @property
    def target_rate(self) -> float | None:
        """Rate of every source that it must keep; None: none was asked for."""
        if self.config.find_max:
            return None
        return self.load.peak_rate if is_driven_by_load(self.pipeline) else self.planned_rate

    @property
    def forecast(self) -> RunForecast | None:
        """The prediction made before it runs; None: no operator has a model."""
        return None if self.setup is None else self.setup.forecast(self.target_rate, self.interval_seconds)

    @property
    def predicted_rate(self) -> float | None:
        return None if self.setup is None else self.setup.rate(self.interval_seconds)

    def result(self, report: Report, load: Load, **more: Any) -> RunResult:
        """Predicted beside measured. If the rows of a batch were not known before, rates and latencies are predicted
        for batches as they came. A report counts the tuples of all k sources of the user's own, the
        formula those of each: a batch of r of the one holds `r / k` of the other, and the rate of the formula is a k-th
        of the report's."""
        setup, notes = self.setup, self.notes
        own_source = not is_driven_by_load(self.pipeline)
        sources = len(self.pipeline.sources) if own_source else 1
        # where batches are taken as they came, the interval is in how many tuples they held
        interval = 0.0 if own_source else self.interval_seconds
        if setup is not None and own_source:
            evenly = f", as many of each of {sources} sources" if sources > 1 else ""
            if setup.admission.unknown is not None and report.batches:
                rows = max(1, round(report.sustained_rate * report.seconds / report.batches))
                setup = replace(setup, most_rows=max(1, round(rows / sources)))
                notes = (
                    *notes,
                    f"what is predicted is for batches of {rows:,} tuples, as they came on average" + evenly,
                )
            elif setup.admission.unknown is None:
                rows = sources * setup.most_rows
                notes = (*notes, f"what is predicted is for batches of {rows:,} tuples, as the sources admit{evenly}")
            notes = (*notes, *unmeasured_ends(self.pipeline, setup.demands, rehearsed=setup.correction is not None))
        if setup is not None and not own_source:
            notes = (*notes, *closing_notes(self.pipeline, setup, report.offered_rate, interval))
        return RunResult(
            self.pipeline.name,
            self.slots,
            self.threads,
            None if setup is None else sources * setup.rate(interval),
            replace(report, notes=(*notes, *report.notes)),
            load,
            plan_rates=self.plan_rates,
            own_source=own_source,
            forecast=self.forecast,
            **({} if setup is None else predictions(setup, interval, sources)),
            **more,
        )


def prepare(
    pipeline: RunnableLike, config: RunConfig | None = None, *, threads: Mapping[str, int] | None = None
) -> FusedJob:
    """Check everything about a run that can be wrong before Spark is started. `threads`: over all slots, those of a run
    that is resumed, instead of those of plan, pipeline and models."""
    config = (config or RunConfig()).for_engine(FUSED)
    search, models, load = config.find_max, config.models, config.load
    slots = config.slots or local_slots(config.master)
    here = is_on_this_machine(config)
    find_code_beside(pipeline)
    pipeline_to_run, plan = runnable(pipeline)
    planned = None if plan is None else planned_run(plan)
    if load is None and planned is not None:
        load = parse_load(str(planned.rate))
    if search:
        load = Load.constant(1.0)
    elif load is None:
        if is_driven_by_load(pipeline_to_run):
            raise BadInputError("rate=: expected tuples/s; only a plan has a rate of its own")
        load = Load.constant(UNKNOWN_RATE)
    demands = demands_to_run(pipeline_to_run, find_models_for(plan, models))
    plan_rates = planned.rates if planned else None
    if threads is not None:
        known = {name: threads[name] for name in pipeline_to_run.operators if name in threads}
        planned = PlannedRun(load.peak_rate, known, slots or 1, plan_rates or {})
    most_work = most_work_seconds(config.batch_interval_ms / 1000)
    most_rate = math.inf if search else load.peak_rate
    slots = slots or (planned.slots if planned else None) or cores_here()
    cores = cores_here() if here else slots
    admission = admission_of(pipeline_to_run)
    setup = fused_setup(pipeline_to_run, planned, demands, slots, most_rate, cores, most_work, admission)
    unknown = [
        n for n, operator in pipeline_to_run.operators.items() if operator.kind is Kind.OPERATOR and demands[n] is None
    ]
    # declared demands have no time: batches sized by them would hold as much as if operators took none
    untimed = any(
        operator.kind is Kind.OPERATOR and not isinstance(demands[n], Model)
        for n, operator in pipeline_to_run.operators.items()
    )
    modelled = any(isinstance(demand, Model) for demand in demands.values())
    logic = logic_of(pipeline_to_run)
    notes = [f"operator '{name}' has no model: its work is not in the prediction" for name in unknown if modelled]
    notes += doubts_about(pipeline_to_run, demands, here=this_machine() if here else None, code=logic)
    if modelled and slots > cores:
        notes.append(f"{slots} slots share {cores} cores here")
    return FusedJob(
        pipeline=pipeline_to_run,
        logic=logic,
        threads=setup.threads,
        slots=slots,
        load=load,
        most_rows=FIRST_ROWS * slots if untimed else setup.most_rows,
        batch_seconds=most_work if untimed or search else None,
        notes=tuple(notes),
        plan_rates=plan_rates,
        setup=setup if modelled else None,
        slot_memory_mb=None if plan is None else plan.slots.memory_mb,
        planned_rate=None if plan is None else plan.rate,
        config=config,
    )


def planned_run(plan: SavedPlan) -> PlannedRun:
    """Return the fused run of a plan, by its verdict. Plans made for placed runs, or before there were verdicts, have
    the threads and slots of their placement."""
    rates, verdict = _plan_rates(plan, "plan"), plan.verdict
    if verdict is not None and verdict.engine == FUSED and set(verdict.threads) == set(plan.operators):
        in_all = {name: verdict.slots * count for name, count in verdict.threads.items()}
        return PlannedRun(plan.rate, in_all, verdict.slots, rates)
    threads = {name: planned.threads for name, planned in plan.operators.items()}
    return PlannedRun(plan.rate, threads, max(1, plan.slots.used), rates)


def planned_cores(plan: SavedPlan, demands: Demands, slots: int) -> int:
    """Cores a fused run of a plan is predicted for: those of its verdict if it has as many slots, else one for each
    slot, and no fewer than the machine of the models had."""
    if plan.verdict is not None and plan.verdict.engine == FUSED and plan.verdict.slots == slots:
        return round(plan.verdict.cores)
    return max([slots, *(it.measured_on.cores or 1 for it in demands.values() if isinstance(it, Model))])


def _plan_rates(plan: SavedPlan, where: str) -> dict[str, float | None]:
    rates = plan.prediction.get("rate")
    if not isinstance(rates, dict) or not all(rate is None or isinstance(rate, int | float) for rate in rates.values()):
        raise BadInputError(f"{where}: prediction.rate: expected tuples/s by routing")
    return dict(rates)


def batch_hearer(
    listener: Listener, load: Load | None, seconds: float | None
) -> tuple[Callable[[BatchObservation], None], Callable[[], Figures | None]]:
    """Return a function that passes each batch of a run to the listener, and one that returns the latest figures.
    Figures take time to compute, so the listener gets them once a second."""
    recent, since_figures = RecentBatches(load, seconds), Stopwatch()

    def hear(batch: BatchObservation) -> None:
        nonlocal since_figures
        recent.add(batch)
        listener.on_batch(batch)
        if since_figures.seconds() >= FIGURES_SECONDS and (figures := recent.figures()) is not None:
            since_figures = Stopwatch()
            listener.on_figures(figures)

    return hear, recent.figures


# The specification of the query, and the description for the process that resumes the run.


def spec_of(
    job: FusedJob, config: RunConfig, run: str, folder: Path, checkpoint: str | None = None, *, is_kept: bool = True
) -> FusedSpec:
    """Return the specification of the query. `checkpoint`: used if the options name none; default: in the folder.
    `is_kept`: the folder stays, so that the run can be resumed."""
    from penstock.engines.fused.query import FusedSpec  # noqa: PLC0415 - Spark loads only when it is used

    driven = is_driven_by_load(job.pipeline)
    return FusedSpec(
        run=run,
        pipeline=job.pipeline,
        code=job.logic,
        threads=job.threads,
        slots=job.slots,
        folder=folder,
        checkpoint=config.checkpoint or checkpoint or str(folder / "checkpoint"),
        config=config,
        load=job.load if driven else None,
        most_rows=job.most_rows,
        batch_seconds=job.batch_seconds,
        audit=audits(job, config.audit),
        close_windows=config.until_end and not is_kept and config.checkpoint is None,
    )


def audits(job: FusedJob, asked: bool | None) -> bool:
    """Return whether every tuple is audited: as asked; by default if the load generator emits them and they can be told
    apart."""
    unaudited = unaudited_by(job.pipeline, sparks_own_code(job.logic))
    if asked and unaudited is not None:
        raise BadInputError(
            f"audit=: operator '{unaudited}' is Spark's own and reads the source: behind it tuples are not told apart"
        )
    return is_driven_by_load(job.pipeline) and unaudited is None if asked is None else asked


def check_ends(pipeline: Pipeline, *, until_end: bool = False, local_by_default: bool = True) -> None:
    """Check of sources, before Spark is started, that there is an end and that files are there, on this machine's
    disks. `local_by_default`: paths without a scheme lie there."""
    for name in pipeline.sources:
        operator = pipeline.operators[name]
        reading = reading_of(operator)
        if until_end and reading.is_load:
            raise BadInputError(f"until_end=: source '{name}' emits as long as it is asked to: there is no end")
        given = reading.options.get("path", "")
        path = path_on_disk(given, local_by_default=local_by_default)
        if find_format(reading.format).is_files and reading.schema is None and path:
            pattern = f"{path}/*" if Path(path).is_dir() else path
            if next(iglob(pattern), None) is None:  # noqa: PTH207 - the user's pattern, from anywhere
                raise BadInputError(f"source '{name}': no file matches '{given}'; or give its schema, to wait for some")


def path_on_disk(place: str, *, local_by_default: bool) -> str | None:
    """A place as Hadoop writes it (`/data`, `file:/data`, `file:///data`) as a path of this machine; None: it lies
    elsewhere."""
    scheme, colon, path = place.partition(":")
    if not colon or "/" in scheme:
        return place if local_by_default else None
    return re.sub(r"^/{2,}", "/", path) if scheme.lower() == "file" else None


def describe_run(job: FusedJob, folder: RunFolder, checkpoint: str, given: str | None) -> None:
    """Write `run.json`, or check that this pipeline ran here before."""
    config = job.config
    known = folder.description if folder.has_run else None
    if known is not None and known.pipeline != job.pipeline.name:
        raise BadInputError(f"{folder.place}: pipeline '{known.pipeline}' ran here, not '{job.pipeline.name}'")
    in_python = code_only_in_python(job.pipeline)
    resolved = replace(
        with_executor_memory(config, job.slot_memory_mb),
        rate=job.load if is_driven_by_load(job.pipeline) else None,
        slots=job.slots,
        checkpoint=checkpoint,
        audit=audits(job, config.audit),
    )
    folder.describe(
        RunDescription(
            run=f"{job.pipeline.name}-{stamp()}-{secrets.token_hex(3)}" if known is None else known.run,
            pipeline=job.pipeline.name,
            config=resolved,
            given=given,
            definition=None if in_python else pipeline_document(job.pipeline),
            only_in_python=in_python and given is None,
            started_in=str(Path.cwd()),
            threads=dict(job.threads),
            most_rows=job.most_rows,
            batch_seconds=job.batch_seconds,
            started=stamp(),
        )
    )


def describe_slots(folder: RunFolder, slots: int) -> None:
    """Write the present slots for a resumed run, each with the threads it had; batches are sized for them."""
    known = folder.description
    rows = max(1, known.most_rows * slots // known.slots)
    config = replace(known.config, slots=slots)
    folder.describe(known.model_copy(update={"config": config, "most_rows": rows}))


def own_checkpoint(folder: RunFolder, *, local_by_default: bool) -> str:
    """Return the checkpoint of a run that was given none: in its folder, also if paths without a scheme are on another
    file system. A run that began without a scheme keeps its place, wherever that is."""
    if not folder.is_local:
        return spark_uri(f"{folder.place.rstrip('/')}/checkpoint")
    inside = str(folder.path / "checkpoint")
    began_so = folder.has_run and folder.description.config.checkpoint == inside
    return inside if local_by_default or began_so else f"{LOCAL}{inside}"


def is_own_checkpoint(folder: RunFolder, checkpoint: str | None) -> bool:
    if checkpoint is None:
        return True
    if not folder.is_local:
        return checkpoint == own_checkpoint(folder, local_by_default=True)
    return checkpoint.removeprefix(LOCAL) == str(folder.path / "checkpoint")


def spark_uri(uri: str) -> str:
    """Return the URI by which Spark's file systems know a place."""
    return f"s3a{uri.removeprefix('s3')}" if uri.startswith("s3://") else uri


def code_only_in_python(pipeline: Pipeline) -> bool:
    """Whether the document of a pipeline leaves something of it out."""
    return any(said_in_a_file(operator) is None for operator in pipeline.operators.values())


# Resuming a run from its folder.


def name_to_resume_by(given: RunnableLike) -> str | None:
    """Return the name of a pipeline or plan for resuming the run from anywhere: a file by its whole path. None: it is
    an object."""
    if not isinstance(given, str | Path):
        return None
    is_file = os.path.isfile(given)  # noqa: PTH113 - no error for odd names
    return str(Path(given).absolute()) if is_file else str(given)


def resumed_config(known: RunDescription, folder: RunFolder, anew: RunConfig, *, has_plan: bool) -> RunConfig:
    """Return the options a run was started with and those given anew; another plan brings other threads and slots."""
    if known.engine != FUSED:
        raise BadInputError(f"{folder.place}: a {known.engine} run, not a fused one")
    before = known.config
    if anew.dead_letters is not None and before.dead_letters is None:
        # they are an exit of the query, and its checkpoint knows how often it reads its sources
        raise BadInputError(f"dead_letters=: run '{known.run}' was started without; start another run to keep them")
    return replace(
        before.resumed_with(anew),
        slots=anew.slots or (None if has_plan else before.slots),
        executor_memory_mb=None if has_plan or anew.session is not None else before.executor_memory_mb,
        folder=folder.place,
        checkpoint=None if is_own_checkpoint(folder, before.checkpoint) else before.checkpoint,
    )


def prepare_as_before(known: RunDescription, folder: RunFolder, given: Pipeline | None, config: RunConfig) -> FusedJob:
    """Return the run with the threads it had, over the slots given now; and with batches as it had them, unless other
    slots or models say otherwise."""
    threads = {name: count * known.slots for name, count in known.threads.items()}
    job = prepare(given if given is not None else _named(known, folder.place), config, threads=threads)
    if config.models is None and job.slots == known.slots:
        return replace(job, most_rows=known.most_rows, batch_seconds=known.batch_seconds)
    return job


def _named(known: RunDescription, folder: str) -> RunnableLike:
    """Return the pipeline or plan by the name it was given: code beside its file is found by that. Without a name, code
    is found in the folder in which the run was started."""
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
