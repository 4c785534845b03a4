"""A fused run in simulated time: one server, all slots together, works on one batch at a time.

That is how Spark runs one query. When a batch is done the next takes in the tuples that are due, up to a bound, and is
dealt to the slots in equal parts; `penstock.planning.prediction.fused` gives its duration. The engine looks at
multiples of its interval, or at once if a batch lasted beyond the next. A tuple is delivered when its batch is
committed. Batches are few, so this needs no event per tuple, and answers with the batches a run on Spark observes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.tolerance import exceeds, whole_up
from penstock.report.report import BatchObservation, OperatorObservation, SlotObservation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.dataflow.pipeline import Flows
    from penstock.planning.prediction.fused import FusedSetup

MOST_SAMPLED = 2_000
"""Max latencies kept of one batch, evenly spread over its tuples."""


@dataclass(frozen=True)
class FusedScenario:
    """`due` is when every tuple of a source is due, rising; `sends` what an operator sends for a tuple it receives."""

    setup: FusedSetup
    due: NDArray[np.float64]
    seconds: float
    interval_seconds: float
    sends: Mapping[str, float]


def sent_per_tuple(operators: Sequence[str], senders: Sequence[str], carried: Flows) -> dict[str, float]:
    """Return the tuples sent for each of the source's, by operator: the factors of all its streams (`senders`, in the
    order of the flows)."""
    sent = dict.fromkeys(operators, 0.0)
    for sender, gain in zip(senders, carried.streams, strict=True):
        sent[sender] += gain.factor
    return sent


def simulate_fused(
    scenario: FusedScenario, progress: Callable[[float], None] | None = None
) -> tuple[BatchObservation, ...]:
    """Every batch that begins within the time; `finished` counts from the start of the load."""
    setup, due = scenario.setup, scenario.due
    batches: list[BatchObservation] = []
    clock, taken = 0.0, 0
    while clock < scenario.seconds:
        waiting = int(np.searchsorted(due, clock, side="right")) - taken
        if waiting <= 0:
            if taken >= len(due):
                break
            clock = _next_look(max(clock, float(due[taken])), scenario.interval_seconds, clock)
            continue
        count = min(waiting, setup.most_rows)
        batch = simulate_batch(setup, scenario.sends, due[taken : taken + count], waiting - count, clock)
        batches.append(batch)
        taken += count
        clock = next_start(batch, clock, scenario.interval_seconds)
        if progress is not None:
            progress(min(1.0, clock / scenario.seconds))
    return tuple(batches)


def _next_look(at: float, interval: float, after: float) -> float:
    """The first multiple of the interval that is at least `at` and later than `after`."""
    if interval <= 0:
        return max(at, math.nextafter(after, math.inf))
    multiple = whole_up(at / interval) * interval
    return multiple if exceeds(multiple, after) else multiple + interval


def next_start(batch: BatchObservation, begun: float, interval: float) -> float:
    """Return when the batch after one that began at `begun` begins, if rows wait."""
    return max(batch.finished, _next_look(begun, interval, begun))


def simulate_batch(
    setup: FusedSetup, sends: Mapping[str, float], due: NDArray[np.float64], backlog: int, begun: float
) -> BatchObservation:
    """Return the batch that takes in the rows due at `due`, begins at `begun` and leaves a backlog."""
    count = len(due)
    work = setup.batch_seconds(count) - setup.fixed_seconds
    if count > MOST_SAMPLED:
        due = due[np.linspace(0, count - 1, MOST_SAMPLED).astype(int)]
    each = -(-count // setup.slots)
    busy = {name: setup.slots * setup.busy_seconds(name, each) for name in setup.modelled}
    operators = {
        name: OperatorObservation(round(count * gain.factor), round(count * sends[name]), 0, 0, busy.get(name, 0.0))
        for name, gain in setup.gains.items()
    }
    memory = setup.use(count / (work + setup.fixed_seconds)).memory_mb
    cpu = count * setup.cpu_per_tuple / setup.slots
    return BatchObservation(
        finished=begun + work + setup.fixed_seconds,
        tuples=count,
        backlog=backlog,
        latencies=begun + work + setup.fixed_seconds - due,
        operators=operators,
        slots=tuple(SlotObservation(number, cpu, work, memory) for number in range(setup.slots)),
    )
