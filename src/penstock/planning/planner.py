"""Make a plan of a pipeline and a rate: allocate, acquire, place, predict; grow by one slot if placing fails."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from penstock.base.errors import BadInputError, Refusal, Shortage
from penstock.base.tolerance import covers, exceeds
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Acquisition, Catalogue, rent
from penstock.dataflow.code import fused_only
from penstock.dataflow.formats import BatchAdmission
from penstock.dataflow.pipeline import (
    ANYWHERE,
    UNCONSTRAINED,
    Kind,
    Operator,
    Pipeline,
    checked_rate,
    flows,
    gains,
    stream_rates,
)
from penstock.modelling.library import demands_of, placed_demands, profiles_of, unmeasured, unmeasured_operators
from penstock.modelling.model import FixedDemand, Model
from penstock.modelling.task_profile import handled_per_tuple, profile_of, traffic_of
from penstock.planning.allocation.contract import (
    Allocation,
    JointAllocator,
    Need,
    NodeAllocator,
    OperatorAllocation,
    ProfileAllocator,
    ThreadBundle,
    fewest_slots,
    idle_operator,
)
from penstock.planning.placement.constraints import ask, check_words
from penstock.planning.placement.contract import OperatorRequest, Placement, PlacementRequest, Placer, Room
from penstock.planning.plan import FUSED, PLACED, Plan, Prediction
from penstock.planning.prediction.fused import CORES_TOLERANCE, MAX_TIMES_SLOTS, FusedSizing
from penstock.planning.prediction.placed import placed_setup
from penstock.planning.prediction.placement import (
    Demands,
    LatencyAssumptions,
    Routing,
    SlotUsage,
    highest_peak,
    latency_ms,
    lowest_peak,
    mean_cost,
    moving_cpu,
    routed,
    slot_usage,
    stream_costs,
    supported_rate,
    supported_rate_as_declared,
    with_cpu,
)
from penstock.planning.replanning.plan_changes import ThreadMoves, by_operator, moves, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.cluster.topology import Cluster, Slot
    from penstock.dataflow.pipeline import Gain
    from penstock.modelling.library import ModelLibrary
    from penstock.modelling.task_profile import TaskProfile
    from penstock.planning.allocation.contract import Allocator
    from penstock.planning.files import SavedPlan
    from penstock.planning.prediction.forecast import RunForecast


# Growth: when a placer refuses, one slot is added and everything is tried again.


T = TypeVar("T")

SINGLE_STEPS = 16
"""Steps of one slot before strides double."""


def grow(first: int, most: int, attempt: Callable[[int], T | Refusal]) -> tuple[int, T | Refusal]:
    """The fewest slots from `first` to `most` for which `attempt` does not refuse, and its answer.

    One by one for the first steps, or by as many as a refusal says are missing at least. Large plans can lack
    hundreds: strides then double until one does. After a step of more than one, bisection finds the number that was
    enough, taking it that slots which do not suffice are fewer than those that do.
    """
    answer: T | Refusal = attempt(first)
    slots = first
    stride = 1
    steps = 0
    while isinstance(answer, Refusal) and answer.more_slots_may_help and slots < most:
        refused = slots
        if steps >= SINGLE_STEPS:
            stride *= 2
        steps += 1
        slots = min(slots + max(stride, answer.slots_missing), most)
        answer = attempt(slots)
        if not isinstance(answer, Refusal) and slots - refused > 1:
            return _bisect(refused, slots, answer, attempt)
    return slots, answer


def _bisect(refused: int, enough: int, answer: T, attempt: Callable[[int], T | Refusal]) -> tuple[int, T]:
    """The fewest between one that was refused and one that was enough, and its answer."""
    answers = {enough: answer}

    def suffices(slots: int) -> bool:
        answer = attempt(slots)
        if isinstance(answer, Refusal):
            return False
        answers[slots] = answer
        return True

    fewest = refused + 1 + bisect_left(range(refused + 1, enough), x=True, key=suffices)
    return fewest, answers[fewest]


MOST_THREADS = 2_000_000
MOST_SLOTS = 2_000_000
MIN_UTILISATION = 0.01
"""A plan for more than a hundred times the rate is taken for a slip."""


@dataclass(frozen=True)
class Planner:
    """Everything a plan depends on except the rate and the policies.

    `offer` is a cluster that exists, or a catalogue to rent from.
    """

    pipeline: Pipeline
    library: ModelLibrary
    offer: Cluster | Catalogue
    acquisition: Acquisition = Acquisition.COVER
    routing: Routing = Routing.SLOT_AWARE
    assumptions: LatencyAssumptions = field(default_factory=LatencyAssumptions)
    explain: bool = False
    currency: str = "USD"
    """Currency of the prices of the catalogue, or of the cluster's nodes."""
    current: SavedPlan | None = None
    """The plan that runs now, which placers get as `PlacementRequest.current`."""
    doubts: tuple[str, ...] = ()
    """Doubts about the models (`penstock.modelling.library`), which every plan carries."""
    engine: str = FUSED
    """Engine whose forecast is the verdict of a plan: `fused` or `placed`."""
    admission: BatchAdmission = field(default_factory=BatchAdmission)
    """Rows that a batch takes in of the sources."""
    confidence: float = 0.5
    """Probability with which a plan must keep its rate."""

    def plan(self, rate: float, allocator: Allocator, placer: Placer, *, utilisation: float = 1.0) -> Plan | Refusal:
        """Make the whole plan: rates and threads, machines, a slot for every bundle, predictions.

        `rate` is `utilisation` of what the plan is sized for.
        """
        if not MIN_UTILISATION <= utilisation <= 1:
            raise BadInputError(f"utilisation=: expected {MIN_UTILISATION:g} to 1, found {utilisation:g}")
        sized_for = checked_rate(rate) / utilisation
        if (unkept := self.unkept_resources(placer)) is not None:
            raise BadInputError(unkept)
        allocation = self.allocate(sized_for, allocator)
        if isinstance(refused := self._too_large(allocation), Refusal):
            return refused
        slots, answer = self._place_with_growth(allocation, placer)
        if isinstance(answer, Refusal):
            return answer
        cluster, placement = answer
        return self.finish(rate, allocation, cluster, slots, placement, utilisation)

    def unkept_resources(self, placer: Placer) -> str | None:
        """Why this placer must not place this pipeline: an operator demands what the placer does not know of."""
        for name, operator in self.pipeline.operators.items():
            if operator.resources and not placer.keeps_resources:
                return (
                    f"operator '{name}' demands {', '.join(operator.resources)}, and placer '{placer.name}' knows only "
                    "cpu and memory; take r-storm, compact, random, packing, eft or balanced-eft"
                )
        return None

    def allocate(self, rate: float, allocator: Allocator) -> Allocation:
        if not isinstance(allocator, NodeAllocator):
            return self._allocate(rate, allocator)
        if not isinstance(self.offer, Catalogue):
            return self._allocate(rate, allocator.on_nodes(len(self.offer.nodes)))
        # The machines for one thread each, then threads for those machines, until there are as many of both.
        nodes, needed = 0, 1
        while nodes < needed:
            nodes = needed
            allocation = self._allocate(rate, allocator.on_nodes(nodes))
            slots = max(allocation.slots_with_sources_and_sinks, 1)
            if slots <= MOST_SLOTS:
                needed = len(rent(slots, self.offer, self.acquisition).nodes)
        return allocation

    def _allocate(self, rate: float, allocator: Allocator) -> Allocation:
        """Joint allocations are remembered: they take longest, and comparing placers asks for the same ones again."""
        remembered = isinstance(allocator, JointAllocator)
        if remembered and (rate, allocator) in self._allocations:
            return self._allocations[rate, allocator]
        made = allocate_pipeline(self.pipeline, rate, self.demands, allocator, self.slot_memory_mb, self._profiles)
        if remembered:
            self._allocations[rate, allocator] = made
        return made

    @cached_property
    def _allocations(self) -> dict[tuple[float, Allocator], Allocation]:
        return {}

    def given(self, rate: float) -> list[Need | OperatorAllocation]:
        """Return what there is to allocate, and what is given: idle operators, ends, declared demands."""
        return [
            idle_operator(operator.operator, operator.rate)
            if isinstance(operator, Need) and operator.rate <= 0
            else operator
            for operator in given_pipeline(self.pipeline, rate, self.demands, self.slot_memory_mb)
        ]

    @property
    def nodes_matter(self) -> bool:
        """Whether what threads need is not a matter of their slots alone: resources beyond cpu and memory are a node's,
        moving tuples to another node may cost, and constraints and excluded nodes say where threads may be."""
        costly = any(profile.moving_cpu for profile in self._profiles.values())
        operators = self.pipeline.operators.values()
        bound = any(o.constraints != ANYWHERE for o in operators) or self.pipeline.constraints != UNCONSTRAINED
        given = not isinstance(self.offer, Catalogue) and (self.offer.tainted or bool(self.offer.excluded))
        return costly or bound or given or any(operator.resources for operator in operators)

    @cached_property
    def slot_memory_mb(self) -> float:
        """Memory of the smallest slot on offer: what 1.0 of memory means in megabytes."""
        if isinstance(self.offer, Catalogue):
            return min(size.memory_mb / size.slots for size in self.offer.sizes)
        return min(node.capacity[MEMORY] / node.slots for node in self.offer.nodes)

    @property
    def grows_with_rate(self) -> bool:
        """Whether any operator needs more at a higher rate."""
        pipeline_gains = gains(self.pipeline)
        return any(isinstance(d, Model) and pipeline_gains[name].factor > 0 for name, d in self.demands.items())

    @cached_property
    def largest_bundles(self) -> float:
        """Slots that one bundle of every operator with a model needs at most, one more for rounding."""
        models = [demand for demand in self.demands.values() if isinstance(demand, Model)]
        return 1 + sum(max(1.0, *(max(point.cpu, point.memory) for point in model.points)) for model in models)

    @cached_property
    def demands(self) -> Demands:
        """Demands of operators on the slots they are placed on."""
        return placed_demands(self._fused_demands)

    @cached_property
    def _fused_demands(self) -> Demands:
        return demands_of(self.pipeline, self.library, self.slot_memory_mb)

    @cached_property
    def _profiles(self) -> Mapping[str, TaskProfile]:
        return profiles_of(self.pipeline, self.library)

    def _place_with_growth(
        self, allocation: Allocation, placer: Placer
    ) -> tuple[int, tuple[Cluster, Placement] | Refusal]:
        """Slots asked for, and where everything went. A slot per thread more than needed is the most that can help.

        A cluster that exists is tried where the allocation without sources and sinks fits, as the documents count.
        """
        needed = max(allocation.slots_with_sources_and_sinks, 1)
        if not isinstance(self.offer, Catalogue):
            if allocation.slots > len(self.offer.slots):
                return needed, self._cluster_too_small(allocation, self.offer)
            return needed, self._place(allocation, self.offer, placer)
        catalogue = self.offer
        answers: dict[int, tuple[Cluster, Placement] | Refusal] = {}

        def attempt(slots: int) -> tuple[Cluster, Placement] | Refusal:
            """Different numbers of slots can mean the same machines; those are tried once."""
            cluster = rent(slots, catalogue, self.acquisition)
            acquired = len(cluster.slots)
            if acquired not in answers:
                answers[acquired] = self._place(allocation, cluster, placer)
            return answers[acquired]

        return grow(needed, needed + sum(operator.threads for operator in allocation.operators), attempt)

    def _place(self, allocation: Allocation, cluster: Cluster, placer: Placer) -> tuple[Cluster, Placement] | Refusal:
        request = self.request(allocation, cluster)
        check_words(request, cluster)
        answer = ask(placer, request, Room(cluster, slot_memory_shared=True))
        return answer if isinstance(answer, Refusal) else (cluster, answer)

    def request(self, allocation: Allocation, cluster: Cluster) -> PlacementRequest:
        """Return what a placer is asked for an allocation on a cluster."""
        demands = self.demands
        position = {operator.name: index for index, operator in enumerate(allocation.operators)}
        extra = [d.name for d in cluster.dimensions if d.name not in (CPU, MEMORY)]
        requests = []
        for operator in allocation.operators:
            declared = self.pipeline.operators[operator.name]
            for name in declared.resources:
                if name not in extra:
                    raise BadInputError(
                        f"operator '{operator.name}' demands '{name}', which no node offers under resources"
                    )
            amounts = {
                CPU: CPU_POINTS_PER_SLOT * operator.cpu / operator.threads,
                MEMORY: self.slot_memory_mb * operator.memory / operator.threads + declared.constraints.off_heap_mb,
                **{name: declared.resources.get(name, 0.0) for name in extra},
            }
            model = demands[operator.name]
            requests.append(
                OperatorRequest(
                    operator.name,
                    operator.threads,
                    tuple(amounts[dimension.name] for dimension in cluster.dimensions),
                    operator.bundles,
                    (model.cpu(1), model.memory(1)) if isinstance(model, Model) else None,
                    CPU_POINTS_PER_SLOT * (operator.cpu - operator.moving_cpu) / operator.threads,
                    self._profiles[operator.name].moving_cpu if operator.name in self._profiles else 0.0,
                    model if isinstance(model, Model) else None,
                    operator.rate,
                    declared.constraints,
                )
            )
        streams = tuple((position[s.sender], position[s.receiver]) for s in self.pipeline.streams)
        sources = tuple(position[name] for name in self.pipeline.sources)
        rates = stream_rates(self.pipeline, allocation.operators[sources[0]].rate)
        return PlacementRequest(
            self.pipeline.name,
            tuple(requests),
            streams,
            sources,
            explain=self.explain,
            rates=rates,
            traffic=tuple(rate * stream.bytes for rate, stream in zip(rates, self.pipeline.streams, strict=True)),
            current={} if self.current is None else by_operator(running(self.current, cluster)),
            patterns=allocation.patterns,
            constraints=self.pipeline.constraints,
        )

    def _too_large(self, allocation: Allocation) -> Refusal | None:
        threads = sum(operator.threads for operator in allocation.operators)
        for what, needed, most in (
            ("threads", threads, MOST_THREADS),
            ("slots", allocation.slots_with_sources_and_sinks, MOST_SLOTS),
        ):
            if needed > most:
                shortage = Shortage(self.pipeline.name, what, needed, most, "the limit of one plan", "pipeline")
                return Refusal(allocation.allocator, (shortage,), more_slots_may_help=False)
        return None

    def _cluster_too_small(self, allocation: Allocation, cluster: Cluster) -> Refusal:
        offered = len(cluster.slots)
        shortage = Shortage(self.pipeline.name, "slots", allocation.slots, offered, "the whole cluster", "pipeline")
        return Refusal(allocation.allocator, (shortage,))

    def finish(
        self,
        rate: float,
        allocation: Allocation,
        cluster: Cluster,
        slots: int,
        placement: Placement,
        utilisation: float = 1.0,
    ) -> Plan:
        """Complete a plan from its parts: add predictions, the bound, warnings and moves."""
        pipeline_gains = gains(self.pipeline)
        prediction = self.predict(rate, allocation, cluster, placement, utilisation)
        plain = [operator for operator in allocation.operators if not isinstance(self.demands[operator.name], Model)]
        bundles = [entry for operator in plain for entry in operator.bundles]
        # no two threads that each need more than half a slot can share one
        alone = max(
            sum(count for count, bundle in bundles if exceeds(bundle.cpu, 0.5)),
            sum(count for count, bundle in bundles if exceeds(bundle.memory, 0.5)),
        )
        return Plan(
            pipeline=self.pipeline,
            rate=rate,
            allocation=allocation,
            cluster=cluster,
            placement=placement,
            prediction=prediction,
            slots_asked=slots,
            fewest_slots=fewest_slots(
                [
                    Need(name, pipeline_gains[name].at(rate / utilisation), demand)
                    for name, demand in self.demands.items()
                    if isinstance(demand, Model)
                ],
                sum(operator.cpu for operator in plain),
                sum(operator.memory for operator in plain),
                at_least=alone,
            ),
            warnings=(*self._warnings(rate / utilisation, prediction), *allocation.notes),
            currency=self.currency,
            moves=self._moves(cluster, placement),
            library=self.library.of_pipeline(self.pipeline),
            utilisation=utilisation,
            engine=self.engine,
            fused_machines=None if self.engine == PLACED else self._fused_machines(prediction.forecast, cluster),
        )

    def _fused_machines(self, forecast: RunForecast, cluster: Cluster) -> Cluster:
        """Return the machines for a fused run: enough slots, and enough cores for its CPU in all."""
        if not isinstance(self.offer, Catalogue):
            return cluster
        if forecast.cpu_cores is None:
            return cluster
        cores = forecast.cpu_cores.value
        return rent(max(forecast.slots, math.ceil(cores - CORES_TOLERANCE)), self.offer, self.acquisition)

    def _moves(self, cluster: Cluster, placement: Placement) -> ThreadMoves | None:
        if self.current is None:
            return None
        return moves(self.current.threads_by_slot(), running(self.current, cluster), placement.by_slot())

    def predict(
        self, rate: float, allocation: Allocation, cluster: Cluster, placement: Placement, utilisation: float = 1.0
    ) -> Prediction:
        """Predict what any placement of this pipeline will do, and its slots and threads run fused."""
        pipeline_gains: Mapping[str, Gain] = gains(self.pipeline)
        demands = self.demands
        threads = placement.by_slot()
        declared = {
            operator.name: SlotUsage(operator.cpu / operator.threads, operator.memory / operator.threads)
            for operator in allocation.operators
        }
        spreads_known = any(
            point.rate_spread for demand in demands.values() if isinstance(demand, Model) for point in demand.points
        )
        rate_range = {
            name: (
                supported_rate(pipeline_gains, demands, threads, routing, lowest_peak).rate,
                supported_rate(pipeline_gains, demands, threads, routing, highest_peak).rate,
            )
            for name, routing in (("shuffle", Routing.SHUFFLE), ("slot_aware", Routing.SLOT_AWARE))
            if spreads_known
        }
        return Prediction(
            routing=self.routing,
            shuffle=supported_rate(pipeline_gains, demands, threads, Routing.SHUFFLE),
            slot_aware=supported_rate(pipeline_gains, demands, threads, Routing.SLOT_AWARE),
            declared=supported_rate_as_declared(self.pipeline, pipeline_gains, demands, threads),
            rate_range=rate_range,
            slots=with_cpu(
                slot_usage(pipeline_gains, demands, declared, threads, rate, self.routing),
                moving_cpu(self.pipeline, self._profiles, threads, rate),
            ),
            latency_ms=latency_ms(
                self.pipeline, pipeline_gains, demands, threads, cluster, rate, self.routing, self.assumptions
            ),
            network_cost=mean_cost(stream_costs(self.request(allocation, cluster), placement, cluster)),
            forecast=self._placed_forecast(rate, cluster, threads)
            if self.engine == PLACED
            else self._fused_forecast(rate, cluster, len(threads), utilisation),
            unmeasured=unmeasured_operators(self.pipeline, demands),
            fused_only=fused_only(self.pipeline),
        )

    def _placed_forecast(self, rate: float, cluster: Cluster, threads: Mapping[Slot, Mapping[str, int]]) -> RunForecast:
        dealt = routed(self.pipeline, self.routing)
        return placed_setup(dealt, self.demands, threads, cluster, self.routing).forecast(rate, self.confidence)

    def _fused_forecast(self, rate: float, cluster: Cluster, slots: int, utilisation: float) -> RunForecast:
        """Return the forecast on the smallest number of slots that keeps the rate; on those of the placement if none
        does."""
        rented = isinstance(self.offer, Catalogue)
        given_cores = sum(node.capacity[CPU] for node in cluster.nodes) / CPU_POINTS_PER_SLOT
        sizing = FusedSizing(
            self.pipeline,
            self._fused_demands,
            rate,
            rate / utilisation,
            self.assumptions.batch_interval_ms / 1000,
            self.admission,
            self.confidence,
            self.slot_memory_mb,
            None if rented else given_cores,
        )
        placed_on = max(1, slots)
        most = MAX_TIMES_SLOTS * placed_on if rented else len(cluster.slots)
        chosen = sizing.on(sizing.fewest_slots(most) or placed_on)
        forecast = chosen.forecast(rate, sizing.interval_seconds, self.confidence)
        return replace(forecast, threads=dict(chosen.threads))

    def _warnings(self, rate: float, prediction: Prediction) -> Iterator[str]:
        supported = prediction.supported
        if not covers(supported.rate, rate):
            yield (
                f"predicted to sustain {supported.rate:.4g}/s of the planned {rate:g}/s with {self.routing} routing: "
                f"operator '{supported.bottleneck}' is the bottleneck"
            )
        declared = prediction.declared
        if not covers(declared.rate, min(rate, prediction.shuffle.rate)):
            yield (
                f"with the groupings as declared only {declared.rate:.4g}/s: "
                f"operator '{declared.bottleneck}' is the bottleneck"
            )
        yield from _overload(prediction)
        yield from self._slow_nodes()
        yield from self.misfits()

    def _slow_nodes(self) -> Iterator[str]:
        """A slot of a plan is a whole core; a cluster file may say that a node has fewer."""
        if not isinstance(self.offer, Catalogue):
            slow = [
                node for node in self.offer.nodes if not covers(node.capacity[CPU], CPU_POINTS_PER_SLOT * node.slots)
            ]
            if slow:
                yield (
                    f"{len(slow)} nodes have less CPU than a core for every slot (node {slow[0].name}: "
                    f"{slow[0].capacity[CPU]:g} points for {slow[0].slots} slots), which the rate above does not count"
                )

    def misfits(self) -> Iterator[str]:
        """Warnings about the models alone, whatever the rate: what is not known, slots of another size, doubts."""
        yield from unmeasured(self.pipeline, self.demands)
        offered = self.slot_memory_mb
        for demand in self.demands.values():
            if isinstance(demand, FixedDemand) or demand is None:
                continue
            measured = demand.measured_on.slot_memory_mb
            if measured is not None and offered < 0.99 * measured:
                yield (
                    f"model '{demand.name}' was measured on slots of {measured:g} MB, the smallest slot on offer has "
                    f"{offered:g} MB: its memory shares are too low here"
                )
        yield from self.doubts


