"""One pipeline in simulated time: a driver that takes a while to come up, executors that come and go, a load that
queues. Orders in, observations out; time is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.control.core.incoming import Died, Drained, DriverEnded, FirstTuple, Holds, PartReading, Readings, Started
from penstock.control.core.outcome import OrderKind
from penstock.control.executors.flow import Flow, after, busy, latency_ms
from penstock.control.metrics import WINDOW_SECONDS, Metric
from penstock.dataflow.load import Load, parse_load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.cluster.topology import Slot
    from penstock.control.core.incoming import Observation
    from penstock.control.core.outcome import PipelineOrder
    from penstock.control.core.sizing import Sizing

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
            self._let_go(set(self._ready_at) - set(order.slots), now)
        elif order.kind is OrderKind.DRAIN:
            if self._drained_at is None or order.forced:
                self._drained_at = now + (0.0 if order.forced else times.drain)
        else:
            self._up_at = self._drained_at = None
            self._let_go(set(self._ready_at), now)

    def _let_go(self, slots: Iterable[Slot], now: float) -> None:
        for slot in slots:
            joined = self._ready_at.pop(slot) <= now
            if joined:
                self._gone_at[slot] = now + self.times.release

    def die(self, why: str) -> Observation | None:
        """As a driver process that is killed: its executors go with it."""
        if self._up_at is None:
            return None
        self._up_at = self._drained_at = None
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
        joined = {slot for slot, ready in self._ready_at.items() if ready <= now}
        up = self._up_at is not None and self._up_at <= now
        flowing = up and order.kind is OrderKind.RUN
        processed = self._let_flow(now, len(joined) if flowing else 0)
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
            yield self._reading(now, len(joined) if flowing else 0)

    def _once(self, observation: Observation) -> Iterator[Observation]:
        if observation not in self._told:
            self._told.add(observation)
            yield observation

    def _capacity(self, slots: int) -> float:
        units = slots // self._unit_slots
        if not units:
            return 0.0
        rate = self._sizing.rate_on(self.order.submission, units)
        return UNLIMITED if rate is None else rate

    def _let_flow(self, now: float, slots: int) -> float:
        """Tuples done since the last look."""
        seconds = now - self._looked
        if seconds <= 0:
            return 0.0
        before = self._flow
        arriving = 0.0
        if self._load is not None:
            began = self._load_began
            arriving = self._load.expected(now - began) - self._load.expected(self._looked - began)
        self._flow = after(before, arriving, seconds, self._capacity(slots))
        self._looked = now
        return self._flow.processed - before.processed

    def _reading(self, now: float, slots: int) -> Readings:
        seconds, before, flow = now - self._read_at, self._read_flow, self._flow
        self._read_at, self._read_flow = now, flow
        capacity = self._capacity(slots)
        processed = flow.processed - before.processed
        values = {
            Metric.OFFERED_RATE: (flow.arrived - before.arrived) / seconds,
            Metric.RATE: processed / seconds,
            Metric.BACKLOG: flow.backlog,
            Metric.BUSY: busy(processed, seconds, capacity),
        }
        used = self._sizing.usage(self.order.submission, processed / seconds)
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

    def _parts(self, now: float, capacity: float) -> Iterator[PartReading]:
        """Every slot does its part of every operator's work. They are many, and kept in windows: so said once for
        each."""
        seconds, before, flow = now - self._parts_at, self._parts_flow, self._flow
        if seconds < WINDOW_SECONDS:
            return
        self._parts_at, self._parts_flow = now, flow
        rate = (flow.processed - before.processed) / seconds
        # its capacity may have changed within the window
        in_use = min(1.0, busy(flow.processed - before.processed, seconds, capacity))
        joined = [slot for slot, ready in self._ready_at.items() if ready <= self._looked]
        for name, gain in self._sizing.gains_of(self.order.submission).items():
            yield PartReading(name, None, _flow(rate * gain, in_use))
            for slot in joined:
                yield PartReading(name, slot, _flow(rate * gain / len(joined), in_use))
        for slot in joined:
            yield PartReading(None, slot, {str(Metric.CPU): in_use})


def _flow(rate: float, in_use: float) -> dict[str, float]:
    return {str(Metric.RATE_IN): rate, str(Metric.BUSY): in_use}


def load_of(order: PipelineOrder) -> Load | None:
    """The load that was asked for, or the target's rate; a target of nothing is no load."""
    if order.load is not None:
        return parse_load(order.load)
    rate = order.submission.target.rate
    return Load.constant(rate) if rate else None
