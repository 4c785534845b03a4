"""Prediction of a placed run: bundles that hand batches to each other, each a process on a slot, and the cores they
share.

At W tuples/s of the source a bundle b gets `r_b W` rows, and uses

    cpu_b(W) = fixed + batch * min(r_b W, m_b) + W * (row * r_b + sum_i gain_i share_ib C_i / I_i)

cores: what it costs to be there, what every batch costs whatever it holds, and what rows cost to be taken in and worked
on. Low rates make a batch of every row. At high ones there are m_b batches a second: a source sends one a period, and
bundles send as many on as they get; operators that wait finish their rows one by one, so that behind them there is one
in the time batches linger, on every link. C_i / I_i is the CPU of one tuple of operator i by its model. Operators have
always something to do, where trials let them wait for the engine between batches: t threads do `I_i(t) / w_i(t)`, w
being the part of the time in which they were at work. A bundle is one process of Python: it is full at one core,
whatever its operators could do apart. A slot adds its Java process, a run its driver. Slots on one machine are full
together: there W is the rate at which all of them use all of its cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT
from penstock.dataflow.code import fused_only, why_not_placed
from penstock.dataflow.pipeline import gains, topological_order
from penstock.modelling.library import unmeasured_operators
from penstock.modelling.model import Model
from penstock.planning.prediction.forecast import ErrorSpread, Estimate, RunForecast, SlotUse, spread_of_models
from penstock.planning.prediction.placement import (
    PERCENTILES,
    Routing,
    own_cpu,
    received,
    spread_of,
    supported_rate,
    supported_rate_as_declared,
)
from penstock.planning.registry import SEGMENTERS
from penstock.planning.segmentation import segmentation, segments_on_slots

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.cluster.topology import Cluster, Slot
    from penstock.dataflow.pipeline import Gain, Pipeline
    from penstock.planning.prediction.placement import Demands, ThreadsBySlot

BISECTIONS = 60
HIGHEST_RATE = 1e9
WAITING_CORES = 0.5


@dataclass(frozen=True, slots=True)
class PlacedCosts:
    """Cores, seconds of CPU and MB, as `bench/placed.py` and `bench/truth_placed.py` measured them."""

    bundle_cores: float = 0.02
    """Beats, epochs, and looking whether something waits."""
    batch_seconds: float = 0.00027
    row_seconds: float = 1e-6
    source_period_seconds: float = 0.01
    linger_seconds: float = 0.005
    executor_cores: float = 0.01
    driver_cores: float = 0.12
    """Both processes of the driver."""
    executor_mb: float = 465.0
    """The Java process of a slot and the process its workers are forked from."""
    bundle_mb: float = 110.0
    """A process of Python, without what its operators hold."""
    driver_mb: float = 560.0
    """Both processes of the driver."""
    hop_ms: float = 0.4


@dataclass(frozen=True, slots=True)
class BundleLoad:
    """Work of a bundle for one tuple of the source."""

    slot: Slot
    rows: float
    """That it gets from other bundles, or emits."""
    most_batches: float
    """That it gets in a second, however many rows there are."""
    cpu_seconds: float
    """CPU seconds of its operators' own code."""
    memory_mb: float = 0.0
    """Memory that the threads of its operators hold, in MB."""

    def cores(self, rate: float, costs: PlacedCosts) -> float:
        batches = min(self.rows * rate, self.most_batches)
        rows = costs.row_seconds * self.rows
        return costs.bundle_cores + costs.batch_seconds * batches + rate * (rows + self.cpu_seconds)


def without_engine(model: Model) -> Model:
    """Return the model of threads whose tuples come one after the other, without the batches of the trials."""
    if any(point.busy is None for point in model.points):
        return model
    points = [
        point.model_copy(update={"rate": point.rate / (point.busy or 1.0), "busy": 1.0}) for point in model.points
    ]
    return replace(model, points=tuple(points))


def bundle_loads(
    pipeline: Pipeline,
    gains: Mapping[str, Gain],
    demands: Demands,
    threads: ThreadsBySlot,
    segments: Sequence[Sequence[str]],
    routing: Routing,
    costs: PlacedCosts,
) -> list[BundleLoad]:
    """One for every segment on every slot that hosts it; segments come in the order tuples pass them."""
    sent: dict[tuple[str, ...], float] = {}
    slots = {tuple(segment): list(spread_of(threads, segment[0])) for segment in segments}
    segment_of = {name: tuple(segment) for segment in segments for name in segment}
    loads = []
    for segment, hosts in slots.items():
        inside = set(segment)
        entering = [stream for name in segment for stream in pipeline.inputs(name) if stream.sender not in inside]
        senders = [segment_of[stream.sender] for stream in entering]
        batches = sum(len(slots[sender]) * sent[sender] for sender in senders)
        rows = sum(gains[name].factor for name in {stream.receiver for stream in entering})
        if any(name in pipeline.sources for name in segment):
            rows, batches = rows + 1.0, batches + 1 / costs.source_period_seconds
        waits = any(_waits(name, threads, demands) for name in segment)
        sent[segment] = 1 / costs.linger_seconds if waits else min(batches, 1 / costs.linger_seconds)
        parts = _shares(segment[0], threads, demands, routing)
        for slot in hosts:
            part = parts[slot]
            own = sum(_cpu_per_tuple(name, threads, demands) * gains[name].factor for name in segment)
            held = sum(_memory_mb(demands[name], threads[slot].get(name, 0)) for name in segment)
            loads.append(BundleLoad(slot, rows * part, batches, own * part, held))
    return loads