def _overload(prediction: Prediction) -> Iterator[str]:
    """Supported rates look at every bundle alone; where bundles share a slot, this says that they will not fit."""
    for what, use in (
        ("cpu", {slot: used.cpu for slot, used in prediction.slots.items()}),
        ("memory", {slot: used.memory for slot, used in prediction.slots.items()}),
    ):
        above = [slot for slot, used in use.items() if exceeds(used, 1)]
        if above:
            worst = max(above, key=lambda slot: use[slot])
            yield (
                f"{len(above)} of {len(use)} slots are asked for more than 100 % {what}, slot {worst} for "
                f"{100 * use[worst]:.0f} %: bundles there slow each other down, which the rate above does not count"
            )


# The allocation of a whole pipeline: rates first, then operator by operator.

MOST_COUNTED = 1e15
"""Threads of an operator up to which counting them in floats is exact."""


def given_pipeline(
    pipeline: Pipeline, rate: float, demands: Mapping[str, Model | FixedDemand | None], slot_memory_mb: float
) -> list[Need | OperatorAllocation]:
    """Return what an allocator must decide and what is given, at the pipeline's rate, in topological order.

    `slot_memory_mb` turns declared megabytes into shares of a slot.
    """
    operators: list[Need | OperatorAllocation] = []
    for name, gain in gains(pipeline).items():
        operator_rate = gain.at(rate)
        if not math.isfinite(operator_rate):
            raise BadInputError(f"operator '{name}': its rate is too large to compute")
        demand = demands[name]
        if isinstance(demand, Model):
            if operator_rate > MOST_COUNTED * demand.rate(1):
                raise BadInputError(f"operator '{name}': {operator_rate:g} tuples/s is too much to count in threads")
            operators.append(Need(name, operator_rate, demand))
        elif isinstance(demand, FixedDemand):
            bundle = ThreadBundle(1, demand.cpu, demand.memory)
            operator = pipeline.operators[name]
            is_end = operator.kind is not Kind.OPERATOR
            what = f"a {operator.kind}" if is_end else "an aggregate" if operator.aggregate else "Spark's own operator"
            reason = f"{what} without a model: one thread of fixed demand"
            operators.append(OperatorAllocation(name, operator_rate, ((1, bundle),), reason, is_end=is_end))
        else:
            operators.append(_declared(pipeline.operators[name], operator_rate, slot_memory_mb))
    return operators


