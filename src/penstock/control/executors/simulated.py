"""A cluster in simulated time: what a pipeline does on its slots is what its models say. No Spark, no Java; the
controller cannot tell."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.base.text import is_whole
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY
from penstock.control.core.messages import (
    Died,
    Drained,
    DriverEnded,
    FirstTuple,
    Holds,
    NodeJoined,
    NodeLost,
    OrderKind,
    PartReading,
    Readings,
    Started,
)
from penstock.control.core.records import EngineName, NodePhase, NodeRecord
from penstock.control.core.turn import reason_of
from penstock.control.metrics import WINDOW_SECONDS, Metric
from penstock.dataflow.load import Load, parse_load

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from penstock.cluster.topology import Cluster, Slot
    from penstock.control.contracts import SeenNodes, Sizing
    from penstock.control.core.messages import Observation, PipelineOrder
    from penstock.control.core.records import PipelinePlan, PlannedSlot


# A pipeline as a fluid: arrivals, capacity, backlog. Exact for piecewise constant rates, whatever the step.


BASE_LATENCY_MS = 50.0
"""Of a tuple that waits for nobody."""


@dataclass(frozen=True, slots=True)
class Flow:
    backlog: float = 0.0
    arrived: float = 0.0
    processed: float = 0.0


def after(flow: Flow, arriving: float, seconds: float, capacity: float) -> Flow:
    """`arriving` tuples come evenly over `seconds`; at most `capacity` tuples/s are done.

    processed = min(backlog + arriving, capacity * seconds)
    """
    done = min(flow.backlog + arriving, capacity * seconds)
    return Flow(flow.backlog + arriving - done, flow.arrived + arriving, flow.processed + done)


def latency_ms(flow: Flow, capacity: float) -> float | None:
    """The last tuple waits for all before it; nobody knows how long where nothing is done."""
    if capacity <= 0:
        return None
    return BASE_LATENCY_MS + 1000 * flow.backlog / capacity


def busy(processed: float, seconds: float, capacity: float) -> float:
    return processed / (capacity * seconds) if capacity * seconds > 0 else 0.0


# The capacity and the usage of a pipeline that runs by a placed plan. A fused pipeline does on its slots what the
# models of these executors say, which need not be what its plan predicts.


def planned_capacity(plan: PipelinePlan, joined: int) -> float:
    """Return the rows/s of a placed plan of which `joined` slots are there.

    The slots of a placed plan pass rows to each other, and the engine forms no generation until all of them are there:
    a part of them does nothing.
    """
    if joined < len(plan.slots):
        return 0.0
    return UNLIMITED if plan.predicted_rate is None else plan.predicted_rate


def slot_demand(plan: PipelinePlan, slot: PlannedSlot) -> tuple[float, float] | None:
    """Return the cores and MB that a slot of a plan needs; None if its demands are not known.

    The sum over its operators of threads * demand of a thread.
    """
    threads = slot.threads
    if any(name not in plan.demands for name in threads):
        return None
    demands = [(count, plan.demands[name]) for name, count in threads.items()]
    cpu = sum(count * demand.get(CPU, 0.0) for count, demand in demands) / CPU_POINTS_PER_SLOT
    return cpu, sum(count * demand.get(MEMORY, 0.0) for count, demand in demands)


# One pipeline in simulated time: a driver that takes time to start, executors that join and leave, a load that queues.
# Orders in, observations out; the caller passes the time.


UNLIMITED = 1e12
"""Tuples/s of a pipeline no model says anything about."""

READING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds things take: a driver to come up, an executor to join, one to be let go, what is in flight to be done."""

    driver: float = 4.0
    executor: float = 2.0
    release: float = 0.5
    drain: float = 0.5


