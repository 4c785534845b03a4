"""A pipeline that runs on Spark, as its driver process sees it: fused or placed, behind one contract.

Spark and the engines load only here, in a driver.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError, Refusal
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Cluster, Node, Slot
from penstock.control.executors.driver_files import RUN
from penstock.dataflow.code import parse_pipeline, pipeline_document
from penstock.dataflow.pipeline import Kind, topological_order
from penstock.inputs.finders import find_code_beside, find_code_in, find_models_for, find_pipeline
from penstock.modelling.library import demands_to_run
from penstock.planning.capacity import capacity
from penstock.planning.files import SavedPlan
from penstock.planning.plan import PLAN_FORMAT
from penstock.planning.planner import Planner
from penstock.planning.registry import ALLOCATORS, DEFAULT_ALLOCATOR, DEFAULT_PLACER, PLACERS
from penstock.report.listener import Listener
from penstock.runs.engine import ENGINES, Engine
from penstock.runs.environment import CLUSTER_MASTER
from penstock.runs.folder import RunFolder
from penstock.runs.run import Run
from penstock.runs.states import RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.control.executors.driver_files import DriverJob, WatchedField
    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.library import ModelLibrary
    from penstock.report.figures import Figures


# A plan for exactly the slots a pipeline was given: by its own plan, by its models, or dealt out evenly.
#
# its own plan    as long as the share has as many slots as it uses: each of its slots on one of the share's
# models          the highest rate whose plan fits the share, at least the target's if that fits
# neither         a thread of every operator, and one more of each in turn until every slot has one


STEP = 10.0
"""Tuples/s between the rates that are tried."""


def plan_on_share(
    pipeline: Pipeline, library: ModelLibrary, slots: Sequence[Slot], rate: float, own: SavedPlan | None = None
) -> SavedPlan:
    """For a pipeline that runs placed."""
    if own is not None and len(own.placement) == len(slots):
        return _moved_onto(own, slots)
    planned = _by_models(pipeline, library, slots, rate)
    return _dealt(pipeline, slots, rate) if planned is None else planned


def _moved_onto(plan: SavedPlan, slots: Sequence[Slot]) -> SavedPlan:
    """The plan's own slots where the share has them, the others in order."""
    given = [Slot(row.node, row.slot) for row in plan.placement]
    free = [slot for slot in slots if slot not in given]
    where = {slot: slot if slot in slots else free.pop(0) for slot in given}
    return _with_placement(plan, {where[slot]: threads for slot, threads in plan.threads_by_slot().items()})


def _by_models(pipeline: Pipeline, library: ModelLibrary, slots: Sequence[Slot], rate: float) -> SavedPlan | None:
    """None where no models say how many threads, or no plan fits."""
    demands = demands_to_run(pipeline, library)
    if any(demands[name] is None for name, operator in pipeline.operators.items() if operator.kind is Kind.OPERATOR):
        return None
    numbers: dict[str, list[int]] = {}
    for slot in slots:
        numbers.setdefault(slot.node, []).append(slot.number)
    cluster = Cluster(tuple(_node(name, len(slot_numbers)) for name, slot_numbers in numbers.items()))
    planner = Planner(pipeline, library, cluster)
    allocator, placer = ALLOCATORS.create(DEFAULT_ALLOCATOR), PLACERS.create(DEFAULT_PLACER)
    answer = planner.plan(rate, allocator, placer)
    if planner.grows_with_rate:
        highest = capacity(planner, cluster, allocator, placer, STEP).placed
        if isinstance(answer, Refusal) or highest > rate:
            answer = planner.plan(highest, allocator, placer) if highest else answer
    if isinstance(answer, Refusal):
        return None
    saved = SavedPlan.model_validate(answer.document())
    rows = {
        Slot(slot.node, numbers[slot.node][slot.number]): threads for slot, threads in saved.threads_by_slot().items()
    }
    return _with_placement(saved, rows)


def _node(name: str, slots: int) -> Node:
    capacity_of = {CPU: CPU_POINTS_PER_SLOT * slots, MEMORY: DEFAULT_SLOT_MEMORY_MB * slots}
    return Node(name, "r1", slots, capacity_of)