def allocate_pipeline(
    pipeline: Pipeline,
    rate: float,
    demands: Mapping[str, Model | FixedDemand | None],
    allocator: Allocator,
    slot_memory_mb: float,
    profiles: Mapping[str, TaskProfile] = MappingProxyType({}),
) -> Allocation:
    """Threads of every operator at the pipeline's rate, in topological order."""
    operators = given_pipeline(pipeline, rate, demands, slot_memory_mb)
    if isinstance(allocator, JointAllocator):
        together, patterns = allocator.allocate_together(operators)
        return Allocation(allocator.name, tuple(together), patterns=patterns)
    if isinstance(allocator, ProfileAllocator):
        return _allocate_profiled(pipeline, rate, operators, allocator, slot_memory_mb, profiles)
    allocated = (
        operator
        if isinstance(operator, OperatorAllocation)
        else allocator.allocate(operator.operator, operator.rate, operator.model)
        for operator in operators
    )
    return Allocation(allocator.name, tuple(allocated))


def _allocate_profiled(
    pipeline: Pipeline,
    rate: float,
    operators: Iterable[Need | OperatorAllocation],
    allocator: ProfileAllocator,
    slot_memory_mb: float,
    profiles: Mapping[str, TaskProfile],
) -> Allocation:
    traffic = traffic_of(pipeline, flows(pipeline), rate)
    allocated: list[OperatorAllocation] = []
    converted = []
    for operator in operators:
        if isinstance(operator, OperatorAllocation):
            allocated.append(operator)
            continue
        name = operator.operator
        profile = profiles.get(name)
        if profile is None:
            profile = profile_of(operator.model, slot_memory_mb, handled_per_tuple(pipeline, name))
            converted.append(name)
        allocated.append(allocator.allocate_profiled(name, traffic[name], profile, slot_memory_mb))
    return Allocation(allocator.name, tuple(allocated), (_from_slot_models(converted),) if converted else ())


def _from_slot_models(operators: list[str]) -> str:
    return (
        f"no task profile for {', '.join(operators)}: what a tuple costs is taken from one thread of the slot model, "
        "and moving it from node to node costs nothing"
    )


def _declared(operator: Operator, rate: float, slot_memory_mb: float) -> OperatorAllocation:
    threads, cpu, memory_mb = operator.threads or 1, operator.cpu or 0.0, operator.memory_mb or 0.0
    bundle = ThreadBundle(1, cpu / CPU_POINTS_PER_SLOT, memory_mb / slot_memory_mb)
    return OperatorAllocation(operator.name, rate, ((threads, bundle),), "threads and demand are declared")
