"""What a pipeline reported since the last decision: sums, and whether its load has jumped meanwhile.

Two readings in a row that are far from the mean so far are a jump: the sums start anew from them, so that the mean is
of what arrives now. A load that has risen and then stayed where it is for `SETTLED_SECONDS` is not kept waiting for the
next decision in turn.
"""

from __future__ import annotations

from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.control.elasticity import learned_factor as learned
from penstock.control.elasticity.load_forecasts import FAR
from penstock.control.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.control.core.messages import PartReading
    from penstock.control.elasticity.learned_factor import Learned
    from penstock.control.elasticity.load_forecasts import Smoothed


LEAST_JUMP = 0.25
"""Of the mean so far: less is no jump, however even the load was."""
SETTLED_SECONDS = 2.0


class Gathered(NamedTuple):
    rates: float = 0.0
    done: float = 0.0
    readings: int = 0
    latest: float | None = None
    """Tuples/s that arrived, of the last few readings."""
    backlog: float | None = None
    busy: float | None = None
    latency_ms: float | None = None
    odd: float | None = None
    """The last reading, where it was far from the mean."""
    risen_at: float | None = None
    """When the load last jumped upward."""

    @property
    def rate(self) -> float | None:
        return self.rates / self.readings if self.readings else None

    @property
    def processed_rate(self) -> float | None:
        return self.done / self.readings if self.readings else None

    def has_risen(self, now: float) -> bool:
        """It jumped up, and has stayed there."""
        return self.risen_at is not None and now - self.risen_at >= SETTLED_SECONDS


NOTHING = Gathered()


def still_risen(now: float) -> Gathered:
    """After a decision that left things as they are although tuples pile up: the next one comes soon."""
    return Gathered(risen_at=now)


def after(known: Gathered, values: Mapping[str, float], smoothed: Smoothed | None, now: float) -> Gathered:
    """One report more; what is no number is not taken for one."""
    rate, done = _number(values.get(Metric.OFFERED_RATE)), _number(values.get(Metric.RATE))
    if rate is None:
        return known
    backlog, busy = _number(values.get(Metric.BACKLOG)), _number(values.get(Metric.BUSY))
    mean = _usual(known, smoothed)
    far = mean is not None and abs(rate - mean) > _limit(mean, smoothed)
    if far and mean is not None and known.odd is not None and (known.odd > mean) == (rate > mean):
        risen = now if rate > mean else None
        known = Gathered(known.odd, known.done / max(1, known.readings), 1, backlog=known.backlog, risen_at=risen)
        far = False
    return Gathered(
        rates=known.rates + rate,
        done=known.done + (done or 0.0),
        readings=known.readings + 1,
        latest=rate if known.latest is None else 0.2 * known.latest + 0.8 * rate,
        backlog=known.backlog if backlog is None else backlog,
        busy=_mean(known.busy, busy, known.readings),
        latency_ms=_number(values.get(Metric.LATENCY_MS)),
        odd=rate if far else None,
        risen_at=known.risen_at,
    )


def _usual(known: Gathered, smoothed: Smoothed | None) -> float | None:
    """The mean of the readings so far but for one that is far off; the level known before where there are none."""
    odd, left = known.odd or 0.0, known.readings - (known.odd is not None)
    if left:
        return (known.rates - odd) / left
    return None if smoothed is None else smoothed.level


def _limit(mean: float, smoothed: Smoothed | None) -> float:
    """max(a quarter of the mean, FAR mean deviations)"""
    return max(LEAST_JUMP * mean, 0.0 if smoothed is None else FAR * smoothed.spread * smoothed.level)


def _mean(known: float | None, value: float | None, readings: int) -> float | None:
    """Of all readings since; None where one of them did not say it."""
    if value is None or (readings and known is None):
        return None
    return ((known or 0.0) * readings + value) / (readings + 1)


def _number(value: Any) -> float | None:
    """None for what is missing, no number, infinite or negative."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value) or value < 0:
        return None
    return float(value)


# A run corrects the models part by part: the true processing rate of a thread of every operator (tuples over the time
# at work), the memory of a slot, and the fixed cost of a batch. Kept beside the profiled figures, with spread and start
# time.


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
