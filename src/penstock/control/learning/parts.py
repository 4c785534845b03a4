"""What runs corrects the models part by part: the true processing rate of a thread of every operator (tuples over the
time it was at work), the memory of a slot, and what a batch costs whatever it holds. Kept beside the profiled figures,
with spread and since when."""

from __future__ import annotations

from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.control.learning import learned
from penstock.control.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.control.core.incoming import PartReading
    from penstock.control.learning.learned import Learned

LEAST_BUSY = 0.05
"""Of a thread: below, what it did says little about what it could."""
SLOT_MEMORY = "slot memory"
BATCH_COST = "batch cost"
"""The names under which memory and the fixed cost of a batch are kept, beside those of operators, without blanks."""


def after_parts(
    known: Mapping[str, Learned], parts: Sequence[PartReading], now: float, values: Mapping[str, float] | None = None
) -> Mapping[str, Learned]:
    """Figures as they are after these readings of its parts and of the whole; what is no number teaches nothing."""
    readings = {part.operator: _true_rate(part) for part in parts if part.operator is not None and part.slot is None}
    memory = [
        part.values[Metric.MEMORY_MB] for part in parts if part.operator is None and Metric.MEMORY_MB in part.values
    ]
    if memory:
        readings[SLOT_MEMORY] = max(memory)
    readings[BATCH_COST] = (values or {}).get(Metric.BATCH_COST_S)
    taught = {name: reading for name, reading in readings.items() if reading is not None}
    if not taught:
        return known
    after = dict(known)
    for name, reading in taught.items():
        before = known.get(name, learned.UNKNOWN)
        seconds = max(0.0, now - before.at) if before.readings else 0.0
        after[name] = learned.after(before, reading, seconds, now)
    return MappingProxyType(after)


def _true_rate(part: PartReading) -> float | None:
    """Tuples/s of a thread that is at work all the time: received / (busy * threads)."""
    received, busy = part.values.get(Metric.RATE_IN), part.values.get(Metric.BUSY)
    if received is None or busy is None or not isfinite(received) or not isfinite(busy) or busy < LEAST_BUSY:
        return None
    return received / (busy * max(1.0, part.values.get(Metric.THREADS, 1.0)))
