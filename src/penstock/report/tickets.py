"""The report of a run whose operators worked side by side, from what they said ticket by ticket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.report.report import OperatorObservation, Report, slope

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Slot
    from penstock.report.report import Audit

LATENCIES_OF_A_TICKET = 200
"""More of them would not change a percentile."""


@dataclass(frozen=True, slots=True)
class TicketObservation:
    """One ticket that was worked off on a slot, or several one after the other."""

    finished: float
    slot: Slot
    process: int
    """The slot's process; another number means that the slot was started anew."""
    slot_cpu_seconds: float
    """CPU the slot's processes have used since they started."""
    slot_memory_mb: float
    operators: Mapping[str, OperatorObservation]
    ended: int
    """Tuples that came to the end of their way with this ticket: at a sink, or in an aggregation."""
    latencies: NDArray[np.float64]
    """Of tuples that reached a sink with this ticket."""

    def with_next(self, other: TicketObservation) -> TicketObservation:
        """This and a later one of the same process as one: it counts from where the later one ended."""
        latencies = np.concatenate((self.latencies, other.latencies))
        return TicketObservation(
            other.finished,
            self.slot,
            self.process,
            other.slot_cpu_seconds,
            max(self.slot_memory_mb, other.slot_memory_mb),
            operators_of((self, other)),
            self.ended + other.ended,
            latencies[:: 1 + len(latencies) // LATENCIES_OF_A_TICKET],
        )


def joined(tickets: Sequence[TicketObservation]) -> list[TicketObservation]:
    """The older half put together two by two, process by process and operator by operator; the newer half as it is.

    What a long run holds in memory stays bounded, and its newest course is known ticket by ticket.
    """
    half = len(tickets) // 2
    kept: list[TicketObservation | None] = []
    alone: dict[tuple[Slot, int, tuple[str, ...]], tuple[int, TicketObservation]] = {}
    for one in tickets[:half]:
        key = (one.slot, one.process, tuple(one.operators))
        if key in alone:
            position, before = alone.pop(key)
            kept[position] = None
            kept.append(before.with_next(one))
        else:
            alone[key] = (len(kept), one)
            kept.append(one)
    return [*(one for one in kept if one is not None), *tickets[half:]]


def summarise_tickets(
    tickets: Sequence[TicketObservation],
    begun: float,
    held: float,
    warm_up: float,
    offered_rate: float,
    audit: Audit,
    emitted_before: int,
    backlog: int,
    notes: tuple[str, ...] = (),
) -> Report:
    """What happened between the warm-up and the moment sources were held.

    The sustained rate is how many tuples came to their end in that time, over how many a source tuple becomes in the
    end: `ended / seconds / (ended in all / emitted in all)`. From the end of one ticket to that of another, so that
    where a ticket ends does not matter. `emitted_before`: tuples the run had emitted before these tickets.
    """
    in_all = sum(one.ended for one in tickets)
    within = [one for one in tickets if begun + warm_up <= one.finished <= held]
    ends = [one for one in within if one.ended]
    counted = ends[1:]
    seconds = ends[-1].finished - ends[0].finished if counted else 0.0
    if not in_all or seconds <= 0:
        return Report(
            offered_rate,
            0.0,
            0.0,
            0.0,
            {},
            backlog,
            operators_of(tickets),
            slots_of(tickets),
            audit,
            len(tickets),
            notes=(*notes, "too short: too few tuples came to their end after the warm-up"),
        )
    emitted = audit.emitted - emitted_before
    gain = in_all / emitted if emitted else 1.0
    deliveries = [one for one in within if len(one.latencies)]
    latencies = np.concatenate([one.latencies for one in deliveries]) if deliveries else np.empty(0)
    return Report(
        offered_rate=offered_rate,
        sustained_rate=sum(one.ended for one in counted) / seconds / gain,
        latency_slope=slope(
            np.array([one.finished for one in deliveries]), np.array([one.latencies.mean() for one in deliveries])
        ),
        seconds=seconds,
        latency_ms={
            name: 1000 * float(np.quantile(latencies, part))
            for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
            if len(latencies)
        },
        backlog=backlog,
        operators=operators_of(within),
        slots=slots_of(within),
        audit=audit,
        batches=len(within),
        notes=notes,
    )


def operators_of(tickets: Sequence[TicketObservation]) -> dict[str, OperatorObservation]:
    summed: dict[str, list[float]] = {}
    for one in tickets:
        for name, seen in one.operators.items():
            row = summed.setdefault(name, [0.0] * 5)
            for position, value in enumerate((seen.received, seen.sent, seen.filtered, seen.dead, seen.busy_seconds)):
                row[position] += value
    return {
        name: OperatorObservation(int(row[0]), int(row[1]), int(row[2]), int(row[3]), row[4])
        for name, row in summed.items()
    }


def slots_of(tickets: Sequence[TicketObservation]) -> dict[Slot, tuple[float, float]]:
    """CPU (1.0 = one core) between the first and the last ticket of every process, and the most memory seen."""
    by_slot: dict[Slot, list[TicketObservation]] = {}
    for one in tickets:
        by_slot.setdefault(one.slot, []).append(one)
    found = {}
    for slot in sorted(by_slot):
        seen = sorted(by_slot[slot], key=lambda one: one.finished)
        seconds = seen[-1].finished - seen[0].finished
        used = 0.0
        for process in {one.process for one in seen}:
            readings = [one.slot_cpu_seconds for one in seen if one.process == process]
            used += max(readings) - min(readings)
        found[slot] = (used / seconds if seconds > 0 else 0.0, max(one.slot_memory_mb for one in seen))
    return found
