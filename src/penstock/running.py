"""The verbs that need Spark, as functions: `penstock.profile(...)` and `penstock.run(...)`."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import api
from penstock.allocation.pipeline import demands_of
from penstock.clock import Stopwatch, today
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.dataflow.load import Load, parse_load
from penstock.dataflow.logic import Logic, find_logic
from penstock.dataflow.pipeline import Kind, Pipeline
from penstock.dataflow.rates import gains
from penstock.errors import BadInputError, nearest
from penstock.files import write_text
from penstock.modelling.file import models_document, read_models
from penstock.modelling.model import MeasuredOn, Model
from penstock.prediction.fused import fused_batch, fused_rate, fused_threads
from penstock.workloads.operators import reference_logic, services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.modelling.model import Point
    from penstock.report.report import BatchObservation, Report

DEFAULT_BUDGET_SECONDS = 60.0
ASSUMED_OVERHEAD_SECONDS = 0.15
"""What the engine needs for a batch where no model says."""
BATCH_SECONDS = 1.0
"""Batches of a run hold at most so much work."""


@dataclass(frozen=True)
class RunResult:
    """Predicted beside measured."""

    pipeline: str
    slots: int
    threads: dict[str, int]
    predicted_rate: float
    report: Report

    @property
    def rate_error(self) -> float | None:
        """(predicted - measured) / measured, where the pipeline was asked for more than it can do."""
        if self.report.stable or not self.report.sustained_rate:
            return None
        return (self.predicted_rate - self.report.sustained_rate) / self.report.sustained_rate

    def document(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "mode": "fused",
            "threads_per_slot": self.threads,
            "predicted_rate": self.predicted_rate,
            "rate_error": self.rate_error,
            **self.report.document(),
        }


def logic_of(pipeline: Pipeline) -> dict[str, Logic]:
    """The code of every operator: given in Python, named by `run`, or that of the reference task its model names."""
    found: dict[str, Logic] = {}
    for name, operator in pipeline.operators.items():
        if operator.logic is not None:
            found[name] = operator.logic
        elif operator.run is not None:
            found[name] = find_logic(operator.run)
        elif operator.kind is Kind.OPERATOR:
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
        session = start_session(slots, Path(folder) / "java.log")
        try:
            yield session
        finally:
            session.stop()


def run(
    pipeline: api.PipelineLike,
    rate: float | str | Load,
    *,
    slots: int | None = None,
    seconds: float = 20.0,
    warm_up: float = 5.0,
    models: api.ModelsLike = None,
    watch: Callable[[BatchObservation], None] | None = None,
    building: Callable[[int, int], None] | None = None,
) -> RunResult:
    """Run a pipeline fused on embedded Spark for `seconds`, and report predicted beside measured.

    `rate` is tuples/s, or a load as `penstock.dataflow.load.parse_load` reads it. `watch` hears of every batch,
    `building` how many rows of the reference table are there while it is built the first time.
    """
    found = api.find_pipeline(pipeline)
    load = rate if isinstance(rate, Load) else parse_load(str(rate))
    slots = slots or os.cpu_count() or 1
    if not 0 < warm_up < seconds:
        raise BadInputError(f"seconds: expected more than the warm-up of {warm_up:g}, found {seconds:g}")
    for stream in found.streams:
        if stream.weight != 1:
            raise BadInputError(f"stream {stream}: running a stream of weight {stream.weight:g} is not possible yet")
    logic = logic_of(found)
    demands = demands_of(found, api.models(models))
    pipeline_gains = gains(found)
    threads = fused_threads(pipeline_gains, demands, load.mean_rate, slots)
    overhead = _overhead([demand for demand in demands.values() if isinstance(demand, Model)])
    most_rows = fused_batch(pipeline_gains, demands, threads, slots, BATCH_SECONDS)
    predicted = fused_rate(pipeline_gains, demands, threads, slots, most_rows, overhead)
    needed = {operator.model or name for name, operator in found.operators.items()}
    with services(needed, given=os.environ, progress=building) as environment, _session(slots) as session:
        from penstock.spark.fused import FusedRun, run_fused  # noqa: PLC0415 - Spark loads only when it is used

        fused = FusedRun(found, logic, threads, load, slots, most_rows, environment=environment)
        report = run_fused(session, fused, seconds, warm_up, watch)
    return RunResult(found.name, slots, threads, predicted, report)


def _overhead(models: list[Model]) -> float:
    told = [m.measured_on.batch_overhead_ms for m in models if m.measured_on.batch_overhead_ms is not None]
    return sum(told) / len(told) / 1000 if told else ASSUMED_OVERHEAD_SECONDS


def profile(
    pipeline: api.PipelineLike,
    output: str | Path,
    *,
    operators: list[str] | None = None,
    budget_seconds: float = DEFAULT_BUDGET_SECONDS,
    trial_seconds: float = 4.0,
    most_threads: int = 64,
    repeats: int = 1,
    watch: Callable[[str, Point], None] | None = None,
    building: Callable[[int, int], None] | None = None,
) -> list[Model]:
    """Measure the operators of a pipeline in trials on embedded Spark and write their models to `output`.

    Every point is written as soon as it is measured; points already there are kept and not measured again, so a profile
    that was interrupted goes on where it stopped.
    """
    from penstock.spark.profiling import ProfileSettings  # noqa: PLC0415 - Spark loads only when it is used
    from penstock.spark.profiling import profile as profile_points  # noqa: PLC0415

    found = api.find_pipeline(pipeline)
    logic = logic_of(found)
    named = {found.operators[name].model or name: code for name, code in logic.items()}
    for name in operators or ():
        if name not in named:
            raise BadInputError(f"unknown operator or model '{name}'; {nearest(name, named)}")
    settings = ProfileSettings(trial_seconds, most_threads=most_threads, repeats=repeats)
    path = Path(output)
    done = {model.name: model for model in read_models(path)} if path.exists() else {}
    with services(named, given=os.environ, progress=building) as environment, _session(1) as session:
        from penstock.spark.trials import SparkBench, batch_overhead  # noqa: PLC0415 - Spark loads only when it is used

        overhead = batch_overhead(session)
        for name, code in named.items():
            if operators and name not in operators:
                continue
            spent = Stopwatch()
            known = list(done[name].points) if name in done else []
            bench = SparkBench(session, name, code, environment)
            over = partial(_over, spent, budget_seconds)
            for point in profile_points(bench, settings, DEFAULT_SLOT_MEMORY_MB, known, over):
                known = sorted([*known, point], key=lambda one: one.threads)
                done[name] = Model(name, tuple(known), _measured_on(session.version, overhead))
                write_text(path, json.dumps(models_document(done.values()), indent=1) + "\n")
                if watch is not None:
                    watch(name, point)
    return [done[name] for name in named if name in done]


def _over(watch: Stopwatch, seconds: float) -> bool:
    return watch.seconds() > seconds


def _measured_on(spark: str, overhead_seconds: float) -> MeasuredOn:
    return MeasuredOn(
        what="trials of penstock profile on embedded Spark",
        cpu=platform.processor() or platform.machine(),
        cores=os.cpu_count(),
        slot_memory_mb=DEFAULT_SLOT_MEMORY_MB,
        spark=spark,
        date=today(),
        batch_overhead_ms=1000 * overhead_seconds,
    )