class SimulatedDriver:
    def __init__(
        self, order: PipelineOrder, now: float, sizing: Sizing, unit_slots: int, times: Times, backlog: float = 0.0
    ) -> None:
        self.order = order
        self._sizing = sizing
        self._unit_slots = unit_slots
        self.times = times
        self._load = load_of(order)
        self._load_began = now
        self._flow = Flow(backlog)
        self._looked = self._read_at = self._parts_at = now
        self._read_flow = self._parts_flow = self._flow
        self._up_at: float | None = None
        """When the driver is up; None: there is none."""
        self._drained_at: float | None = None
        self._ready_at: dict[Slot, float] = {}
        """Its executors, and when each has joined."""
        self._gone_at: dict[Slot, float] = {}
        """Executors that were let go, and when each is gone."""
        self._told: set[Observation] = set()
        """What is said once only: of an incarnation, or of an order."""
        self._told_holds: Holds | None = None
        self._running: PipelinePlan | None = None
        """The placed plan whose processes run: the former one until all slots of the ordered one have joined."""
        self._obey(now)

    def take(self, order: PipelineOrder, now: float) -> None:
        if order == self.order:
            return
        if order.load != self.order.load:
            self._load, self._load_began = load_of(order), now
        self.order = order
        self._told.clear()
        self._obey(now)

    def _obey(self, now: float) -> None:
        order, times = self.order, self.times
        if order.kind is OrderKind.RUN:
            if self._up_at is None:
                self._up_at = now + times.driver
            elif self._drained_at is not None:
                # the driver is still there: its sources only have to pull again
                self._up_at = now
            self._drained_at = None
            for slot in order.slots:
                if slot not in self._ready_at:
                    self._ready_at[slot] = now if self._gone_at.pop(slot, 0.0) > now else now + times.executor
            self._leave_unused(now)
        elif order.kind is OrderKind.DRAIN:
            if self._drained_at is None or order.forced:
                self._drained_at = now + (0.0 if order.forced else times.drain)
        else:
            self._up_at = self._drained_at = self._running = None
            self._let_go(set(self._ready_at), now)

    def _leave_unused(self, now: float) -> None:
        """Release the slots that the order does not name. A placed pipeline flows by its former plan until all slots of
        the next one have joined."""
        plan = self.order.plan
        kept = set(self.order.slots)
        if plan is not None and plan.engine is EngineName.PLACED:
            joined = {slot for slot, ready in self._ready_at.items() if ready <= now}
            if kept <= joined:
                self._running = plan
            elif self._running is not None:
                kept |= set(self._running.places)
        self._let_go(set(self._ready_at) - kept, now)

    def _let_go(self, slots: Iterable[Slot], now: float) -> None:
        for slot in slots:
            joined = self._ready_at.pop(slot) <= now
            if joined:
                self._gone_at[slot] = now + self.times.release

    def die(self, why: str) -> Observation | None:
        """As a driver process that is killed: its executors go with it."""
        if self._up_at is None:
            return None
        self._up_at = self._drained_at = self._running = None
        self._ready_at.clear()
        self._gone_at.clear()
        return Died(self.order.pipeline, self.order.incarnation, why)

    def lose(self, node: str) -> None:
        for table in (self._ready_at, self._gone_at):
            for slot in [slot for slot in table if slot.node == node]:
                del table[slot]

    def slots(self) -> set[Slot]:
        """All it may be on right now, whatever anybody was told."""
        return {*self._ready_at, *self._gone_at}

    def look(self, now: float) -> Iterator[Observation]:
        order, name = self.order, self.order.pipeline
        self._gone_at = {slot: gone for slot, gone in self._gone_at.items() if gone > now}
        if order.kind is OrderKind.RUN:
            self._leave_unused(now)
        joined = {slot for slot, ready in self._ready_at.items() if ready <= now}
        up = self._up_at is not None and self._up_at <= now
        flowing = up and order.kind is OrderKind.RUN
        processed = self._let_flow(now, joined if flowing else set())
        if flowing:
            yield from self._once(Started(name, order.incarnation))
        # executors that are still to join are not known to an order that does not ask for them
        here = joined if order.kind is OrderKind.RUN else set(self._ready_at)
        holds = Holds(name, order.serial, tuple(sorted({*here, *self._gone_at})))
        if holds != self._told_holds:
            self._told_holds = holds
            yield holds
        if flowing and processed > 0 and set(holds.slots) == set(order.slots):
            yield from self._once(FirstTuple(name, order.serial))
        if order.kind is OrderKind.DRAIN and self._drained_at is not None and self._drained_at <= now:
            yield from self._once(Drained(name, order.incarnation))
        if order.kind is OrderKind.END and not self._gone_at:
            yield from self._once(DriverEnded(name))
        if order.kind is not OrderKind.END and now - self._read_at >= READING_SECONDS:
            yield self._reading(now, joined if flowing else set())

    def _once(self, observation: Observation) -> Iterator[Observation]:
        if observation not in self._told:
            self._told.add(observation)
            yield observation

    @property
    def _plan(self) -> PipelinePlan | None:
        """The placed plan that executors run now."""
        plan = self.order.plan
        return self._running or plan if plan is not None and plan.engine is EngineName.PLACED else None

    def _capacity(self, joined: Collection[Slot]) -> float:
        plan = self._plan
        if plan is not None:
            return planned_capacity(plan, sum(place in joined for place in plan.places))
        units = len(joined) // self._unit_slots
        if not units:
            return 0.0
        rate = self._sizing.rate_on(self.order.submission, units)
        return UNLIMITED if rate is None else rate

    def _let_flow(self, now: float, joined: Collection[Slot]) -> float:
        """Tuples done since the last look."""
        seconds = now - self._looked
        if seconds <= 0:
            return 0.0
        before = self._flow
        arriving = 0.0
        if self._load is not None:
            began = self._load_began
            arriving = self._load.expected(now - began) - self._load.expected(self._looked - began)
        self._flow = after(before, arriving, seconds, self._capacity(joined))
        self._looked = now
        return self._flow.processed - before.processed

    def _reading(self, now: float, joined: Collection[Slot]) -> Readings:
        seconds, before, flow = now - self._read_at, self._read_flow, self._flow
        self._read_at, self._read_flow = now, flow
        capacity = self._capacity(joined)
        processed = flow.processed - before.processed
        values = {
            Metric.OFFERED_RATE: (flow.arrived - before.arrived) / seconds,
            Metric.RATE: processed / seconds,
            Metric.BACKLOG: flow.backlog,
            Metric.BUSY: busy(processed, seconds, capacity),
        }
        used = self._usage(joined, processed / seconds, values[Metric.BUSY])
        if used is not None:
            values[Metric.CPU], values[Metric.MEMORY_MB] = used
        latency = latency_ms(flow, capacity)
        if latency is not None:
            values[Metric.LATENCY_MS] = latency
        return Readings(
            self.order.pipeline,
            {str(metric): value for metric, value in values.items()},
            parts=tuple(self._parts(now, capacity)),
        )

    def _usage(self, joined: Collection[Slot], rate: float, in_use: float) -> tuple[float, float] | None:
        """Return the cores and MB in use: the CPU demand of the slots that are there by how busy they are, and their
        whole memory; by the models if there is no plan, or it has no demands."""
        plan = self._plan
        demands = [] if plan is None else [slot_demand(plan, slot) for slot in plan.slots if slot.place in joined]
        known = [demand for demand in demands if demand is not None]
        if plan is None or len(known) < len(demands) or not plan.demands:
            return self._sizing.usage(self.order.submission, rate)
        return min(1.0, in_use) * sum(cpu for cpu, _ in known), sum(memory for _, memory in known)

    def _parts(self, now: float, capacity: float) -> Iterator[PartReading]:
        """Every slot does its part of every operator's work, by a placed plan in proportion to its threads. They are
        many, and kept in windows: so said once for each."""
        seconds, before, flow = now - self._parts_at, self._parts_flow, self._flow
        if seconds < WINDOW_SECONDS:
            return
        self._parts_at, self._parts_flow = now, flow
        rate = (flow.processed - before.processed) / seconds
        # its capacity may have changed within the window
        in_use = min(1.0, busy(flow.processed - before.processed, seconds, capacity))
        joined = [slot for slot, ready in self._ready_at.items() if ready <= self._looked]
        plan = self._plan
        rows = {} if plan is None else {it.place: it.threads for it in plan.slots}
        for name, gain in self._sizing.gains_of(self.order.submission).items():
            threads = {slot: rows[slot].get(name, 0) if slot in rows else 0 if rows else 1 for slot in joined}
            total = sum(threads.values())
            yield PartReading(name, None, _flow(rate * gain, in_use, total if rows else None))
            for slot, count in threads.items():
                if count:
                    yield PartReading(name, slot, _flow(rate * gain * count / total, in_use, count if rows else None))
        planned = {} if plan is None else {it.place: slot_demand(plan, it) for it in plan.slots}
        for slot in joined:
            cpu, memory = planned.get(slot) or (1.0, None)
            used = {str(Metric.CPU): in_use * cpu}
            yield PartReading(None, slot, used if memory is None else {**used, str(Metric.MEMORY_MB): memory})


