"""What fused execution will sustain: every slot runs the whole pipeline on its share of each batch.

A batch of n tuples per slot takes `o + sum over operators of r_i(n) S_i` seconds. o is what the engine needs for any
batch. S_i is the seconds a thread of operator i needs for a tuple while all t_i of them are at work, and
`r_i(n) = ceil(gain_i n / t_i)` how often they go round: operators run one after the other, so a batch that does not
fill the last round waits for it all the same. A model was measured with batches of B seconds of work and full rounds,
o included, so `S_i = t_i / I_i(t_i) * B / (B + o)`. What a worker does with every tuple whatever the operator
(`penstock.modelling.handling`) is taken out of the models and added once: n p seconds. The rate is n over the whole
time, for all slots.

A batch ends with its slowest slot. Where the work of a batch varies by v_i of its mean from one to the next, the
slowest of k slots needs `sum r_i S_i v_i z(k)` longer, with z(k) the expected largest of k standard normal values:
what makes a batch slow is taken to concern all operators of a slot, and no two slots, alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.topology import Slot
from penstock.modelling.model import Model
from penstock.modelling.pace import ASSUMED_BATCH_SECONDS, at_pace, pace_of
from penstock.prediction.machine import cpu_seconds_per_tuple, own_cpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.rates import Gain
    from penstock.prediction.rate import Demands


class Rounds(NamedTuple):
    """Of one operator in one slot: `threads` tuples take `seconds`, give or take `spread` of it."""

    gain: float
    threads: int
    seconds: float
    spread: float


def rounds_of(
    gains: Mapping[str, Gain], demands: Demands, threads: Mapping[str, int], overhead_seconds: float
) -> list[Rounds]:
    """Of every operator with a model."""
    found = []
    for name, gain in gains.items():
        model = demands[name]
        if isinstance(model, Model):
            work = model.measured_on.batch_seconds or ASSUMED_BATCH_SECONDS
            count = threads[name]
            seconds = count / model.rate(count) * work / (work + overhead_seconds)
            found.append(Rounds(gain.factor, count, seconds, model.batch_spread(count)))
    return found


def slowest_of(slots: int) -> float:
    """z(k), the expected largest of k standard normal values, as Blom approximates it:
    `Phi^-1((k - 3/8) / (k + 1/4))`; 0 for one."""
    return NormalDist().inv_cdf((slots - 0.375) / (slots + 0.25))


def work_seconds(rounds: list[Rounds], tuples: int, slots: int) -> float:
    """How long the operators of the slowest of `slots` slots are at work on a batch of `tuples` tuples for each."""
    return sum(
        math.ceil(one.gain * tuples / one.threads - 1e-9) * one.seconds * (1 + one.spread * slowest_of(slots))
        for one in rounds
    )


def fused_batch(
    gains: Mapping[str, Gain],
    demands: Demands,
    threads: Mapping[str, int],
    slots: int,
    seconds: float,
    overhead_seconds: float,
    handling_seconds: float = 0.0,
) -> int:
    """Tuples of a batch over all slots: about `seconds` of work, in whole rounds of the operator whose round takes
    longest, and at least one of them."""
    rounds = rounds_of(gains, demands, threads, overhead_seconds)
    busy = handling_seconds + sum(one.gain / one.threads * one.seconds for one in rounds)
    if not rounds or busy <= 0:
        return 100_000
    longest = max(rounds, key=lambda one: one.seconds)
    whole = longest.threads / longest.gain if longest.gain > 0 else 1.0
    return slots * max(1, round(whole * max(1, round(seconds / busy / whole))))


def fused_rate(
    gains: Mapping[str, Gain],
    demands: Demands,
    threads: Mapping[str, int],
    slots: int,
    batch_tuples: int,
    overhead_seconds: float,
    trial_overhead_seconds: float | None = None,
    handling_seconds: float = 0.0,
) -> float:
    """Tuples/s that `slots` slots sustain with `threads` threads of each operator in each of them.

    `trial_overhead_seconds` is what the engine needed in the trials of the models, where that is not the same.
    """
    each = max(1, batch_tuples // slots)
    then = overhead_seconds if trial_overhead_seconds is None else trial_overhead_seconds
    rounds = rounds_of(gains, demands, threads, then)
    return slots * each / (overhead_seconds + work_seconds(rounds, each, slots) + each * handling_seconds)


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
    handling_seconds: float = 0.0,
) -> SlotUse:
    """What each of the slots uses at `rate` tuples/s over all of them.

    CPU: `rate / slots * (p + sum gain_i c_i(t_i) / I_i(t_i))` with c the CPU of the operator's own code; what batches
    need whatever is in them is the engine's. Memory: the base of a worker and
    `sum M_i(t_i min(1, received_i / I_i(t_i)))`, that of as many threads as have something to do.
    """
    cpu, memory, base = rate / slots * handling_seconds, 0.0, 0.0
    for name, gain in gains.items():
        model = demands[name]
        if isinstance(model, Model):
            count = threads[name]
            part = gain.at(rate) / slots / model.rate(count)
            cpu += part * own_cpu(model, count)
            memory += model.memory(min(1.0, part) * count) * (model.measured_on.slot_memory_mb or 0.0)
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


@dataclass(frozen=True)
class FusedSetup:
    """How a pipeline runs fused: `threads` are those of each operator in ONE slot, `most_rows` what a batch takes in at
    most over all slots. The machine has `cores`; the engine needs `overhead_seconds` and `batch_cpu_seconds` for any
    batch."""

    gains: Mapping[str, Gain]
    demands: Demands
    threads: Mapping[str, int]
    slots: int
    cores: int
    most_rows: int
    overhead_seconds: float
    batch_cpu_seconds: float
    trial_overhead_seconds: float | None = None
    """What the engine needed in the trials of the models, where that is known not to be the same."""
    handling_seconds: float = 0.0
    """What a worker needs for every tuple; it is in none of the models of `demands`."""

    @cached_property
    def modelled(self) -> list[str]:
        """The operators that take time."""
        return [name for name in self.gains if isinstance(self.demands[name], Model)]

    @cached_property
    def _one_slot(self) -> dict[Slot, Mapping[str, int]]:
        """All slots are alike."""
        return {Slot("any", 0): self.threads}

    @cached_property
    def cpu_per_tuple(self) -> float:
        return self.handling_seconds + cpu_seconds_per_tuple(self.gains, self.demands, self._one_slot)

    def slots_rate(self) -> float:
        """Tuples/s of full batches, if every slot has a core."""
        return fused_rate(
            self.gains,
            self.demands,
            self.threads,
            self.slots,
            self.most_rows,
            self.overhead_seconds,
            self.trial_overhead_seconds,
            self.handling_seconds,
        )

    def rate(self) -> float:
        """Tuples/s, or those at which the cores are full where that is less."""
        alone = self.slots_rate()
        batches = alone / self.most_rows
        left = max(0.0, self.cores - batches * self.batch_cpu_seconds)
        return min(alone, left / self.cpu_per_tuple) if self.cpu_per_tuple > 0 else alone

    def busy_seconds(self, operator: str, tuples: int) -> float:
        """Of one slot's threads of an operator for the slot's part of a batch.

        Full rounds of t tuples take `S(t) = t / I(t)` each, without the part of the engine in the trials. A last
        round of m tuples keeps m threads at work and takes S(m): a batch of a few tuples is soon done, which matters
        where a pipeline keeps up and its batches are small. Predictions are for full batches and leave that out.
        """
        model = self.demands[operator]
        if not isinstance(model, Model):
            return 0.0
        work = model.measured_on.batch_seconds or ASSUMED_BATCH_SECONDS
        then = self.overhead_seconds if self.trial_overhead_seconds is None else self.trial_overhead_seconds
        count = self.threads[operator]
        whole, rest = divmod(math.ceil(self.gains[operator].factor * tuples - 1e-9), count)
        seconds = whole * count / model.rate(count) + (rest / model.rate(rest) if rest else 0.0)
        return seconds * work / (work + then)

    def batch_seconds(self, tuples: int) -> float:
        """Of a batch of `tuples` over all slots: its slowest slot, or its CPU over all cores where that takes longer.

        `max(o + p n / k + sum over operators of busy_seconds(ceil(n / k)) (1 + v z(k)), (n c + e) / cores)`
        """
        each = -(-tuples // self.slots)
        alone = self.overhead_seconds + each * self.handling_seconds
        alone += sum(self.busy_seconds(name, each) * self._slowest(name) for name in self.modelled)
        return max(alone, (tuples * self.cpu_per_tuple + self.batch_cpu_seconds) / self.cores)

    def _slowest(self, operator: str) -> float:
        """How many times as long as on average the slowest slot is at work on its part of a batch."""
        model = self.demands[operator]
        spread = model.batch_spread(self.threads[operator]) if isinstance(model, Model) else 0.0
        return 1 + spread * slowest_of(self.slots)

    @cached_property
    def pace(self) -> float | None:
        """What a run would show on cores as fast as those of the trials. Its slots look ten times a second, whichever
        operator is at work then: `sum p_i w_i / sum w_i` with `w_i = gain_i / I_i(t_i)`, the seconds for a tuple."""
        told = [
            (pace, self.gains[name].factor / model.rate(self.threads[name]))
            for name in self.modelled
            if isinstance(model := self.demands[name], Model) and (pace := pace_of([model])) is not None
        ]
        weight = sum(seconds for _, seconds in told)
        return sum(pace * seconds for pace, seconds in told) / weight if weight > 0 else None

    def at_pace(self, pace: float) -> FusedSetup:
        """On cores of another pace than those the models were measured on; batches hold as much as before."""
        before = self.pace
        if before is None:
            return self
        slower = before / pace
        demands = {
            name: at_pace(model, (pace_of([model]) or before) / slower, before) if isinstance(model, Model) else model
            for name, model in self.demands.items()
        }
        then = self.overhead_seconds if self.trial_overhead_seconds is None else self.trial_overhead_seconds
        return replace(
            self,
            demands=demands,
            overhead_seconds=slower * self.overhead_seconds,
            batch_cpu_seconds=slower * self.batch_cpu_seconds,
            trial_overhead_seconds=slower * then,
            handling_seconds=slower * self.handling_seconds,
        )

    def use(self, rate: float) -> SlotUse:
        return fused_usage(self.gains, self.demands, self.threads, self.slots, rate, self.handling_seconds)
