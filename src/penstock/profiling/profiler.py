"""Models of operators from trials on embedded Spark: what is measured, in which order, and what is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch, today
from penstock.base.errors import BadInputError, RunFailedError
from penstock.base.extras import missing_package
from penstock.base.files import write_output
from penstock.base.text import one_of
from penstock.cluster.cores import cores_here
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.dataflow.formats import is_driven_by_load
from penstock.dataflow.logic import Per
from penstock.engines.fused.preparation import UNKNOWN_RATE
from penstock.modelling.library import (
    QUIET,
    described,
    fits,
    models_document,
    other_selectivity,
    rehearsals_of,
    says_where,
)
from penstock.modelling.model import MeasuredOn, Model, Point, at_one_pace, within_one_core
from penstock.planning.prediction.fused import fused_setup, rows_of_batch
from penstock.report.listener import Listener, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from penstock.dataflow.logic import Logic
    from penstock.modelling.model import Rehearsal
    from penstock.modelling.task_profile import TaskProfile
    from penstock.planning.prediction.fused import FusedSetup
    from penstock.planning.prediction.placement import Demands
    from penstock.profiling.rehearsal import RehearsalSpec
    from penstock.profiling.samples import OperatorSample, OwnSample, SampledFlow, Taken
    from penstock.profiling.subject import ProfileSubject
    from penstock.profiling.trial_search import ProfileSettings
    from penstock.profiling.trials import EngineCost, TrialQuery


# Rehearsal of a pipeline whose operators are known: its threads, its batches, its progress messages.


PART, SMALLER = 1.2, 6
"""Batches of a rehearsal hold so much of the work of those of a trial, as the models say, and so many times less. What
single batches take varies by a tenth, and is extrapolated to those of a run, which hold several times as much."""
LONGER = 1.5
"""Times as much work where an operator has several threads: they begin together and are in each other's way, a round of
20 ms takes 24, until they have drifted apart."""
MORE_THAN_DONE = 3.0
"""So many times what the models say is due, so that batches are full."""
MOST_SLOTS = 4


def most_rehearsed_slots() -> int:
    """As many as there are cores; more than a few are taken to be alike."""
    return min(MOST_SLOTS, cores_here())


def rehearsals_on(
    session: Any,
    subject: ProfileSubject,
    models: Mapping[str, Model],
    sources: Mapping[str, OperatorSample],
    environment: Mapping[str, str],
    batch_seconds: float,
    tick: Callable[[], None],
    tell: Callable[[str], None],
) -> tuple[Rehearsal, ...]:
    """In as many slots as the machine has cores, and in one; none where that is not possible, which is told."""
    from penstock.profiling.rehearsal import rehearsable, rehearse  # noqa: PLC0415 - Spark loads only when it is used

    name = subject.pipeline.name
    why_not = rehearsable(subject.pipeline, sources) if len(models) == len(subject.models) else "not all is known"
    rehearsals: list[Rehearsal] = []
    # most slots first: what Java compiles while all cores are at work serves the single slot too
    for slots in sorted({1, most_rehearsed_slots()}, reverse=True) if why_not is None else ():
        setup = setup_to_rehearse(subject, models, slots)
        try:
            seen = rehearse(session, spec_to_rehearse(subject, setup, sources, environment, PART * batch_seconds), tick)
        except RunFailedError as error:
            why_not = str(error)
            break
        rehearsals.append(seen)
        tell(as_a_whole(seen, setup))
    if why_not is None:
        return tuple(rehearsals)
    tell(f"pipeline '{name}' was not run as a whole ({why_not}): what Spark needs for its tuples is in no prediction")
    return ()


def setup_to_rehearse(subject: ProfileSubject, models: Mapping[str, Model], slots: int) -> FusedSetup:
    """With the threads its models say, and nothing known of the whole."""
    pipeline = subject.pipeline
    demands: Demands = {name: _unrehearsed(models.get(name)) for name in pipeline.operators}
    return fused_setup(pipeline, None, demands, slots, UNKNOWN_RATE, cores_here())


def _unrehearsed(model: Model | None) -> Model | None:
    if model is None:
        return None
    return replace(model, measured_on=model.measured_on.model_copy(update={"rehearsals": ()}))


def spec_to_rehearse(
    subject: ProfileSubject,
    setup: FusedSetup,
    sources: Mapping[str, OperatorSample],
    environment: Mapping[str, str],
    batch_seconds: float,
) -> RehearsalSpec:
    from penstock.profiling.rehearsal import RehearsalSpec  # noqa: PLC0415 - Spark loads only when it is used

    small, large = rows_to_rehearse(setup, batch_seconds)
    return RehearsalSpec(
        pipeline=subject.pipeline,
        code=subject.logic,
        threads=setup.threads,
        slots=setup.slots,
        small=small,
        large=large,
        due_rate=MORE_THAN_DONE * setup.rate(),
        sources=sources,
        environment=environment,
    )


def rows_to_rehearse(setup: FusedSetup, batch_seconds: float) -> tuple[int, int]:
    """Of a small and of a large batch, over all slots."""
    waits = any(count > 1 for count in setup.threads.values())
    large = rows_of_batch(setup, LONGER * batch_seconds if waits else batch_seconds)
    small = max(setup.slots, large // SMALLER)
    return small, max(small + setup.slots, large)


def as_a_whole(rehearsal: Rehearsal, setup: FusedSetup) -> str:
    """What it did, beside what its operators promise."""
    large = rehearsal.large
    alone = large.tuples / setup.batch_seconds(large.tuples)
    return (
        f"as a whole on {rehearsal.slots} {'slot' if rehearsal.slots == 1 else 'slots'}: "
        f"{large.tuples / large.seconds:,.0f} tuples/s in batches of {large.tuples:,}, where models of its operators, "
        f"measured alone, say {alone:,.0f}"
    )


# Facts about operators from sampled tuples, by the names of their models.


def columns_by_model(operators: Mapping[str, str], taken: Taken) -> dict[str, str]:
    """What came to the operator of each model, where anything did."""
    inputs = {name: [sample] for name, sample in taken.code.items()} | {
        name: list(own.inputs) for name, own in taken.sparks_own.items()
    }
    return {
        model: "; ".join(_described(sample.rows.schema) for sample in inputs[name])
        for model, name in operators.items()
        if name in inputs
    }


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def flows_by_model(operators: Mapping[str, str], taken: Taken) -> dict[str, SampledFlow]:
    """How many came to its operator, and how many that sent, where it is code of a slot."""
    flows = {name: sample.flow for name, sample in taken.code.items() if sample.flow is not None}
    return {model: flows[name] for model, name in operators.items() if name in flows}


def without_samples(operators: Mapping[str, str], taken: Taken) -> list[str]:
    """Models of operators to which nothing came."""
    return [model for model, name in operators.items() if name not in taken.code and name not in taken.sparks_own]


ENGINE_SECONDS = 1.0
"""A look at what the engine needs for a batch."""
HANDLING_SECONDS = 2.0
"""A look at what a worker needs for any tuple."""


def progress_of(doing: str, done: int, of: int, spent_seconds: float, budget_seconds: float) -> Progress:
    """Operators done of all, by the time that may be spent on each; one that is done early counts whole."""
    current = min(1.0, spent_seconds / budget_seconds) if budget_seconds > 0 else 0.0
    return Progress(doing, done + current, of, max(0.0, budget_seconds * (of - done) - spent_seconds))


def profile_settings(
    *,
    quick: bool = False,
    budget_seconds: float | None = None,
    trial_seconds: float | None = None,
    most_threads: int | None = None,
    repeats: int = 1,
    search: str = "bracket",
    rate_step: float | None = None,
    thread_step: int | None = None,
) -> ProfileSettings:
    """Return the settings of a thorough or a quick profile, with those given in their place."""
    from penstock.profiling.trial_search import QUICK, THOROUGH, TrialSearch  # noqa: PLC0415 - the package of Spark loads when it is used

    chosen = QUICK if quick else THOROUGH
    for what, given in (
        ("budget", budget_seconds),
        ("trial", trial_seconds),
        ("threads", most_threads),
        ("repeats", repeats),
        ("rate step", rate_step),
        ("thread step", thread_step),
    ):
        if given is not None and not 0 < given < float("inf"):
            raise BadInputError(f"{what}: expected a number above 0, found {given:g}")
    way = one_of(TrialSearch, search, "search")
    if way is TrialSearch.BRACKET and (rate_step is not None or thread_step is not None):
        raise BadInputError("steps of rates and threads are those of search=stepwise")
    return replace(
        chosen,
        search=way,
        rate_step=rate_step or chosen.rate_step,
        thread_step=thread_step or chosen.thread_step,
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
                f"{described(here)}; write to another file, or start over with fresh="
            )


def own_point(rate: float, operator_cpu: float, others: float, pace: float | None) -> Point:
    """Of what is part of the query itself."""
    return Point(
        threads=1,
        rate=rate,
        cpu=1.0,
        memory=0.0,
        operator_cpu=operator_cpu,
        others_cpu=others,
        pace=pace,
        provenance={
            "rate": "the slope of batches of its samples, less that of the same stream without it",
            "cpu": "taken to keep a core busy while it works",
            "memory": "that of Java, which is in no model",
            "pace": "seen between batches",
        },
    )


class Profile:
    """One profile under way: what is known so far, and the file it stands in."""

    def __init__(
        self,
        path: Path,
        settings: ProfileSettings,
        here: MeasuredOn,
        models: dict[str, Model],
        profiles: list[TaskProfile],
        listener: Listener,
        codes: Mapping[str, str] | None = None,
    ) -> None:
        self._codes = codes or {}
        """Fingerprints of the code there is now."""
        self._gets: dict[str, str] = {}
        """Columns of the samples."""
        self._flows: dict[str, SampledFlow] = {}
        """What operators let through of them."""
        changed = [
            name
            for name, model in models.items()
            if name in self._codes and model.measured_on.code not in (None, self._codes[name])
        ]
        for name in changed:
            listener.on_message(f"the code of {name} changed since it was measured: it is measured again")
        self.models = {name: model for name, model in models.items() if name not in changed}
        self._profiles = profiles
        self._path = path
        self._settings = settings
        self._here = here
        self._listener = listener
        self._doing, self._done, self._of = "starting Spark", 0, 0
        self._spent: Stopwatch | None = None

    def pending(self, named: Mapping[str, Logic]) -> dict[str, Logic]:
        """The operators with something left to measure."""
        from penstock.profiling.trial_search import TrialSearch, thread_counts  # noqa: PLC0415 - the package of Spark loads when it is used

        def is_pending(name: str, code: Logic) -> bool:
            known = {point.threads: point.rate for point in self._known(name)}
            if code.per is Per.DATAFRAME or self._settings.search is TrialSearch.STEPWISE:
                return not known
            return thread_counts(known, self._settings) is not None

        return {name: code for name, code in named.items() if is_pending(name, code)}

    def forget_other_columns(self, named: Mapping[str, Logic], gets: Mapping[str, str]) -> dict[str, Logic]:
        """The operators that get other columns than they were measured with: what was measured is of no use."""
        others = {
            name: code
            for name, code in named.items()
            if name in self.models and name in gets and self.models[name].measured_on.gets not in (None, gets[name])
        }
        for name in others:
            before = self.models.pop(name).measured_on.gets
            self._listener.on_message(f"{name} was measured with {before}, and gets {gets[name]}: it is measured again")
        return others

    def wants_rehearsal(self, subject: ProfileSubject) -> bool:
        """Whether all is known of its operators, and nothing of the whole."""
        known = self._models_of(subject)
        return len(known) == len(subject.models) and not rehearsals_of(subject.pipeline, known)

    def measure(self, subject: ProfileSubject, pending: Mapping[str, Logic], environment: Mapping[str, str]) -> None:
        try:
            from penstock.profiling.samples import take_samples  # noqa: PLC0415
            from penstock.spark.session.embedded import embedded_session, one_slot  # noqa: PLC0415 - Spark loads only when it is used
        except ImportError as error:
            raise missing_package("pyspark", "profiling needs") from error

        self._of = len(pending)
        self._tell()
        try:
            with embedded_session(most_rehearsed_slots(), warm=False) as session:
                # where tuples are put through the pipeline anyway, it is seen what those measured before get now
                sampled = subject.sampled(subject.code if subject.sampled(pending) else pending)
                wanted = {*sampled.values(), *subject.own_sources()}
                with one_slot(session):
                    taken = take_samples(session, subject.pipeline, subject.logic, wanted, environment)
                    self._gets, self._flows = columns_by_model(sampled, taken), flows_by_model(sampled, taken)
                    pending = {**pending, **self.forget_other_columns(subject.code, self._gets)}
                    self._of = len(pending)
                    if pending:
                        self._measure_operators(session, subject, pending, taken, environment)
                for doubt in other_selectivity(subject.pipeline, self._models_of(subject)):
                    self._listener.on_message(doubt)
                self._rehearse(session, subject, taken.ends, environment)
        except RunFailedError as error:
            raise BadInputError(str(error)) from error

    def _measure_operators(
        self,
        session: Any,
        subject: ProfileSubject,
        pending: Mapping[str, Logic],
        taken: Taken,
        environment: Mapping[str, str],
    ) -> None:
        """Each alone, in one slot."""
        from penstock.profiling.trials import TrialQuery  # noqa: PLC0415 - Spark loads only when it is used

        sampled = subject.sampled(pending)
        unknown = without_samples(sampled, taken)
        for model in unknown:
            self._listener.on_message(
                f"no sample tuple came to {model}: what it takes stays unknown (operators before it let none of "
                "those through that were tried)"
            )
        pending = {model: code for model, code in pending.items() if model not in unknown}
        self._of = len(pending)
        if not pending:
            return
        samples = {model: taken.code[name] for model, name in sampled.items() if name in taken.code}
        audit = is_driven_by_load(subject.pipeline)
        in_slots = {model: code for model, code in pending.items() if code.per is not Per.DATAFRAME}
        with TrialQuery(session, in_slots, environment, self._tell, samples, audit=audit) as query:
            engine = self._measure_all(in_slots, query)
        for model in [name_of_model for name_of_model in pending if name_of_model not in in_slots]:
            own = taken.sparks_own[subject.operators[model]]
            self._measure_sparks_own(session, model, pending[model], own, engine)

    def _rehearse(
        self,
        session: Any,
        subject: ProfileSubject,
        sources: Mapping[str, OperatorSample],
        environment: Mapping[str, str],
    ) -> None:
        """Behind the trials, which have warmed Java up."""
        self._doing = "the pipeline as a whole"
        self._tell()
        known = self._models_of(subject)
        batch_seconds = self._settings.batch_seconds
        rehearsals = rehearsals_on(
            session, subject, known, sources, environment, batch_seconds, self._tell, self._listener.on_message
        )
        if not rehearsals:
            return
        for model in known.values():
            measured_on = model.measured_on.model_copy(update={"rehearsals": rehearsals})
            self.models[model.name] = replace(model, measured_on=measured_on)
        self._write()

    def _models_of(self, subject: ProfileSubject) -> dict[str, Model]:
        """By operator, of those there is a model of."""
        return {name: self.models[model] for name, model in subject.models.items() if model in self.models}

    def _measure_sparks_own(self, session: Any, name: str, code: Logic, own: OwnSample, engine: EngineCost) -> None:
        """One point: an operator of Spark's own has the threads Spark gives it, one in a slot. `S = s B / (B + o)` is
        what a model means by the time for a row."""
        from penstock.profiling.keyed_rows import keyed_seconds  # noqa: PLC0415 - pyarrow and pandas load when used
        from penstock.profiling.samples import SampledFlow  # noqa: PLC0415
        from penstock.profiling.spark_operators import measure_sparks_own, together  # noqa: PLC0415 - Spark loads only when it is used

        self._doing = f"{name} ({self._done + 1} of {self._of})"
        nothing = measure_sparks_own(session, name, together, own.inputs, "append", self._tell)
        cost = measure_sparks_own(session, name, own.apply, own.inputs, own.mode, self._tell).beyond(nothing)
        part = self._settings.batch_seconds / (self._settings.batch_seconds + engine.batch_seconds)
        if cost.selectivity is not None:
            self._flows[name] = SampledFlow(sum(sample.rows.num_rows for sample in own.inputs), cost.selectivity)
        point = own_point(part / cost.row_seconds, part, cost.others, cost.pace)
        keyed = None if own.aggregate is None else keyed_seconds(own.aggregate, own.inputs[0].rows)
        self._keep(name, code, (point,), engine, own_batch_seconds=cost.batch_seconds, keyed_row_seconds=keyed)
        self._listener.on_point(name, point)
        self._done += 1

    def _measure_all(self, pending: Mapping[str, Logic], query: TrialQuery) -> EngineCost:
        engine = query.engine_cost(ENGINE_SECONDS)
        for name, code in pending.items():
            self._measure_one(name, code, query, engine)
            if not self._done:
                # Java was new at the first look, and gets faster as it compiles
                engine = self._handling(query, engine.least(query.engine_cost(ENGINE_SECONDS)))
                self._keep(name, code, self.models[name].points, engine)
            self._done += 1
        return engine

    def _handling(self, query: TrialQuery, engine: EngineCost) -> EngineCost:
        by_row = query.handling_cost(Per.ROW, HANDLING_SECONDS, self._settings.batch_seconds)
        by_column = query.handling_cost(Per.ARROW, HANDLING_SECONDS, self._settings.batch_seconds)
        return replace(
            engine,
            row_seconds=by_row.seconds,
            column_seconds=by_column.seconds,
            column_cpu_seconds=by_column.cpu_seconds,
        )

    def _measure_one(self, name: str, code: Logic, query: TrialQuery, engine: EngineCost) -> None:
        from penstock.profiling.trial_search import MOST_BUDGETS, Limits  # noqa: PLC0415 - Spark loads only when it is used
        from penstock.profiling.trial_search import profile as profile_points  # noqa: PLC0415

        spent, budget = Stopwatch(), self._settings.budget_seconds
        self._spent = spent
        batch_seconds = self._batch_seconds(name)
        self._doing = f"{name} ({self._done + 1} of {self._of})"
        points = profile_points(
            query.bench(name, batch_seconds, self._settings.fewest_batches),
            self._settings,
            DEFAULT_SLOT_MEMORY_MB,
            self._known(name),
            Limits(lambda: spent.seconds() > budget, lambda: spent.seconds() > MOST_BUDGETS * budget),
        )
        for point in points:
            kept = {**{known.threads: known for known in self._kept(name)}, point.threads: point}
            self._keep(name, code, tuple(kept[threads] for threads in sorted(kept)), engine)
            self._listener.on_point(name, point)
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

    def _keep(
        self,
        name: str,
        code: Logic,
        points: tuple[Point, ...],
        engine: EngineCost,
        own_batch_seconds: float | None = None,
        keyed_row_seconds: float | None = None,
    ) -> None:
        own = own_batch_seconds is not None
        flow = self._flows.get(name)
        measured_on = self._here.model_copy(
            update={
                "what": "trials of penstock profile on embedded Spark",
                "slot_memory_mb": DEFAULT_SLOT_MEMORY_MB,
                "date": today(),
                "batch_seconds": self._batch_seconds(name),
                "batch_overhead_ms": 1000 * engine.batch_seconds,
                "batch_cpu_ms": 1000 * engine.batch_cpu_seconds,
                "worker_batch_cpu_ms": None if own else 1000 * engine.worker_cpu_seconds,
                "others_cpu": max((point.others_cpu or 0.0 for point in points), default=None),
                "still_rising": self._still_rises(code, points),
                "code": self._codes.get(name),
                "gets": self._gets.get(name),
                "selectivity": None if flow is None else flow.selectivity,
                "samples": None if flow is None else flow.tuples,
                "per": code.per,
                "handling_us": None if own else 1e6 * engine.handling_seconds(code.per),
                "column_handling_us": None if own else 1e6 * engine.column_seconds,
                "column_handling_cpu_us": None if own else 1e6 * engine.column_cpu_seconds,
                "own_batch_ms": None if own_batch_seconds is None else 1000 * own_batch_seconds,
                "keyed_us": None if keyed_row_seconds is None else 1e6 * keyed_row_seconds,
                "base_memory_mb": engine.base_memory_mb,
            }
        )
        self.models[name] = Model(name, points, measured_on)
        self.models = {model.name: within_one_core(model) for model in at_one_pace(self.models.values())}
        self._write()

    def _write(self) -> None:
        write_output(
            self._path, json.dumps(models_document(self.models.values(), profiles=self._profiles), indent=1) + "\n"
        )

    def _still_rises(self, code: Logic, points: tuple[Point, ...]) -> bool:
        from penstock.profiling.trial_search import still_rises  # noqa: PLC0415 - Spark loads only when it is used

        return code.per is not Per.DATAFRAME and still_rises({p.threads: p for p in points}, self._settings)

    def _tell(self) -> None:
        spent = 0.0 if self._spent is None else self._spent.seconds()
        self._listener.on_progress(progress_of(self._doing, self._done, self._of, spent, self._settings.budget_seconds))
