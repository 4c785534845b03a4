"""The report of a placed run, from what its bundles did epoch by epoch. Only epochs that committed count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from penstock.planning.prediction.placed import PlacedCosts
from penstock.report.report import Moment, OperatorObservation, Report, TaskObservation, arrived_rate, slope

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.report.report import Audit


@dataclass(frozen=True, slots=True)
class SlotReading:
    """The last report of a slot's processes: the Java process, CPU seconds of it and those below it, memory in MB."""

    process: int
    cpu_seconds: float
    memory_mb: float


@dataclass(frozen=True, slots=True)
class EpochObservation:
    """One epoch that was committed. `tuples`: those of the sources it covers, all of them at their end."""

    finished: float
    tuples: int
    backlog: int
    operators: Mapping[str, OperatorObservation]
    slots: Mapping[Slot, SlotReading]
    latency_seconds: Mapping[float, int]
    """Number of deliveries by duration; the middle of a histogram's bin stands for all in it."""
    on_slots: Mapping[tuple[str, Slot], OperatorObservation] = field(default_factory=dict)
    """The same as `operators`, slot by slot."""
    tasks: Mapping[str, TaskObservation] = field(default_factory=dict)
    """Measurements for task profiles, by operator."""
    process_cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    """CPU that each bundle's process used, by bundle."""
    sampling_seconds: float = 0.0
    """CPU that measuring task profiles took."""


IDLE_CORES = PlacedCosts().bundle_cores
"""CPU of a bundle's process that has nothing to do."""


@dataclass(frozen=True, slots=True)
class ProcessAccount:
    """Counts of a bundle's process in an epoch."""

    cpu_seconds: float
    held_mb: float
    sampling_seconds: float
    operators: Mapping[str, OperatorObservation]
    sampled: Mapping[str, tuple[int, float, float]]
    """Timed rows, seconds and CPU seconds, by operator."""
    crossed: Mapping[str, int]
    ingested: int = 0
    """Rows that its sources emitted: turned into rows of Python as those that cross are."""


def tasks_of(account: ProcessAccount, seconds: float) -> dict[str, TaskObservation]:
    """Return the measurements of a process for its operators, from an epoch of `seconds`.

    moving = CPU of the process - sum over operators of rows * sampled CPU / sampled rows - sampling - idle * seconds

    An operator's part of it is that of the rows that it received from, or sent to, other processes, among those and the
    rows that sources emitted here; its part of the memory is that of the rows that it handled.
    """
    code = 0.0
    for name, (rows, _, cpu) in account.sampled.items():
        seen = account.operators.get(name)
        code += cpu if not rows or seen is None else max(1.0, seen.received / rows) * cpu
    moving = max(0.0, account.cpu_seconds - code - account.sampling_seconds - IDLE_CORES * seconds)
    crossed = sum(account.crossed.values()) + account.ingested
    handled = sum(seen.received + seen.sent for seen in account.operators.values())
    tasks = {}
    for name, seen in account.operators.items():
        own = seen.received + seen.sent
        tasks[name] = TaskObservation(
            seen.received,
            own,
            *account.sampled.get(name, (0, 0.0, 0.0)),
            account.crossed.get(name, 0),
            moving * account.crossed.get(name, 0) / crossed if crossed else 0.0,
            account.held_mb * own / handled if handled else 0.0,
        )
    return tasks


def _tasks_in(epochs: Sequence[EpochObservation]) -> dict[str, TaskObservation]:
    """Return the measurements of several epochs together, by operator."""
    tasks: dict[str, TaskObservation] = {}
    for epoch in epochs:
        for name, task in epoch.tasks.items():
            tasks[name] = tasks[name].then(task) if name in tasks else task
    return tasks


def _cores_by_process(epochs: Sequence[EpochObservation], seconds: float) -> dict[str, float]:
    used: dict[str, float] = {}
    for epoch in epochs:
        for name, cpu in epoch.process_cpu_seconds.items():
            used[name] = used.get(name, 0.0) + cpu / seconds
    return used


