"""`penstock.profile(...)`: models of operators from trials on embedded Spark."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import api
from penstock.clock import Stopwatch, today
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.errors import BadInputError, nearest
from penstock.files import check_writable, write_text
from penstock.modelling.file import models_document, read_models_and_profiles
from penstock.modelling.fit import QUIET, described, fits, says_where
from penstock.modelling.machine import this_machine
from penstock.modelling.model import MeasuredOn, Model
from penstock.modelling.pace import at_one_pace
from penstock.running import logic_of
from penstock.workloads.operators import reference_logic, services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.model import Point
    from penstock.modelling.task_profile import TaskProfile
    from penstock.spark.profiling import ProfileSettings
    from penstock.spark.trials import EngineCost, TrialQuery

ENGINE_SECONDS = 1.0
"""A look at what the engine needs for a batch."""
HANDLING_SECONDS = 2.0
"""A look at what a worker needs for any tuple."""


@dataclass(frozen=True, slots=True)
class ProfileProgress:
    """Where a profile is: operators done of all, and seconds spent of the current one's budget."""

    doing: str
    done: int
    of: int
    spent_seconds: float
    budget_seconds: float

    @property
    def part(self) -> float:
        """0 to 1, by the time that may be spent; an operator that is done early counts whole."""
        current = min(1.0, self.spent_seconds / self.budget_seconds) if self.budget_seconds > 0 else 0.0
        return (self.done + current) / self.of if self.of else 1.0

    @property
    def most_seconds_left(self) -> float:
        return max(0.0, self.budget_seconds * (self.of - self.done) - self.spent_seconds)


def profile(
    pipeline: api.PipelineLike,
    output: str | Path,
    *,
    operators: list[str] | None = None,
    quick: bool = False,
    fresh: bool = False,
    budget_seconds: float | None = None,
    trial_seconds: float | None = None,
    most_threads: int | None = None,
    repeats: int = 1,
    watch: Callable[[str, Point], None] | None = None,
    progress: Callable[[ProfileProgress], None] | None = None,
    building: Callable[[int, int], None] | None = None,
) -> list[Model]:
    """Measure the operators of a pipeline in trials on embedded Spark and write their models to `output`.

    Every point is written as soon as it is measured; points already there are kept and not measured again, so a profile
    that was interrupted goes on where it stopped; but those that were measured while others used much of the machine
    are. A file measured on something else is refused, unless `fresh` says to
    forget what it holds. `watch` hears of every point, `progress` several times a second where things are.
    """
    settings = profile_settings(
        quick=quick,
        budget_seconds=budget_seconds,
        trial_seconds=trial_seconds,
        most_threads=most_threads,
        repeats=repeats,
    )
    subject = subject_of(pipeline, operators)
    path = Path(output)
    check_writable(path)
    here = this_machine()
    there, profiles = ([], []) if fresh or not path.exists() else read_models_and_profiles(path)
    found = {model.name: model for model in there}
    refuse_to_mix(path, found.values(), here)
    session = _Profile(path, settings, here, found, profiles, watch, progress)
    pending = session.pending(subject.code)
    if pending:
        with services(subject.models_run_for(pending), given=os.environ, progress=building) as environment:
            session.measure(subject, pending, environment)
    return [session.models[name] for name in subject.code if name in session.models]


def profile_settings(
    *,
    quick: bool = False,
    budget_seconds: float | None = None,
    trial_seconds: float | None = None,
    most_threads: int | None = None,
    repeats: int = 1,
) -> ProfileSettings:
    """Those of a thorough or a quick profile, with what was asked for in their place."""
    from penstock.spark.profiling import QUICK, THOROUGH  # noqa: PLC0415 - the package of Spark loads when it is used

    chosen = QUICK if quick else THOROUGH
    for what, given in (
        ("budget", budget_seconds),
        ("trial", trial_seconds),
        ("threads", most_threads),
        ("repeats", repeats),
    ):
        if given is not None and not 0 < given < float("inf"):
            raise BadInputError(f"{what}: expected a number above 0, found {given:g}")
    return replace(
        chosen,
        budget_seconds=chosen.budget_seconds if budget_seconds is None else budget_seconds,
        trial_seconds=chosen.trial_seconds if trial_seconds is None else trial_seconds,
        most_threads=chosen.most_threads if most_threads is None else most_threads,
        repeats=repeats,
    )