def _flow(rate: float, in_use: float, threads: int | None) -> dict[str, float]:
    values = {str(Metric.RATE_IN): rate, str(Metric.BUSY): in_use}
    return values if threads is None else {**values, str(Metric.THREADS): float(threads)}


def load_of(order: PipelineOrder) -> Load | None:
    """The load that was asked for, or the target's rate; a target of nothing is no load."""
    if order.load is not None:
        return parse_load(order.load)
    rate = order.submission.target.rate
    return Load.constant(rate) if rate else None


class SimulatedExecutors:
    def __init__(
        self,
        sizing: Sizing,
        unit_slots: int,
        times: Times | None = None,
        backlogs: Mapping[str, float] | None = None,
        now: float = 0.0,
    ) -> None:
        """`backlogs` is what waits for each pipeline when it is first wanted; `now`, when loads begin of those that are
        wanted before anybody looks, as after a restart."""
        self._sizing = sizing
        self._unit_slots = unit_slots
        self._times = times or Times()
        self._backlogs = backlogs or {}
        self._pipelines: dict[str, SimulatedDriver] = {}
        self._happened: list[Observation] = []
        self._fence = 0
        self._now = now

    def want(self, orders: Iterable[PipelineOrder], fence: int) -> None:
        if fence < self._fence:
            return
        self._fence = fence
        wanted = {order.pipeline: order for order in orders}
        for order in wanted.values():
            try:
                self._take(order)
            except Exception as error:  # one that cannot be started is no reason to leave the others
                self._happened.append(self._dead(order, error))
        for name in set(self._pipelines) - set(wanted):
            del self._pipelines[name]

    def _take(self, order: PipelineOrder) -> None:
        name = order.pipeline
        known = self._pipelines.get(name)
        if known is None or known.order.submission != order.submission:
            self._pipelines[name] = SimulatedDriver(
                order, self._now, self._sizing, self._unit_slots, self._times, self._backlogs.get(name, 0.0)
            )
        else:
            known.take(order, self._now)

    def _dead(self, order: PipelineOrder, error: Exception) -> Observation:
        """It is on no slot: nothing of it is left."""
        self._pipelines.pop(order.pipeline, None)
        ended = order.kind is OrderKind.END
        return DriverEnded(order.pipeline) if ended else Died(order.pipeline, order.incarnation, reason_of(error))

    def settle_in(self, times: Times) -> None:
        """From now on everything takes so long: for those that run already, too."""
        self._times = times
        for pipeline in self._pipelines.values():
            pipeline.times = times

    def observe(self, now: float) -> list[Observation]:
        self._now = max(self._now, now)
        observations, self._happened = self._happened, []
        for pipeline in list(self._pipelines.values()):
            try:
                observations += pipeline.look(self._now)
            except Exception as error:  # its arithmetic is its own
                observations.append(self._dead(pipeline.order, error))
        return observations

    def close(self) -> None:
        """Nothing is left behind: what is simulated lives in this process."""

    def kill_driver(self, name: str, why: str = "killed") -> None:
        died = self._pipelines[name].die(why) if name in self._pipelines else None
        if died is not None:
            self._happened.append(died)

    def lose_node(self, node: str) -> None:
        for pipeline in self._pipelines.values():
            pipeline.lose(node)

    def held(self) -> dict[Slot, list[str]]:
        """Who is on which slot right now, whatever anybody was told."""
        holders: dict[Slot, list[str]] = {}
        for name, pipeline in self._pipelines.items():
            for slot in pipeline.slots():
                holders.setdefault(slot, []).append(name)
        return holders


