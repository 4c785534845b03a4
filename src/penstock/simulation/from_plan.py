"""Plans, and any placement of a pipeline, as pipelines of a scenario."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, nearest
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.topology import CPU_POINTS_PER_SLOT, MEMORY
from penstock.dataflow.load import Load
from penstock.dataflow.pipeline import Grouping, Kind, flows
from penstock.modelling.model import FixedDemand, Model
from penstock.planning.prediction.placement import Routing, spread_of
from penstock.simulation.scenario import Arrivals, Service, SimulatedPipeline, SimulatedRoute, Station

if TYPE_CHECKING:
    from penstock.cluster.topology import Cluster, Node
    from penstock.dataflow.pipeline import Flows, Operator, Pipeline
    from penstock.planning.plan import Plan
    from penstock.planning.prediction.placement import Demands, ThreadsBySlot


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a simulation beyond the plan."""

    routing: Routing | None = None
    """Dealing of every stream; None: as each declares."""
    arrivals: Arrivals = Arrivals.CONSTANT
    service: Service = Service.CONSTANT
    skew: float = 0.0
    """Skew of the keys of all streams that are dealt by key."""
    in_flight: int | None = None
    queue_limit: int | None = None
    replay_seconds: float | None = None
    every_station_batched: bool = False
    """Tuples wait for a batch at every station, as if every bundle were a query of its own; otherwise once, at their
    source, as if the pipeline were one query."""


DEFAULT_OPTIONS = Options()


def from_plan(
    plan: Plan, demands: Demands, load: Load | float | None = None, options: Options = DEFAULT_OPTIONS
) -> SimulatedPipeline:
    """Return the pipeline of a plan, placed as planned, under a load (default: the plan's rate).

    `demands`: from `penstock.modelling.library.demands_of`, for its operators.
    """
    asked = plan.rate if load is None else load
    return placed_pipeline(
        plan.pipeline, plan.placement.by_slot(), demands, plan.cluster, plan.rate, load=asked, options=options
    )


def placed_pipeline(
    pipeline: Pipeline,
    threads: ThreadsBySlot,
    demands: Demands,
    cluster: Cluster,
    rate: float,
    *,
    load: Load | float | None = None,
    options: Options = DEFAULT_OPTIONS,
) -> SimulatedPipeline:
    """Return any placement of a pipeline. `rate` is the rate of declared demands, and the default load."""
    asked = rate if load is None else load
    return SimulatedPipeline(
        name=pipeline.name,
        stations=stations_of(pipeline, threads, demands, cluster, rate, options),
        routes=routes_of(pipeline, options),
        sources=pipeline.sources,
        load=asked if isinstance(asked, Load) else Load.constant(asked),
        arrivals=options.arrivals,
        in_flight=options.in_flight,
        queue_limit=options.queue_limit,
        replay_seconds=options.replay_seconds,
    )


def stations_of(
    pipeline: Pipeline,
    threads: ThreadsBySlot,
    demands: Demands,
    cluster: Cluster,
    rate: float,
    options: Options = DEFAULT_OPTIONS,
) -> tuple[Station, ...]:
    """Operators in declared order, their slots in the order of the placement."""
    carried = flows(pipeline)
    stations: list[Station] = []
    for slot, row in threads.items():
        if cluster.find(slot.node) is None:
            raise BadInputError(f"placement of '{pipeline.name}': unknown node '{slot.node}'")
        for name in row:
            if name not in pipeline.operators:
                raise BadInputError(
                    f"placement of '{pipeline.name}': unknown operator '{name}'; {nearest(name, pipeline.operators)}"
                )
    for name, operator in pipeline.operators.items():
        spread = spread_of(threads, name)
        if not spread:
            raise BadInputError(f"placement of '{pipeline.name}': operator '{name}' has no thread")
        batched = options.every_station_batched or operator.kind is Kind.SOURCE
        single = _one_thread_does_all(pipeline, name, options)
        for position, (slot, count) in enumerate(spread.items()):
            working = 1 if single and position == 0 else count
            node = cluster.node(slot.node)
            stations.append(
                Station(
                    name,
                    slot,
                    working,
                    *_costs(
                        operator, demands[name], working, sum(spread.values()), carried.operators[name].at(rate), node
                    ),
                    service=options.service,
                    batched=batched,
                )
            )
    return tuple(stations)


def _one_thread_does_all(pipeline: Pipeline, name: str, options: Options) -> bool:
    """Whether only the first thread of an operator gets tuples: it has its slot to itself then, as measured alone."""
    streams = pipeline.inputs(name)
    return bool(streams) and options.routing is None and all(s.grouping is Grouping.GLOBAL for s in streams)


def _costs(
    operator: Operator, demand: Model | FixedDemand | None, threads: int, of: int, rate: float, node: Node
) -> tuple[float, float, float, tuple[float, float]]:
    """Return the seconds of a thread for a tuple, those of a core for a tuple, constant cores, and memory idle and at
    its peak.

    By a model: `k / I(k)`, `C(k) / I(k)`, nothing, 0 to `M(k)`. Of a declared demand: the cores of a thread are used up
    by its part of the planned rate, `c * threads / rate`, one tuple after the other; above one core it is several at
    once, and the rate is that of the thread.
    """
    slot_memory = node.capacity.get(MEMORY, DEFAULT_SLOT_MEMORY_MB * node.slots) / node.slots
    if isinstance(demand, Model):
        peak = demand.rate(threads) * node.speed
        return threads / peak, demand.cpu(threads) / peak, 0.0, (0.0, demand.memory(threads) * slot_memory)
    if isinstance(demand, FixedDemand):
        memory = demand.memory * threads * slot_memory
        return 0.0, 0.0, demand.cpu * threads, (memory, memory)
    memory = (operator.memory_mb or 0.0) * threads
    if rate <= 0:
        return 0.0, 0.0, 0.0, (memory, memory)
    cores = (operator.cpu or 0.0) / CPU_POINTS_PER_SLOT
    cpu = cores * of / rate / node.speed
    return cpu / max(cores, 1.0), cpu, 0.0, (memory, memory)


def routes_of(pipeline: Pipeline, options: Options = DEFAULT_OPTIONS) -> tuple[SimulatedRoute, ...]:
    """Return the streams in declared order. If selectivities differ by the sender of a tuple, their mean over the
    mixture at a high rate: `factor of the stream / factor of its sender`."""
    carried = flows(pipeline)
    return tuple(
        SimulatedRoute(
            stream.sender,
            stream.receiver,
            stream.grouping if options.routing is None else Grouping(options.routing.value),
            *_carried(pipeline, carried, position),
            bytes=stream.bytes,
            skew=options.skew,
        )
        for position, stream in enumerate(pipeline.streams)
    )


def _carried(pipeline: Pipeline, carried: Flows, position: int) -> tuple[float, float]:
    """Selectivity and constant of a stream, with its weight."""
    stream = pipeline.streams[position]
    if not stream.selectivities:
        return stream.weight * stream.selectivity, stream.weight * stream.constant
    sender, own = carried.operators[stream.sender], carried.streams[position]
    selectivity = own.factor / sender.factor if sender.factor > 0 else 0.0
    return selectivity, max(0.0, own.constant - selectivity * sender.constant)
