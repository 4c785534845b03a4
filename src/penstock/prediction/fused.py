"""What fused execution will sustain: every slot runs the whole pipeline on its share of each batch.

A batch of n tuples per slot takes `o + sum over operators of r_i(n) S_i` seconds. o is what the engine needs for any
batch. S_i is the seconds a thread of operator i needs for a tuple while all t_i of them are at work, and
`r_i(n) = ceil(gain_i n / t_i)` how often they go round: operators run one after the other, so a batch that does not
fill the last round waits for it all the same. A model was measured with batches of B seconds of work and full rounds,
o included, so `S_i = t_i / I_i(t_i) * B / (B + o)`. The rate is n over that time, for all slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.modelling.model import Model
from penstock.prediction.machine import own_cpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.rates import Gain
    from penstock.prediction.rate import Demands


ASSUMED_BATCH_SECONDS = 1.0
"""What batches of trials held where a model does not say."""


def rounds_of(
    gains: Mapping[str, Gain], demands: Demands, threads: Mapping[str, int], overhead_seconds: float
) -> list[tuple[float, int, float]]:
    """(gain, threads, seconds of a round) of every operator with a model."""
    found = []
    for name, gain in gains.items():
        model = demands[name]
        if isinstance(model, Model):
            work = model.measured_on.batch_seconds or ASSUMED_BATCH_SECONDS
            count = threads[name]
            found.append((gain.factor, count, count / model.rate(count) * work / (work + overhead_seconds)))
    return found


def batch_time(rounds: list[tuple[float, int, float]], tuples: int, overhead_seconds: float) -> float:
    """Seconds a slot needs for a batch of `tuples` tuples."""
    return overhead_seconds + sum(math.ceil(gain * tuples / count - 1e-9) * each for gain, count, each in rounds)


def fused_batch(
    gains: Mapping[str, Gain],
    demands: Demands,
    threads: Mapping[str, int],
    slots: int,
    seconds: float,
    overhead_seconds: float,
) -> int:
    """Tuples of a batch over all slots: about `seconds` of work, in whole rounds of the operator whose round takes
    longest, and at least one of them."""
    rounds = rounds_of(gains, demands, threads, overhead_seconds)
    busy = sum(gain / count * each for gain, count, each in rounds)
    if busy <= 0:
        return 100_000
    gain, count, _ = max(rounds, key=lambda one: one[2])
    whole = count / gain if gain > 0 else 1.0
    return slots * max(1, round(whole * max(1, round(seconds / busy / whole))))


def fused_rate(
    gains: Mapping[str, Gain],
    demands: Demands,
    threads: Mapping[str, int],
    slots: int,
    batch_tuples: int,
    overhead_seconds: float,
) -> float:
    """Tuples/s that `slots` slots sustain with `threads` threads of each operator in each of them."""
    each = max(1, batch_tuples // slots)
    rounds = rounds_of(gains, demands, threads, overhead_seconds)
    return slots * each / batch_time(rounds, each, overhead_seconds)


@dataclass(frozen=True, slots=True)
class SlotUse:
    """CPU of a slot's operators (1.0 = one core), and memory in MB of its process."""

    cpu: float
    memory_mb: float


def fused_usage(
    gains: Mapping[str, Gain],
    demands: Demands,
    threads: Mapping[str, int],
    slots: int,
    rate: float,
) -> SlotUse:
    """What each of the slots uses at `rate` tuples/s over all of them.

    CPU: `rate / slots * sum gain_i c_i(t_i) / I_i(t_i)` with c the CPU of the operator's own code; what batches need
    whatever is in them is the engine's. Memory: the base of a worker and `sum M_i(t_i) min(1, received_i / I_i(t_i))`,
    as for any placement.
    """
    cpu = memory = base = 0.0
    for name, gain in gains.items():
        model = demands[name]
        if isinstance(model, Model):
            count = threads[name]
            part = gain.at(rate) / slots / model.rate(count)
            cpu += part * own_cpu(model, count)
            memory += min(1.0, part) * model.memory(count) * (model.measured_on.slot_memory_mb or 0.0)
            base = max(base, model.measured_on.base_memory_mb or 0.0)
    return SlotUse(cpu, base + memory)


def fused_threads(gains: Mapping[str, Gain], demands: Demands, rate: float, slots: int) -> dict[str, int]:
    """Threads of every operator in each slot: the fewest measured that do the slot's share, else those of the peak."""
    threads = {}
    for name, gain in gains.items():
        demand = demands[name]
        share = gain.at(rate) / slots
        if not isinstance(demand, Model):
            threads[name] = 1
        elif share < demand.peak_rate:
            threads[name] = demand.threads_for(share)
        else:
            threads[name] = demand.peak_threads
    return threads