class SimulatedNodes:
    """As many nodes as asked for, all alike, or those of a cluster; a new one joins after a while."""

    def __init__(
        self,
        count: int,
        slots: int,
        join_seconds: float = 5.0,
        price: float | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        """`price` is that of a node for an hour."""
        self._slots = slots
        self._price = price
        self._given = {} if cluster is None else {node.name: node for node in cluster.nodes}
        self._join_seconds = join_seconds
        self._made = 0
        names = [self._next_name() for _ in range(count)] if cluster is None else list(self._given)
        self._joins: dict[str, float] = dict.fromkeys(names, 0.0)
        self._lost: list[str] = []
        self._now = 0.0

    def _next_name(self) -> str:
        self._made += 1
        while f"n{self._made}" in self._given:
            self._made += 1
        return f"n{self._made}"

    def know(self, names: Iterable[str]) -> None:
        """Nodes an earlier controller had: they are still there, and their names are taken."""
        for name in names:
            self._joins.setdefault(name, 0.0)
            if name.startswith("n") and is_whole(name[1:]):
                self._made = max(self._made, int(name[1:]))

    def node(self, name: str) -> NodeRecord:
        if name in self._given:
            given = self._given[name]
            return NodeRecord(
                name, given.rack, given.slots, NodePhase.JOINING, self._now, MappingProxyType(dict(given.capacity))
            )
        capacity = {CPU: CPU_POINTS_PER_SLOT * self._slots, MEMORY: DEFAULT_SLOT_MEMORY_MB * self._slots}
        return NodeRecord(
            name, "r1", self._slots, NodePhase.JOINING, self._now, MappingProxyType(capacity), self._price
        )

    def acquire(self, count: int, size: str | None) -> list[NodeRecord]:
        names = [self._next_name() for _ in range(count)]
        self._joins.update(dict.fromkeys(names, self._now + self._join_seconds))
        return [self.node(name) for name in names]

    def release(self, name: str) -> None:
        self._joins.pop(name, None)

    def lose(self, name: str) -> None:
        self._joins.pop(name, None)
        self._lost.append(name)

    def seen(self) -> SeenNodes | None:
        """Return None: the books are those of the controller itself."""
        return None

    def lingering(self) -> list[float | None]:
        return []

    def observe(self, now: float) -> list[Observation]:
        self._now = max(self._now, now)
        lost, self._lost = self._lost, []
        joined = [name for name, at in self._joins.items() if at <= self._now]
        for name in joined:
            del self._joins[name]
        return [*(NodeLost(name) for name in lost), *(NodeJoined(self.node(name)) for name in joined)]
