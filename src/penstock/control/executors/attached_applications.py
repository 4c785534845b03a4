"""Applications that registered themselves: their drivers are not ours, so they are told what they may have and say what
they have. Everybody else is left to the executors behind."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.control.clocks import SteadyClock
from penstock.control.core.messages import (
    Asks,
    Drained,
    DriverEnded,
    FirstTuple,
    Gone,
    Holds,
    OrderKind,
    Readings,
    Started,
)
from penstock.control.core.records import EngineName
from penstock.control.errors import ConflictError, NotFoundError
from penstock.control.executors.driver_processes import DriverExecutors, held_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.cluster.topology import Slot
    from penstock.control.contracts import Executors
    from penstock.control.core.messages import Observation, PipelineOrder

SILENT_SECONDS = 60.0
"""An application that said nothing for so long is gone."""


@dataclass(frozen=True, slots=True)
class AttachedReport:
    """What an application says of itself, in slots: an executor of two cores is two."""

    held: int
    """Slots its executors have."""
    wanted: int
    """What it would have if it may."""
    why: str
    values: Mapping[str, float]
    """By metric."""
    serial: int = -1
    """Of the answer it has acted on."""
    nodes: Mapping[str, int] | None = None
    """Slots by node, where its executors are on nodes of this cluster."""
    advice: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class AdmittedSlots:
    """min(wanted, admitted) is what an application may have; `serial` comes back once it has acted on it."""

    serial: int
    slots: tuple[Slot, ...]


@dataclass
class _Attached:
    order: PipelineOrder
    heard_at: float
    slots: tuple[Slot, ...] = ()
    """The last it was admitted to: it may still be there when it is admitted to none."""
    report: AttachedReport | None = None
    fresh: bool = False
    gone: bool = False
    """It was silent for too long; one that comes back registers anew."""
    passed_on: set[Observation] = field(default_factory=set)
    told_holds: Holds | None = None
    told_asks: Asks | None = None

    def is_another(self, order: PipelineOrder) -> bool:
        """Whether somebody registered anew under the name of one that is over."""
        over = self.order.kind is OrderKind.END and order.kind is not OrderKind.END
        return over or order.submission != self.order.submission

    def take(self, order: PipelineOrder) -> None:
        if order != self.order:
            self.order = order
            self.passed_on.clear()
        if order.kind is OrderKind.RUN:
            self.slots = order.slots


class WithAttached:
    """Orders for attached applications end here; all others go on to `others`."""

    def __init__(self, others: Executors, unit_slots: int, now: Callable[[], float] | None = None) -> None:
        """`now` is the time applications live in, whatever the controller's clock does; without, that of a stopwatch:
        nobody was silent because the machine's clock was set."""
        self._others = others
        self._unit_slots = unit_slots
        self._now = now or SteadyClock().now
        self._lock = threading.Lock()
        self._attached: dict[str, _Attached] = {}

    def want(self, orders: Iterable[PipelineOrder], fence: int) -> None:
        rest, names = [], set()
        with self._lock:
            for order in orders:
                if order.submission.engine is not EngineName.ATTACHED:
                    rest.append(order)
                    continue
                names.add(order.pipeline)
                known = self._attached.get(order.pipeline)
                if known is None or known.is_another(order):
                    known = self._attached[order.pipeline] = _Attached(order, self._now())
                known.take(order)
            for name in set(self._attached) - names:
                del self._attached[name]
        self._others.want(rest, fence)

    def report(self, name: str, report: AttachedReport) -> AdmittedSlots:
        """Takes down what it says, and answers with what it is admitted to."""
        with self._lock:
            known = self._attached.get(name)
            if known is None or known.gone:
                raise NotFoundError(f"no attached application '{name}'; it has to register first")
            if known.order.kind is OrderKind.END:
                raise ConflictError(f"application '{name}' was let go by the controller")
            known.report, known.heard_at, known.fresh = report, self._now(), True
            order = known.order
            return AdmittedSlots(order.serial, order.slots if order.kind is OrderKind.RUN else ())

    def advice_of(self, name: str) -> Mapping[str, Any] | None:
        with self._lock:
            known = self._attached.get(name)
            return known.report.advice if known is not None and known.report is not None else None

    def log_of(self, name: str) -> str:
        """What an attached application prints is its own."""
        return self._others.log_of(name) if isinstance(self._others, DriverExecutors) else ""

    def observe(self, now: float) -> list[Observation]:
        with self._lock:
            seen = [observation for known in self._attached.values() for observation in self._look(known)]
        return [*self._others.observe(now), *seen]

    def _look(self, known: _Attached) -> Iterator[Observation]:
        order, report, name = known.order, known.report, known.order.pipeline
        if order.kind is OrderKind.END:
            yield from _holding(known, Holds(name, order.serial, ()))
            yield from _once(known, DriverEnded(name))
            return
        if order.kind is OrderKind.DRAIN:
            # its queries are not ours to stop: what follows from that is done while they flow
            yield from _once(known, Drained(name, order.incarnation))
        silent = self._now() - known.heard_at
        if silent >= SILENT_SECONDS:
            known.gone = True
            yield from _once(known, Gone(name, f"nothing was heard of it for {silent:.0f} s"))
        if report is None:
            return
        held = _held(known.slots, report) if report.serial == order.serial else None
        if held is not None:
            yield from _holding(known, Holds(name, order.serial, held))
        if order.kind is OrderKind.RUN:
            yield from _once(known, Started(name, order.incarnation))
            if held is not None and len(held) == len(order.slots):
                yield from _once(known, FirstTuple(name, order.serial))
        if known.fresh:
            known.fresh = False
            asks = Asks(name, -(-report.wanted // self._unit_slots), report.why, _expected(report.advice))
            if known.told_asks is None or known.told_asks.units != asks.units:
                known.told_asks = asks
                yield asks
            yield Readings(name, report.values)

    def close(self) -> None:
        """Applications flow on without us."""
        self._others.close()


def _expected(advice: Mapping[str, Any]) -> dict[str, Any]:
    """Of the advice, what is kept with a decision."""
    return {name: advice[name] for name in ("limit", "what_to_do", "evidence") if name in advice}


def _held(admitted: tuple[Slot, ...], report: AttachedReport) -> tuple[Slot, ...] | None:
    """Of an application that runs elsewhere only the number is known: the first of what it was admitted to."""
    return admitted[: report.held] if report.nodes is None else held_of(admitted, report.nodes)


def _holding(known: _Attached, holds: Holds) -> Iterator[Observation]:
    if holds != known.told_holds:
        known.told_holds = holds
        yield holds


def _once(known: _Attached, observation: Observation) -> Iterator[Observation]:
    if observation not in known.passed_on:
        known.passed_on.add(observation)
        yield observation
