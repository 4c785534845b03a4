"""What fused execution will sustain: every slot runs the whole pipeline on its share of each batch.

A batch of n tuples over S slots takes `o + n/S * sum over operators of gain_i * b_i(t_i)` seconds: o is what the engine
needs for any batch, b_i the seconds a slot with t_i threads is busy with one tuple of operator i. A model was measured
with batches of about one second of work, o included, so `b_i = (1 - o) / I_i(t_i)`. The rate is n over that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.modelling.model import Model
from penstock.prediction.machine import own_cpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.rates import Gain
    from penstock.prediction.rate import Demands


def busy_seconds(gains: Mapping[str, Gain], demands: Demands, threads: Mapping[str, int]) -> float:
    """Seconds a slot needs for all that one tuple of the source causes, engine included: `sum gain_i / I_i(t_i)`."""
    return sum(
        gain.factor / demand.rate(threads[name])
        for name, gain in gains.items()
        if isinstance(demand := demands[name], Model)
    )


def fused_batch(
    gains: Mapping[str, Gain], demands: Demands, threads: Mapping[str, int], slots: int, seconds: float
) -> int:
    """Tuples that keep all slots busy for `seconds`."""
    busy = busy_seconds(gains, demands, threads)
    return max(slots, round(slots * seconds / busy)) if busy > 0 else 100_000


def fused_rate(
    gains: Mapping[str, Gain],
    demands: Demands,
    threads: Mapping[str, int],
    slots: int,
    batch_tuples: int,
    overhead_seconds: float,
) -> float:
    """Tuples/s that `slots` slots sustain with `threads` threads of each operator in each of them."""
    busy = (1 - overhead_seconds) * busy_seconds(gains, demands, threads)
    return batch_tuples / (overhead_seconds + batch_tuples / slots * busy)


@dataclass(frozen=True, slots=True)
class SlotUse:
    """CPU (1.0 = one core) and memory in MB of the process of a slot."""

    cpu: float
    memory_mb: float


def fused_usage(
    gains: Mapping[str, Gain], demands: Demands, threads: Mapping[str, int], slots: int, rate: float
) -> SlotUse:
    """What each of the slots uses at `rate` tuples/s over all of them.

    CPU: `rate / slots * sum gain_i c_i(t_i) / I_i(t_i)` with c the CPU of the operator's own process. Memory: the base
    of a worker and what every operator adds, whatever the rate: threads and what they opened stay.
    """
    cpu = memory = base = 0.0
    for name, gain in gains.items():
        model = demands[name]
        if isinstance(model, Model):
            count = threads[name]
            cpu += gain.factor * own_cpu(model, count) / model.rate(count)
            memory += model.memory(count) * (model.measured_on.slot_memory_mb or 0.0)
            base = max(base, model.measured_on.base_memory_mb or 0.0)
    return SlotUse(rate / slots * cpu, base + memory)


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