def refuse_to_mix(path: Path, models: Iterable[Model], here: MeasuredOn) -> None:
    """A file holds what was measured on one thing."""
    for model in models:
        if not says_where(model.measured_on) or not fits(model.measured_on, here):
            raise BadInputError(
                f"{path}: model '{model.name}' was measured on {described(model.measured_on)}, this is "
                f"{described(here)}; write to another file, or start over with --fresh"
            )


@dataclass(frozen=True)
class Subject:
    """What is measured: code by the name its model will have."""

    pipeline: Pipeline
    logic: Mapping[str, Logic]
    """Of all operators, by their own names."""
    code: Mapping[str, Logic]
    operators: Mapping[str, str]
    """By the name of the model: one that has this code."""

    def sampled(self, models: Iterable[str]) -> dict[str, str]:
        """Operators by model, of those that get something else in their pipeline than a number, and may need it: the
        reference operators do not."""
        return {
            model: self.operators[model]
            for model in models
            if self.code[model] is not reference_logic.get(model) and not self._gets_numbers(self.operators[model])
        }

    def _gets_numbers(self, operator: str) -> bool:
        senders = [stream.sender for stream in self.pipeline.inputs(operator)]
        sources = self.pipeline.sources
        return all(
            one in sources and one not in self.logic and self.pipeline.operators[one].files is None for one in senders
        )

    def models_run_for(self, models: Iterable[str]) -> set[str]:
        """Those whose code runs when `models` are measured: where tuples are put through the pipeline, all."""
        measured = set(models)
        everything = {self.pipeline.operators[name].model or name for name in self.logic}
        return everything if self.sampled(measured) else measured


def subject_of(pipeline: api.PipelineLike, operators: list[str] | None) -> Subject:
    """Only that of `operators`, where some are named."""
    found = api.find_pipeline(pipeline)
    logic = logic_of(found)
    models = {name: found.operators[name].model or name for name in logic}
    by_model = {model: name for name, model in models.items()}
    if not by_model:
        raise BadInputError(f"pipeline '{found.name}' has no operator with code to measure")
    for name in operators or ():
        if name not in by_model and name not in models:
            raise BadInputError(f"unknown operator or model '{name}'; {nearest(name, [*models, *by_model])}")
    asked = {models.get(name, name) for name in operators or by_model}
    code = {model: logic[name] for model, name in by_model.items() if model in asked}
    return Subject(found, logic, code, by_model)