def summarise_epochs(
    epochs: Sequence[EpochObservation],
    begun: float,
    held: float,
    warm_up: float,
    offered_rate: float | None,
    audit: Audit,
    backlog: int,
    notes: tuple[str, ...] = (),
) -> Report:
    """What happened between the warm-up and the moment the sources were held. `offered_rate` as `summarise` has it:
    None, and what arrived was offered.

    The sustained rate is what the epochs in that time cover, from commit to commit: everything they cover has come to
    its end.
    """
    history = _history(epochs, begun)
    warm = [epoch for epoch in epochs if begun + warm_up <= epoch.finished <= held]
    counted = warm[1:]
    seconds = warm[-1].finished - warm[0].finished if counted else 0.0
    if seconds <= 0:
        short = "too short: fewer than two epochs were committed after the warm-up"
        return Report(
            offered_rate or 0.0,
            0.0,
            0.0,
            0.0,
            {},
            backlog,
            operators_of(epochs),
            slots_of(epochs),
            audit,
            len(epochs),
            notes=(*notes, short),
            history=history,
        )
    taken = sum(epoch.tuples for epoch in counted)
    if offered_rate is None:
        offered_rate = arrived_rate(taken, warm[0].backlog, warm[-1].backlog, seconds)
    means = [(epoch.finished, mean) for epoch in counted if (mean := _mean(epoch.latency_seconds)) is not None]
    return Report(
        offered_rate=offered_rate,
        sustained_rate=taken / seconds,
        latency_slope=slope(np.array([moment for moment, _ in means]), np.array([mean for _, mean in means])),
        seconds=seconds,
        latency_ms=latencies_of(counted),
        backlog=backlog,
        operators=operators_of(counted),
        slots=slots_of(warm),
        audit=audit,
        batches=len(counted),
        notes=notes,
        history=history,
        tasks=_tasks_in(counted),
        processes=_cores_by_process(counted, seconds),
        sampling_cores=sum(epoch.sampling_seconds for epoch in counted) / seconds,
    )


def latencies_of(epochs: Sequence[EpochObservation]) -> dict[str, float]:
    """Percentiles in milliseconds."""
    total: dict[float, int] = {}
    for epoch in epochs:
        for seconds, count in epoch.latency_seconds.items():
            total[seconds] = total.get(seconds, 0) + count
    if not total:
        return {}
    values = np.array(sorted(total))
    reached = np.cumsum([total[value] for value in sorted(total)])
    shares = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    return {name: 1000 * float(values[np.searchsorted(reached, part * reached[-1])]) for name, part in shares}


def _mean(latency: Mapping[float, int]) -> float | None:
    count = sum(latency.values())
    return sum(seconds * many for seconds, many in latency.items()) / count if count else None


def _history(epochs: Sequence[EpochObservation], begun: float) -> tuple[Moment, ...]:
    moments = []
    before = begun
    for epoch in epochs:
        passed = epoch.finished - before
        latencies = latencies_of([epoch])
        p50, p95 = (None, None) if not latencies else (latencies["p50"] / 1000, latencies["p95"] / 1000)
        rate = epoch.tuples / passed if passed > 0 else 0.0
        moments.append(Moment(epoch.finished - begun, rate, epoch.backlog, p50, p95))
        before = epoch.finished
    return tuple(moments)


def operators_of(epochs: Sequence[EpochObservation]) -> dict[str, OperatorObservation]:
    summed: dict[str, list[float]] = {}
    for epoch in epochs:
        for name, seen in epoch.operators.items():
            row = summed.setdefault(name, [0.0] * 5)
            for position, value in enumerate((seen.received, seen.sent, seen.filtered, seen.dead, seen.busy_seconds)):
                row[position] += value
    return {
        name: OperatorObservation(int(row[0]), int(row[1]), int(row[2]), int(row[3]), row[4])
        for name, row in summed.items()
    }


def slots_of(epochs: Sequence[EpochObservation]) -> dict[Slot, tuple[float, float]]:
    """CPU (1.0 = one core) between the first and the last reading of every process, and the most memory seen."""
    readings: dict[Slot, list[tuple[float, SlotReading]]] = {}
    for epoch in epochs:
        for slot, reading in epoch.slots.items():
            readings.setdefault(slot, []).append((epoch.finished, reading))
    used_by_slot = {}
    for slot in sorted(readings):
        own_readings = readings[slot]
        seconds = own_readings[-1][0] - own_readings[0][0]
        used = 0.0
        for process in {reading.process for _, reading in own_readings}:
            own = [reading.cpu_seconds for _, reading in own_readings if reading.process == process]
            used += max(own) - min(own)
        memory = max(reading.memory_mb for _, reading in own_readings)
        used_by_slot[slot] = (used / seconds if seconds > 0 else 0.0, memory)
    return used_by_slot
