"""A pipeline that runs on Spark, as its driver process sees it: fused or placed, behind one contract.

Spark and the engines load only here, in a driver.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.errors import BadInputError, Refusal
from penstock.base.files import write_text
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Cluster, Node, Slot
from penstock.control.core.records import Engine
from penstock.control.executors.driver_files import RUN
from penstock.dataflow.code import parse_pipeline, pipeline_document
from penstock.dataflow.load import parse_load
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.rates import topological_order
from penstock.engines.fused.launcher import FusedOptions, start_fused
from penstock.engines.fused.preparation import prepare
from penstock.engines.fused.sources.topic_notices import is_source_away
from penstock.engines.placed.preparation import prepare_placed
from penstock.inputs.finders import find_code_beside, find_code_in, find_models_for, find_pipeline
from penstock.modelling.library import demands_to_run
from penstock.planning.capacity import capacity
from penstock.planning.files import SavedPlan
from penstock.planning.plan import PLAN_FORMAT
from penstock.planning.planner import Planner
from penstock.planning.prediction.fused import most_work_seconds
from penstock.planning.registry import ALLOCATORS, DEFAULT_ALLOCATOR, DEFAULT_PLACER, PLACERS
from penstock.report.listener import Listener
from penstock.runs.environment import CLUSTER_MASTER, SparkOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        # neighbours in the pipeline sit together where there are fewer slots than operators
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


class DrivenRun(Protocol):
    @property
    def is_running(self) -> bool:
        """Its sources pull."""

    @property
    def last_batch(self) -> float | None:
        """Tuples that were taken in since then have come to their end; in seconds since the epoch."""

    @property
    def idle_seconds(self) -> float:
        """So long nothing has come: figures are of the last batches, however long ago they were."""

    @property
    def is_source_away(self) -> bool:
        """A source waits for its broker: that nothing comes says nothing of the stream."""

    @property
    def figures(self) -> Figures | None: ...

    @property
    def most_work(self) -> float | None:
        """Seconds of work a batch holds at most; None where there are no batches."""

    def threads_on(self, operator: str, slot: str) -> int:
        """0 where nobody knows."""

    @property
    def shares(self) -> Mapping[int, float]:
        """By trigger: the part of the last batch that was above."""

    def nodes(self) -> Mapping[str, int]:
        """Executors on each node, as Spark says."""

    def move(self, slots: Sequence[Slot]) -> None:
        """To exactly these; what is gained comes first, what is left goes then."""

    def watch(self, fields: Sequence[WatchedField]) -> None:
        """From now on these are looked at."""

    def drain(self) -> None: ...

    def stop(self) -> None: ...

    def has_ended(self, timeout: float) -> bool:
        """Raises what ended a run that failed."""


def start_run(folder: Path, job: DriverJob, slots: Sequence[Slot]) -> DrivenRun:
    """The pipeline on the cluster of this machine, gone on with where it ran before."""
    given = job.pipeline
    find_code_in(Path.cwd())
    if isinstance(given, dict):
        pipeline = parse_pipeline(given, f"pipeline '{job.name}'")
    else:
        find_code_beside(given)
        pipeline = find_pipeline(given)
    start = _Placed if job.engine is Engine.PLACED else _Fused
    return start(folder, job, pipeline, slots)


def per_node(slots: Sequence[Slot]) -> dict[str, int]:
    return dict(Counter(slot.node for slot in slots))


class _Handled:
    """What runs of both engines do alike."""

    _handle: Any

    @property
    def is_running(self) -> bool:
        return str(self._handle.status) == "running"

    @property
    def last_batch(self) -> float | None:
        last_batch: float | None = self._handle.last_batch
        return last_batch

    @property
    def figures(self) -> Figures | None:
        figures: Figures | None = self._handle.progress
        return figures

    @property
    def shares(self) -> Mapping[int, float]:
        shares: Mapping[int, float] = self._handle.shares
        return shares

    def watch(self, fields: Sequence[WatchedField]) -> None:
        self._handle.watch({field.trigger: (field.field, field.above) for field in fields})

    def drain(self) -> None:
        self._handle.drain()

    def stop(self) -> None:
        self._handle.stop()

    def has_ended(self, timeout: float) -> bool:
        return self._handle.await_end(timeout) is not None


class _Fused(_Handled):
    @property
    def idle_seconds(self) -> float:
        return float(self._handle.idle_seconds)

    @property
    def is_source_away(self) -> bool:
        return is_source_away(self._folder)

    def __init__(self, folder: Path, job: DriverJob, pipeline: Pipeline, slots: Sequence[Slot]) -> None:
        self._folder = folder / RUN
        load = None if job.load is None else parse_load(job.load)
        prepared = prepare(pipeline, load, len(slots), None, search=False, interval_ms=job.interval_ms)
        spark = SparkOptions(master=CLUSTER_MASTER, settings=dict(job.settings), places=tuple(slots))
        self._threads = prepared.threads
        self.most_work = most_work_seconds(job.interval_ms / 1000)
        options = FusedOptions(folder=self._folder)
        self._handle = start_fused(prepared, options, spark, Listener())

    def threads_on(self, operator: str, slot: str) -> int:
        """The same in every slot."""
        return self._threads.get(operator, 0)

    def nodes(self) -> Mapping[str, int]:
        nodes: Mapping[str, int] | None = self._handle.nodes
        return nodes or {}

    def move(self, slots: Sequence[Slot]) -> None:
        self._handle.rescale(len(slots), tuple(slots))


class _Placed(_Handled):
    """Another share is another plan: a new generation from the last epoch."""

    most_work = None
    idle_seconds = 0.0
    is_source_away = False

    def __init__(self, folder: Path, job: DriverJob, pipeline: Pipeline, slots: Sequence[Slot]) -> None:
        from penstock.engines.placed.placed_run import RunOptions as PlacedOptions  # noqa: PLC0415
        from penstock.engines.placed.placed_run import start_placed  # noqa: PLC0415
        from penstock.engines.placed.run_folder import RunFolder  # noqa: PLC0415

        self._folder, self._job, self._pipeline = folder, job, pipeline
        self._own = None if job.plan is None else SavedPlan.model_validate(job.plan)
        self._library = find_models_for(self._own)
        load = None if job.load is None else parse_load(job.load)
        prepared = prepare_placed(self._planned(slots), load, self._library, None, pipeline)
        place = folder / RUN
        going_on = (place / "run.json").is_file() and RunFolder(place).checkpoint.last() is not None
        options = PlacedOptions(None, 0.0, self._library, pipeline, None, Listener(), keep_executors=False)
        self._handle = start_placed(prepared, place, None, options, going_on=going_on)

    def _planned(self, slots: Sequence[Slot]) -> SavedPlan:
        rate = self._job.rate or (None if self._job.load is None else parse_load(self._job.load).peak_rate)
        planned = plan_on_share(self._pipeline, self._library, slots, rate or UNKNOWN_RATE, self._own)
        self._slots = tuple(slots)
        self._threads = {str(slot): threads for slot, threads in planned.threads_by_slot().items()}
        return planned

    def threads_on(self, operator: str, slot: str) -> int:
        """By the share's plan; a refuge from it may have others."""
        return self._threads.get(slot, {}).get(operator, 0)

    def nodes(self) -> Mapping[str, int]:
        """A slot of the share that its plan leaves empty is kept for it all the same."""
        if not self.is_running:
            return {}
        return per_node(sorted(self._handle.places | set(self._slots)))

    def move(self, slots: Sequence[Slot]) -> None:
        before = self._slots, self._threads
        file = self._folder / "share-plan.json"
        write_text(file, json.dumps(self._planned(slots).model_dump(mode="json")) + "\n")
        try:
            self._handle.resume(file)
        except BaseException:
            self._slots, self._threads = before
            raise