def _memory_mb(demand: object, threads: int) -> float:
    """Memory that the threads of an operator hold in a slot, whatever comes to them."""
    if not isinstance(demand, Model) or not threads:
        return 0.0
    return demand.memory(threads) * (demand.measured_on.slot_memory_mb or 0.0)


def _waits(operator: str, threads: ThreadsBySlot, demands: Demands) -> bool:
    """Whether its threads, at their most, leave more than half of a core idle."""
    demand = demands[operator]
    return isinstance(demand, Model) and all(
        own_cpu(demand, count) / (demand.busy(count) or 1.0) < WAITING_CORES
        for count in spread_of(threads, operator).values()
    )


def _shares(operator: str, threads: ThreadsBySlot, demands: Demands, routing: Routing) -> dict[Slot, float]:
    """The part of an operator's input that each of its slots gets."""
    spread, demand = spread_of(threads, operator), demands[operator]
    if isinstance(demand, Model):
        return received(demand, spread, 1.0, routing)
    total = sum(spread.values())
    return {slot: count / total for slot, count in spread.items()}


def _cpu_per_tuple(operator: str, threads: ThreadsBySlot, demands: Demands) -> float:
    demand = demands[operator]
    if not isinstance(demand, Model):
        return 0.0
    counts = spread_of(threads, operator).values()
    rate = sum(demand.rate(count) for count in counts)
    return sum(own_cpu(demand, count) for count in counts) / rate if rate > 0 else 0.0


def slots_at(loads: Sequence[BundleLoad], rate: float, costs: PlacedCosts) -> dict[Slot, tuple[float, float]]:
    """Cores and MB of every slot: its Java process and its bundles."""
    used: dict[Slot, tuple[float, float]] = {}
    for load in loads:
        cpu, memory = used.get(load.slot, (costs.executor_cores, costs.executor_mb))
        used[load.slot] = (cpu + load.cores(rate, costs), memory + costs.bundle_mb + load.memory_mb)
    return used


def processes_rate(loads: Sequence[BundleLoad], costs: PlacedCosts) -> float:
    """The rate at which the first bundle is full: one process of Python works on one core."""
    return min((_highest(partial(load.cores, costs=costs), 1.0) for load in loads), default=math.inf)


def machine_rate(loads: Sequence[BundleLoad], cores: float, costs: PlacedCosts) -> float:
    """The rate at which the cores all slots share are full, the driver's part taken off."""

    def used(rate: float) -> float:
        return costs.driver_cores + sum(cpu for cpu, _ in slots_at(loads, rate, costs).values())

    return _highest(used, cores)


def _highest(cores: Callable[[float], float], limit: float) -> float:
    """The highest rate at which so many cores do; infinite where none is too high."""
    if cores(0.0) >= limit:
        return 0.0
    if cores(HIGHEST_RATE) < limit:
        return math.inf
    low, high = 0.0, HIGHEST_RATE
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if cores(middle) <= limit else (low, middle)
    return low


# The forecast of a placed run.
#
# A row waits for its source's next batch, on every hop from one bundle to the next for the time batches linger, and in
# every bundle for the batch it came in: n rows are done after `n / I(t)`, and none before the `S = 1 / I(1)` that one
# call takes. Operators that wait hand their rows on one by one, so that a part q of them has left after
# `S + q max(0, n / I(t) - S)`.


