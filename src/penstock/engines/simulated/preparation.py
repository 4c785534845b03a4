"""Plans made ready to be simulated: everything about them that can be wrong before a tuple moves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, nearest
from penstock.base.text import one_of
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB, read_cluster
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Cluster, Node
from penstock.dataflow.load import Load, parse_load
from penstock.dataflow.pipeline import checked_rate, gains
from penstock.inputs.finders import ModelsLike, PlanLike, find_models_for, runnable
from penstock.modelling.library import demands_of, placed_demands
from penstock.planning.plan import Plan
from penstock.planning.prediction.placement import Routing, routed
from penstock.report.listener import Listener, Progress
from penstock.simulation.from_plan import stations_of
from penstock.simulation.scenario import Network, Outage, Switch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.dataflow.pipeline import Pipeline
    from penstock.planning.files import SavedPlan
    from penstock.planning.prediction.placement import Demands, ThreadsBySlot
    from penstock.report.listener import Listener
    from penstock.simulation.from_plan import Options

LoadLike = Load | float | str | None


class Mode(StrEnum):
    """How a plan is executed."""

    PLACED = "placed"
    """Every operator on the slots its plan names, all at work at once."""
    FUSED = "fused"
    """As `penstock run` does on one machine: every slot runs the whole pipeline, batch by batch."""


@dataclass(frozen=True)
class SimulationOptions:
    """How to simulate, whatever is offered."""

    seconds: float
    warm_up: float
    seed: int
    options: Options
    network: Network
    batch_interval_ms: float | None
    contention: bool
    outages: tuple[Outage, ...]
    listener: Listener

    def tell_part(self, part: float) -> None:
        """How much of the time was simulated."""
        self.listener.on_progress(Progress("simulating", part, 1.0))


@dataclass(frozen=True)
class PlannedJob:
    """A plan, where it came from, and what is offered to it. Plain shuffle streams of `pipeline` are dealt as `routing`
    says, as in a placed run; others as they declare."""

    where: str
    pipeline: Pipeline
    saved: SavedPlan
    demands: Demands
    threads: ThreadsBySlot
    load: Load
    routing: Routing
    nodes: tuple[Node, ...]


def planned_job(plan: PlanLike, load: LoadLike, models: ModelsLike, routing: Routing | str | None) -> PlannedJob:
    where = str(plan) if isinstance(plan, str | Path) else "plan"
    pipeline, saved = runnable(plan)
    if saved is None:
        raise BadInputError(f"{where}: a pipeline, not a plan of one: make one with `plan`")
    try:
        gains(pipeline)
        demands = placed_demands(demands_of(pipeline, find_models_for(saved, models)))
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from error
    wanted = one_of(Routing, routing or saved.prediction.get("routing") or Routing.SHUFFLE, "routing")
    nodes = plan.cluster.nodes if isinstance(plan, Plan) else _nodes_of(saved)
    offered = as_load(saved.rate if load is None else load)
    dealt = routed(pipeline, wanted)
    return PlannedJob(where, dealt, saved, demands, saved.threads_by_slot(), offered, wanted, nodes)


def as_load(load: Load | float | str) -> Load:
    if isinstance(load, Load):
        return load
    return parse_load(load) if isinstance(load, str) else Load.constant(checked_rate(load, "load"))


def _nodes_of(saved: SavedPlan) -> tuple[Node, ...]:
    """A plan file says nothing of speeds, bandwidths and memory: those of any node."""
    return tuple(
        Node(
            node.name,
            node.rack,
            node.slots,
            MappingProxyType({CPU: CPU_POINTS_PER_SLOT * node.slots, MEMORY: DEFAULT_SLOT_MEMORY_MB * node.slots}),
            node.size,
            node.price,
        )
        for node in saved.nodes
    )


def shared_cluster(jobs: Sequence[PlannedJob], cluster: Cluster | str | Path | None) -> Cluster:
    """The cluster given, which must have the slots of all plans; else the nodes of all plans, each name once."""
    if cluster is None:
        return Cluster(_all_nodes(jobs))
    shared = read_cluster(Path(cluster)) if isinstance(cluster, str | Path) else cluster
    for job in jobs:
        for slot in job.threads:
            if shared.find(slot.node) is None:
                known = nearest(slot.node, [node.name for node in shared.nodes])
                raise BadInputError(f"{job.where}: the cluster has no node '{slot.node}', which it uses; {known}")
            slots = shared.node(slot.node).slots
            if slot.number >= slots:
                raise BadInputError(f"{job.where}: it uses slot {slot}, and the node has slots 0 to {slots - 1}")
    return shared


def _all_nodes(jobs: Sequence[PlannedJob]) -> tuple[Node, ...]:
    nodes: dict[str, tuple[Node, str]] = {}
    for job in jobs:
        for node in job.nodes:
            known, where = nodes.setdefault(node.name, (node, job.where))
            if (known.slots, known.rack) != (node.slots, node.rack):
                raise BadInputError(
                    f"{job.where}: node '{node.name}' has {node.slots} slots in rack '{node.rack}', in {where} "
                    f"{known.slots} in rack '{known.rack}'; plan for one cluster (cluster=)"
                )
    return tuple(node for node, _ in nodes.values())


def switch_of(other: PlannedJob, at: float, jobs: Sequence[PlannedJob], cluster: Cluster, options: Options) -> Switch:
    """Another plan of one of the pipelines, from `at` on."""
    names = [job.pipeline.name for job in jobs]
    if other.pipeline.name not in names:
        raise BadInputError(
            f"{other.where}: a switch to a plan of '{other.pipeline.name}', which is not simulated; "
            f"{nearest(other.pipeline.name, names)}"
        )
    job = jobs[names.index(other.pipeline.name)]
    if set(other.pipeline.operators) != set(job.pipeline.operators):
        raise BadInputError(f"{other.where}: a plan for other operators than those of '{job.pipeline.name}'")
    stations = stations_of(other.pipeline, other.threads, other.demands, cluster, other.saved.rate, options)
    return Switch(at, other.pipeline.name, stations)


def parse_outage(text: str) -> Outage:
    """`NODE@START` or `NODE@START-END`, in seconds."""
    node, at, times = text.rpartition("@")
    start, dash, end = times.partition("-")
    try:
        if not node or not at:
            raise ValueError("no node")
        return Outage(node, float(start), float(end) if dash else None)
    except ValueError as error:
        raise BadInputError(f"outage '{text}': expected NODE@START or NODE@START-END, in seconds") from error


def parse_switch(text: str) -> tuple[str, float]:
    """`PLAN@SECONDS`."""
    plan, at, seconds = text.rpartition("@")
    try:
        if not plan or not at:
            raise ValueError("no plan")
        return plan, float(seconds)
    except ValueError as error:
        raise BadInputError(f"switch '{text}': expected PLAN@SECONDS") from error


NETWORK_KEYS = {
    "same-slot": "same_slot_ms",
    "same-node": "same_node_ms",
    "same-rack": "same_rack_ms",
    "other-rack": "other_rack_ms",
    "bandwidth": "bandwidth_mbps",
}


def parse_network(text: str) -> Network:
    """`KEY=VALUE,...`: milliseconds of a hop by distance, and the bandwidth of every node in megabits per second."""
    values: dict[str, float] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in NETWORK_KEYS:
            raise BadInputError(f"network '{text}': unknown '{key}'; {nearest(key, NETWORK_KEYS)}")
        try:
            values[NETWORK_KEYS[key]] = float(value if equals else "")
        except ValueError as error:
            raise BadInputError(f"network '{text}': {key}: expected a number, found '{value}'") from error
    return Network(**values)


def positive(value: float, what: str) -> float:
    if not 0 < value < math.inf:
        raise BadInputError(f"{what}: expected a finite number above 0, found {value:g}")
    return value
