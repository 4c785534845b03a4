"""What a placed run does: bundles that hand batches to each other, each a process on a slot, and the cores they share.

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

from penstock.modelling.model import Model
from penstock.planning.prediction.placement import own_cpu, received, spread_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.dataflow.pipeline import Gain, Pipeline
    from penstock.planning.prediction.placement import Demands, Routing, ThreadsBySlot

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
    hop_ms: float = 0.4


@dataclass(frozen=True, slots=True)
class BundleLoad:
    """What one tuple of the source means for a bundle."""

    slot: Slot
    rows: float
    """That it gets from other bundles, or emits."""
    most_batches: float
    """That it gets in a second, however many rows there are."""
    cpu_seconds: float
    """Of its operators' own code."""

    def cores(self, rate: float, costs: PlacedCosts) -> float:
        batches = min(self.rows * rate, self.most_batches)
        rows = costs.row_seconds * self.rows
        return costs.bundle_cores + costs.batch_seconds * batches + rate * (rows + self.cpu_seconds)


def without_engine(model: Model) -> Model:
    """As its threads do where tuples come one after the other, without the batches of the trials."""
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
            loads.append(BundleLoad(slot, rows * part, batches, own * part))
    return loads


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
        used[load.slot] = (cpu + load.cores(rate, costs), memory + costs.bundle_mb)
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