@dataclass(frozen=True)
class PlacedSetup:
    """A placed run of a pipeline: `threads` by slot, `segments` in one process each. `cores`: of the machine that all
    slots share; None: every slot has a core of its own."""

    pipeline: Pipeline
    demands: Demands
    threads: ThreadsBySlot
    segments: Sequence[Sequence[str]]
    routing: Routing
    cores: float | None = None
    costs: PlacedCosts = PlacedCosts()

    def lasting(self) -> Demands:
        """Models without the batches of the trials: rows come one after the other."""
        return {name: without_engine(it) if isinstance(it, Model) else it for name, it in self.demands.items()}

    @property
    def models(self) -> list[Model]:
        return [demand for demand in self.demands.values() if isinstance(demand, Model)]

    def loads(self) -> list[BundleLoad]:
        place = {name: number for number, name in enumerate(topological_order(self.pipeline))}
        in_order = sorted(self.segments, key=lambda segment: min(place[name] for name in segment))
        return bundle_loads(
            self.pipeline, gains(self.pipeline), self.demands, self.threads, in_order, self.routing, self.costs
        )

    def slots_rate(self) -> float:
        """Highest rate of the plan's slots if each is a core."""
        factors = gains(self.pipeline)
        if self.routing is Routing.SLOT_AWARE:
            return supported_rate(factors, self.lasting(), self.threads, self.routing).rate
        return supported_rate_as_declared(self.pipeline, factors, self.lasting(), self.threads).rate

    def engine_rate(self) -> float:
        """Highest rate of the processes of Python and the cores they share."""
        loads = self.loads()
        rate = processes_rate(loads, self.costs)
        return rate if self.cores is None else min(rate, machine_rate(loads, self.cores, self.costs))

    def forecast(self, target_rate: float, confidence: float = 0.5) -> RunForecast:
        """Return everything that is predicted at `target_rate` tuples/s of every source."""
        slots, cores = len(self.threads), self.cores or float(len(self.threads))
        missing = unmeasured_operators(self.pipeline, self.demands)
        refused = (why_not_placed(names),) if (names := fused_only(self.pipeline)) else ()
        if refused or missing or not self.models:
            unmeasured = (f"operator '{name}' was not measured: penstock profile measures it" for name in missing)
            why = (*refused, *unmeasured) or ("no operator has a model",)
            return RunForecast("placed", target_rate, slots, cores, unknown=why, confidence=confidence)
        # placed runs need no rehearsal: no micro-batches of Spark's lie between the operators
        spread = spread_of_models(self.models, rehearsed=True, reach=1.0)
        max_rate = Estimate(min(self.slots_rate(), self.engine_rate()), spread)
        rate = min(target_rate, max_rate.value)
        used = slots_at(self.loads(), rate, self.costs)
        cpu = self.costs.driver_cores + sum(cpu for cpu, _ in used.values())
        memory = self.costs.driver_mb + sum(memory for _, memory in used.values())
        latency = self.latency_ms(target_rate) if target_rate <= max_rate.value else None
        return RunForecast(
            "placed",
            target_rate,
            slots,
            cores,
            max_rate,
            None if latency is None else {name: Estimate(value, spread.mirrored) for name, value in latency.items()},
            Estimate(cpu, ErrorSpread(CPU_SPREAD, CPU_SPREAD)),
            Estimate(memory, ErrorSpread(MEMORY_SPREAD, MEMORY_SPREAD)),
            tuple(SlotUse(*used.get(slot, (0.0, 0.0))) for slot in self.threads),
            confidence=confidence,
        )

    def latency_ms(self, rate: float) -> dict[str, float]:
        """Percentiles from when a row was due until it reaches a sink, along the slowest path."""
        return {name: 1000 * self._slowest_path(rate, part) for name, part in PERCENTILES.items()}

    def _slowest_path(self, rate: float, part: float) -> float:
        factors, lasting, period = gains(self.pipeline), self.lasting(), self.costs.source_period_seconds
        hop = self.costs.hop_ms / 1000 + self.costs.linger_seconds
        segment_of = {name: number for number, segment in enumerate(self.segments) for name in segment}
        until: dict[str, float] = {}
        for name, gain in factors.items():
            arrivals = (
                until[stream.sender] + (hop if segment_of[stream.sender] != segment_of[name] else 0.0)
                for stream in self.pipeline.inputs(name)
            )
            demand, worst = lasting[name], 0.0
            if isinstance(demand, Model):
                spread = spread_of(self.threads, name)
                waits = _waits(name, self.threads, self.demands)
                for slot, share in received(demand, spread, gain.at(rate), self.routing).items():
                    call, batch = 1 / demand.rate(1), share * period / demand.rate(spread[slot])
                    worst = max(worst, call + (part if waits else 1.0) * max(0.0, batch - call))
            until[name] = max(arrivals, default=part * period) + worst
        return max(until.values())


CPU_SPREAD = 0.15
MEMORY_SPREAD = 0.08
"""Logarithmic standard deviations of CPU and memory around the formula."""


PLACED_SEGMENTER = "ends"
"""Segmenter of placed runs, unless another is given."""


def placed_setup(
    pipeline: Pipeline,
    demands: Demands,
    threads: Mapping[Slot, Mapping[str, int]],
    cluster: Cluster,
    routing: Routing,
) -> PlacedSetup:
    """Return the placed run of a pipeline dealt by `routing`, in the segments placed runs have by default."""
    cut = segmentation(pipeline, SEGMENTERS.create(PLACED_SEGMENTER), None)
    nodes = {slot.node for slot in threads}
    cores = sum(cluster.node(node).capacity[CPU] for node in nodes) / CPU_POINTS_PER_SLOT
    there = segments_on_slots(pipeline, cut.segments, threads)
    return PlacedSetup(pipeline, demands, threads, there, routing, cores if len(nodes) == 1 else None)