class _Profile:
    """One profile under way: what is known so far, and the file it stands in."""

    def __init__(
        self,
        path: Path,
        settings: ProfileSettings,
        here: MeasuredOn,
        models: dict[str, Model],
        profiles: list[TaskProfile],
        watch: Callable[[str, Point], None] | None,
        progress: Callable[[ProfileProgress], None] | None,
    ) -> None:
        self.models = models
        self._profiles = profiles
        self._path = path
        self._settings = settings
        self._here = here
        self._watch = watch
        self._progress = progress
        self._doing, self._done, self._of = "starting Spark", 0, 0
        self._spent: Stopwatch | None = None

    def pending(self, named: Mapping[str, Logic]) -> dict[str, Logic]:
        """The operators with something left to measure."""
        from penstock.spark.profiling import thread_counts  # noqa: PLC0415 - the package of Spark loads when it is used

        return {
            name: code
            for name, code in named.items()
            if thread_counts({point.threads: point.rate for point in self._known(name)}, self._settings) is not None
        }

    def measure(self, subject: Subject, pending: Mapping[str, Logic], environment: Mapping[str, str]) -> None:
        try:
            from penstock.spark.fused import RunFailedError  # noqa: PLC0415 - Spark loads only when it is used
            from penstock.spark.samples import take_samples  # noqa: PLC0415
            from penstock.spark.session import embedded_session  # noqa: PLC0415
            from penstock.spark.trials import TrialQuery  # noqa: PLC0415
        except ImportError as error:
            raise BadInputError("profiling needs pyspark; install it with: pip install 'penstock[spark]'") from error

        self._of = len(pending)
        self._tell()
        try:
            with embedded_session(1, warm=False) as session:
                sampled = subject.sampled(pending)
                found = (
                    take_samples(session, subject.pipeline, subject.logic, sampled.values(), environment)
                    if sampled
                    else {}
                )
                samples = {model: found[operator] for model, operator in sampled.items() if operator in found}
                with TrialQuery(session, pending, environment, self._tell, samples) as query:
                    self._measure_all(pending, query)
        except RunFailedError as error:
            raise BadInputError(str(error)) from error

    def _measure_all(self, pending: Mapping[str, Logic], query: TrialQuery) -> None:
        engine = query.engine_cost(ENGINE_SECONDS)
        handling = query.handling_seconds(HANDLING_SECONDS, self._settings.batch_seconds, engine)
        engine = replace(engine, handling_seconds=handling)
        for name in pending:
            self._measure_one(name, query, engine)
            if not self._done:
                # Java was new at the first look, and gets faster as it compiles
                again = replace(query.engine_cost(ENGINE_SECONDS), handling_seconds=handling)
                engine = min(engine, again, key=lambda cost: cost.batch_seconds)
                self._keep(name, self.models[name].points, engine)
            self._done += 1

    def _measure_one(self, name: str, query: TrialQuery, engine: EngineCost) -> None:
        from penstock.spark.profiling import profile as profile_points  # noqa: PLC0415 - Spark loads only when it is used

        spent = self._spent = Stopwatch()
        batch_seconds = self._batch_seconds(name)
        self._doing = f"{name} ({self._done + 1} of {self._of})"
        points = profile_points(
            query.bench(name, batch_seconds, self._settings.fewest_batches),
            self._settings,
            DEFAULT_SLOT_MEMORY_MB,
            self._known(name),
            lambda: spent.seconds() > self._settings.budget_seconds,
        )
        for point in points:
            kept = {**{one.threads: one for one in self._kept(name)}, point.threads: point}
            self._keep(name, tuple(kept[threads] for threads in sorted(kept)), engine)
            if self._watch is not None:
                self._watch(name, point)
        self._spent = None

    def _known(self, name: str) -> list[Point]:
        """Points to go on from: those that were measured while others used little of the machine."""
        return [point for point in self._kept(name) if (point.others_cpu or 0.0) <= QUIET]

    def _kept(self, name: str) -> list[Point]:
        """Points that stay until they are measured again. Those of a quick profile are worth nothing to a thorough
        one."""
        if name not in self.models or self._batch_seconds(name) > (
            self.models[name].measured_on.batch_seconds or self._settings.batch_seconds
        ):
            return []
        return list(self.models[name].points)

    def _batch_seconds(self, name: str) -> float:
        before = self.models[name].measured_on.batch_seconds if name in self.models else None
        return max(self._settings.batch_seconds, before or 0.0)

    def _keep(self, name: str, points: tuple[Point, ...], engine: EngineCost) -> None:
        measured_on = self._here.model_copy(
            update={
                "what": "trials of penstock profile on embedded Spark",
                "slot_memory_mb": DEFAULT_SLOT_MEMORY_MB,
                "date": today(),
                "batch_seconds": self._batch_seconds(name),
                "batch_overhead_ms": 1000 * engine.batch_seconds,
                "batch_cpu_ms": 1000 * engine.batch_cpu_seconds,
                "worker_batch_cpu_ms": 1000 * engine.worker_cpu_seconds,
                "others_cpu": max((point.others_cpu or 0.0 for point in points), default=None),
                "handling_us": 1e6 * engine.handling_seconds,
                "base_memory_mb": engine.base_memory_mb,
            }
        )
        self.models[name] = Model(name, points, measured_on)
        self.models = {model.name: model for model in at_one_pace(self.models.values())}
        write_text(
            self._path, json.dumps(models_document(self.models.values(), profiles=self._profiles), indent=1) + "\n"
        )

    def _tell(self) -> None:
        if self._progress is not None:
            spent = 0.0 if self._spent is None else self._spent.seconds()
            self._progress(ProfileProgress(self._doing, self._done, self._of, spent, self._settings.budget_seconds))