def _dealt(pipeline: Pipeline, slots: Sequence[Slot], rate: float) -> SavedPlan:
    """Sources first, in order of the streams; sources, sinks and aggregations have one thread."""
    if not slots:
        raise BadInputError(f"pipeline '{pipeline.name}': no slot to run on")
    order = topological_order(pipeline)
    several = [
        name
        for name in order
        if pipeline.operators[name].kind is Kind.OPERATOR and pipeline.operators[name].aggregate is None
    ] or order
    rows: dict[Slot, dict[str, int]] = {}
    for number, name in enumerate(order):
        # with fewer slots than operators, neighbours in the pipeline share a slot
        place = number if len(slots) >= len(order) else number * len(slots) // len(order)
        rows.setdefault(slots[place], {})[name] = 1
    for number, slot in enumerate(slots[len(order) :]):
        rows[slot] = {several[number % len(several)]: 1}
    threads = {name: sum(row.get(name, 0) for row in rows.values()) for name in order}
    document: dict[str, Any] = {
        "format": PLAN_FORMAT,
        "pipeline": pipeline.name,
        "rate": rate,
        "allocator": "one-each",
        "placer": "dealt",
        "operators": {
            name: {"rate": 0.0, "threads": count, "cpu": 0.0, "memory": 0.0} for name, count in threads.items()
        },
        "slots": dict.fromkeys(("allocated", "allocated_with_ends", "placed", "acquired", "used"), len(rows)),
        "nodes": [],
        "placement": [],
        "prediction": {},
        "bounds": {},
        "definition": pipeline_document(pipeline),
    }
    return _with_placement(SavedPlan.model_validate(document), rows)


def _with_placement(plan: SavedPlan, rows: Mapping[Slot, Mapping[str, int]]) -> SavedPlan:
    """The same threads on other slots, and the nodes those are on."""
    highest: dict[str, int] = {}
    for slot in rows:
        highest[slot.node] = max(highest.get(slot.node, 0), slot.number + 1)
    update = {
        "nodes": [{"name": name, "rack": "r1", "slots": count} for name, count in highest.items()],
        "placement": [
            {"node": slot.node, "slot": slot.number, "threads": dict(threads)} for slot, threads in rows.items()
        ],
    }
    return SavedPlan.model_validate({**plan.model_dump(mode="json"), **update})


UNKNOWN_RATE = 1000.0
"""Tuples/s a placed pipeline is planned for where nobody says."""


class DrivenRun:
    """A run on the share of the cluster that its controller gave it."""

    def __init__(self, run: Run, plan_on: Callable[[Sequence[Slot]], SavedPlan | None]) -> None:
        """`plan_on`: the plan for a share, if the engine needs one."""
        self._run, self._plan_on = run, plan_on
        self._observed = run.engine_run

    @property
    def is_running(self) -> bool:
        """Whether its sources pull."""
        return self._run.status is RunState.RUNNING

    @property
    def last_batch(self) -> float | None:
        return self._observed.last_batch

    @property
    def idle_seconds(self) -> float:
        return self._observed.idle_seconds

    @property
    def is_source_away(self) -> bool:
        return self._observed.is_source_away

    @property
    def figures(self) -> Figures | None:
        return self._run.last_progress

    @property
    def most_work(self) -> float | None:
        return self._observed.max_work_seconds

    def threads_on(self, operator: str, slot: str) -> int:
        return self._observed.threads_on(operator, slot)

    @property
    def shares(self) -> Mapping[int, float]:
        return self._observed.shares

    def nodes(self) -> Mapping[str, int]:
        return self._observed.nodes

    def watch(self, fields: Sequence[WatchedField]) -> None:
        self._observed.watch({field.trigger: (field.field, field.above) for field in fields})

    def move(self, slots: Sequence[Slot]) -> None:
        """Change to exactly these slots; those gained start before any are released."""
        self._run.rescale(plan=self._plan_on(slots), places=tuple(slots))

    def stop(self) -> None:
        self._run.stop()

    def kill(self) -> None:
        self._run.kill()

    def has_ended(self, timeout: float) -> bool:
        """Whether it has ended. Raise the failure of a run that failed."""
        return self._run.await_termination(timeout)


def start_run(folder: Path, job: DriverJob, slots: Sequence[Slot]) -> DrivenRun:
    """Start the pipeline on the cluster of this machine, or resume it where it ran before."""
    given = job.pipeline
    find_code_in(Path.cwd())
    if isinstance(given, dict):
        pipeline = parse_pipeline(given, f"pipeline '{job.name}'")
    else:
        find_code_beside(given)
        pipeline = find_pipeline(given)
    engine: Engine = ENGINES.create(job.config.engine)
    place, listener = RunFolder(folder / RUN), Listener()
    config = replace(job.config, master=CLUSTER_MASTER, folder=place.place, warm_up=0.0)
    if not engine.places_operators:
        prepared = engine.prepare(config, pipeline, listener, places=slots)
        return DrivenRun(Run(engine, prepared, place, listener), lambda _: None)
    own = None if job.plan is None else SavedPlan.model_validate(job.plan)
    library = find_models_for(own)
    rate = job.rate or (None if config.load is None else config.load.peak_rate) or UNKNOWN_RATE

    def plan_on(share: Sequence[Slot]) -> SavedPlan:
        return plan_on_share(pipeline, library, share, rate, own)

    config = replace(config, models=library)
    prepared = engine.prepare(config, plan_on(slots), listener, given=pipeline, places=slots)
    return DrivenRun(Run(engine, prepared, place, listener), plan_on)
