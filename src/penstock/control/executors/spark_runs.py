"""A pipeline that runs on Spark, as its driver process sees it: by the plan of its controller, fused or placed.

Spark and the engines load only here, in a driver. Nothing here plans: threads, slots and executors are those of the
order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, ClusterError
from penstock.cluster.topology import MEMORY
from penstock.control.executors.driver_files import RUN
from penstock.dataflow.code import parse_pipeline, pipeline_document
from penstock.inputs.finders import find_code_beside, find_code_in, find_models_for, find_pipeline
from penstock.planning.files import SavedPlan
from penstock.planning.plan import PLAN_FORMAT
from penstock.report.listener import Listener
from penstock.runs.engine import ENGINES, Engine
from penstock.runs.environment import CLUSTER_MASTER, cluster_of
from penstock.runs.folder import RunFolder
from penstock.runs.run import Run
from penstock.runs.states import RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.cluster.contract import NodeState
    from penstock.cluster.topology import Node
    from penstock.control.executors.driver_files import DriverJob, DriverOrder, WatchedField
    from penstock.dataflow.pipeline import Pipeline
    from penstock.report.figures import Figures


UNKNOWN_RATE = 1000.0
"""Rows/s offered to a placed pipeline if neither its target nor its plan says."""


def plan_to_run(order: DriverOrder, pipeline: Pipeline, nodes: Mapping[str, Node]) -> SavedPlan:
    """Return the plan of an order as the placed engine reads it. `nodes`: the cluster as it is now."""
    plan = order.plan
    if plan is None:
        raise BadInputError(
            f"order {order.serial} has no plan: a placed pipeline runs the plan of its controller and makes none itself"
        )
    threads: Counter[str] = Counter()
    for row in order.threads.values():
        threads.update(row)
    for missing in (name for name in pipeline.operators if name not in threads):
        raise BadInputError(f"the plan of order {order.serial} has no thread of operator '{missing}'")
    used = sorted({entry.node for entry in plan.slots})
    for gone in (name for name in used if name not in nodes):
        raise ClusterError(f"node '{gone}' of the plan is not there")
    count = len(plan.slots)
    document = {
        "format": PLAN_FORMAT,
        "pipeline": pipeline.name,
        "rate": plan.rate or UNKNOWN_RATE,
        "allocator": plan.allocator,
        "placer": plan.placer,
        "segmenter": plan.segmenter,
        "operators": {
            name: {"rate": 0.0, "threads": number, "cpu": 0.0, "memory": 0.0} for name, number in threads.items()
        },
        "slots": dict.fromkeys(("allocated", "allocated_with_ends", "placed", "acquired", "used"), count),
        "nodes": [{"name": name, "rack": nodes[name].rack, "slots": nodes[name].slots} for name in used],
        "placement": [{"node": it.node, "slot": it.slot, "threads": it.threads} for it in plan.slots],
        "prediction": {},
        "bounds": {},
        "definition": pipeline_document(pipeline),
    }
    return SavedPlan.model_validate(document)


class DrivenRun:
    """A run by the orders of a controller."""

    def __init__(self, run: Run, plan_of: Callable[[DriverOrder], SavedPlan | None]) -> None:
        """`plan_of`: the plan of an order, if the engine needs one."""
        self._run, self._plan_of = run, plan_of
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

    @property
    def pause_seconds(self) -> float | None:
        return self._observed.pause_seconds

    def threads_on(self, operator: str, slot: str) -> int:
        return self._observed.threads_on(operator, slot)

    @property
    def shares(self) -> Mapping[int, float]:
        return self._observed.shares

    def nodes(self) -> Mapping[str, int]:
        return self._observed.nodes

    def watch(self, fields: Sequence[WatchedField]) -> None:
        self._observed.watch({field.trigger: (field.field, field.above) for field in fields})

    def change_to(self, order: DriverOrder) -> None:
        """Change to the threads, slots and executors of an order while rows flow."""
        self._run.rescale(plan=self._plan_of(order), places=order.executors)

    def stop(self) -> None:
        self._run.stop()

    def kill(self) -> None:
        self._run.kill()

    def has_ended(self, timeout: float) -> bool:
        """Whether it has ended. Raise the failure of a run that failed."""
        return self._run.await_termination(timeout)


def start_run(folder: Path, job: DriverJob, order: DriverOrder) -> DrivenRun:
    """Start the pipeline on the cluster of this machine by the plan of an order, or resume it where it ran before."""
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
    manager = cluster_of(config)

    def check(other: DriverOrder) -> None:
        check_engine(other, engine.name)
        check_memory(other, manager.nodes() or ())

    check(order)
    if not engine.places_operators:
        prepared = engine.prepare(config, pipeline, listener, places=order.executors)
        return DrivenRun(Run(engine, prepared, place, listener), check)

    def plan_of(other: DriverOrder) -> SavedPlan:
        check(other)
        known = manager.topology()
        if known is None:
            raise ClusterError(f"the manager at {manager.master} does not answer")
        return plan_to_run(other, pipeline, {node.name: node for node in known.nodes})

    plan = plan_of(order)
    submitted = None if job.plan is None else SavedPlan.model_validate(job.plan)
    config = replace(config, models=find_models_for(submitted), segmenter=plan.segmenter)
    prepared = engine.prepare(config, plan, listener, given=pipeline, places=order.executors)
    return DrivenRun(Run(engine, prepared, place, listener), plan_of)


def check_memory(order: DriverOrder, nodes: Sequence[NodeState]) -> None:
    """Raise if the executors of an order need more memory than their node has. The Master would never start them, and
    never say so."""
    needed: Counter[str] = Counter()
    for slot, size in order.executors.items():
        needed[slot.node] += size.memory_mb or 0
    for node in nodes:
        limit = node.capacity.get(MEMORY)
        if limit is not None and needed[node.name] > limit:
            raise BadInputError(
                f"order {order.serial}: its executors on node '{node.name}' need {needed[node.name]} MB, and the node "
                f"has {limit:g} MB"
            )


def check_engine(order: DriverOrder, engine: str) -> None:
    """Raise if an order has a plan for another engine than the one that runs."""
    if order.plan is not None and order.plan.engine != engine:
        raise BadInputError(f"order {order.serial} has a {order.plan.engine} plan, and the pipeline runs {engine}")
