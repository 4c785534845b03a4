"""Prediction of fused execution, in which every slot runs the whole pipeline on its share of each batch.

A slot's part of a batch, n tuples of every source, takes

    o + W + sum over Spark's own operators of b_i(n)      seconds,      W = max(max over crews c of T_c(n), n u) + f.

`T_c(n) = sum over the operators i of c of b_i(n)`: operators that share a thread
take
turns, crews overlap. `b_i(n)` is how long the t_i threads of operator i are at work on what n tuples cause:
`gain_i n / t_i` rounds of `S_i = t_i / I_i(t_i) * w_i(t_i)` seconds, the last of which may have fewer tuples than
threads. (Of the time of its trials an operator was at work for w; where a model does not say, its batches were taken to
be B seconds of work and o of the engine's: `w = B / (B + o)`.) `u = p + sum gain_i c_i` is
the CPU of a tuple, of which a slot has one core: p for taking it in and giving it away as columns, which is in every
model and counts once (for every source: of k of them `p = k p_1`), and c_i that of its operators. `f` is the time the
first piece needs to reach the slowest crew, and the last from there to the end: of every other crew a piece. Where one
thread does everything, `W = T + n p`. o is what the engine needs for any batch, and for Spark's own operators' state
and shuffles.

A batch ends with its slowest slot. Where the work of a batch varies by v_i of its mean from one to the next, the
slowest of k slots needs `b_i v_i z(k)` longer, with z(k) the expected largest of k standard normal values: what makes a
batch slow is taken to concern all operators of a slot, and no two slots, alike. And a batch takes no less than o and
the CPU of its tuples, that of Spark's own processes among it, over all cores of the machine.

What Spark needs for tuples, and for files, is in no operator's model: where the pipeline was rehearsed as a whole, the
formula is corrected by that (`Correction`). Assumed: keys are spread evenly over
slots; code of one
slot uses one core, though libraries that let go of Python's lock may use more where others are free.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING

from penstock.base.tolerance import covers, whole_up
from penstock.cluster.topology import Slot
from penstock.dataflow.code import crews_of
from penstock.dataflow.formats import BatchAdmission
from penstock.dataflow.logic import Per
from penstock.dataflow.pipeline import gains
from penstock.modelling.library import rehearsals_of, sparks_own, unmeasured_operators
from penstock.modelling.model import (
    ASSUMED_BATCH_SECONDS,
    Model,
    at_pace,
    batch_cpu_seconds,
    batch_overhead_seconds,
    fewest_threads,
    handling_cpu_seconds,
    handling_seconds,
    pace_of,
    without_handling,
)
from penstock.planning.prediction.forecast import ErrorSpread, Estimate, RunForecast, SlotUse, spread_of_models
from penstock.planning.prediction.placement import cpu_seconds_per_tuple, own_cpu
from penstock.planning.prediction.rehearsed import Correction, correction_by, correction_for, rehearsed_cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.code import Crews
    from penstock.dataflow.pipeline import Gain, Pipeline
    from penstock.modelling.model import Rehearsal
    from penstock.planning.prediction.placement import Demands

PIECE_SECONDS = 0.025
"""What crews hand over at a time takes about so long (`penstock.runtime.steps`)."""
MANY_TUPLES = 1_000_000
"""Tuples of a batch in which rounds that are not full do not matter."""
DEFAULT_ROWS = 100_000
"""Tuples of a batch if nothing takes time."""
MOST_LOOKS = 10_000
"""At how long a batch is that holds what comes while one lasts: each is longer than the one before, or the last."""


def slowest_of(slots: int) -> float:
    """z(k), the expected largest of k standard normal values, as Blom approximates it:
    `Phi^-1((k - 3/8) / (k + 1/4))`; 0 for one."""
    return NormalDist().inv_cdf((slots - 0.375) / (slots + 0.25))


def fused_usage(
    gains: Mapping[str, Gain],
    demands: Demands,
    threads: Mapping[str, int],
    slots: int,
    rate: float,
    handling_cpu_seconds: float = 0.0,
) -> SlotUse:
    """Return the use of each slot at `rate` tuples/s over all of them.

    CPU: `rate / slots * (p + sum gain_i c_i(t_i) / I_i(t_i))` with c the CPU of the operator's own code; what batches
    need whatever is in them is the engine's. Memory: the base of a worker and `sum M_i(t_i)`: threads that are there,
    and what `open=` loaded, hold their memory at any rate.
    """
    cpu, memory, base = rate / slots * handling_cpu_seconds, 0.0, 0.0
    for name, gain in gains.items():
        model = demands[name]
        if isinstance(model, Model):
            count = threads[name]
            part = gain.at(rate) / slots / model.rate(count)
            cpu += part * own_cpu(model, count)
            memory += model.memory(count) * (model.measured_on.slot_memory_mb or 0.0)
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


_PARTS = {"p50": 0.50, "p95": 0.95, "p99": 0.99}

JAVA_MB = 640.0
"""Resident memory of Spark's Java process if no model has it, in MB; from 540 to 840 was seen."""
JAVA_SPREAD = 0.12
WORKER_MEMORY_SPREAD = 0.08
CPU_SPREAD = 0.12
"""Logarithmic standard deviations of memory and CPU around the formula."""


def rows_of_batch(setup: FusedSetup, seconds: float) -> int:
    """Tuples of a batch over all slots: about `seconds` of work, in whole rounds of the operator whose round takes
    longest, and at least one of them."""
    alone = replace(setup, slots=1, cores=MANY_TUPLES, overhead_seconds=0.0, batch_cpu_seconds=0.0)
    alone = replace(alone, trial_overhead_seconds=setup.overhead_seconds)
    busy = (alone.slot_seconds(MANY_TUPLES) - alone.fixed_seconds) / MANY_TUPLES
    if setup.correction is not None:
        busy = setup.correction.factor * busy + setup.correction.tuple_seconds
    if not setup.modelled or busy <= 0:
        return DEFAULT_ROWS

    def round_seconds(operator: str) -> float:
        return setup.threads[operator] * alone.busy_seconds(operator, MANY_TUPLES) / setup.gains[operator].factor

    longest = max((name for name in setup.modelled if setup.gains[name].factor > 0), key=round_seconds, default=None)
    whole = 1.0 if longest is None else setup.threads[longest] / setup.gains[longest].factor
    return setup.slots * max(1, round(whole * max(1, round(seconds / busy / whole))))


@dataclass(frozen=True)
class FusedSetup:
    """How a pipeline runs fused: `threads` are those of each operator in ONE slot, `most_rows` what a batch takes in at
    most over all slots. Tuples, and rates, are those of every source. The machine has `cores`; the engine needs
    `overhead_seconds` and `batch_cpu_seconds` for any batch."""

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
    """Seconds a worker needs for a tuple of every source; they are in none of the models of `demands`."""
    handling_cpu_seconds: float | None = None
    """The CPU of it; None: all of it."""
    sparks_cpu_seconds: float = 0.0
    """Of Spark's own processes, for every tuple."""
    correction: Correction | None = None
    """Correction by rehearsals; None: there were none."""
    partitions: int | None = None
    """Into how many tasks Spark divides its own operators; None: one for each slot."""
    crews: Crews | None = None
    """None: all operators with one thread are one crew."""
    rehearsed_slots: int | None = None
    """The most slots the whole pipeline was rehearsed on; None: it was not."""
    unmeasured: tuple[str, ...] = ()
    """Operators without a model."""
    models: tuple[Model, ...] = ()
    """Models as they were measured, for how far they can be trusted."""
    admission: BatchAdmission = field(default_factory=BatchAdmission)

    @cached_property
    def modelled(self) -> list[str]:
        """The operators that take time."""
        return [name for name in self.gains if isinstance(self.demands[name], Model)]

    @cached_property
    def sparks_own(self) -> list[str]:
        return [name for name in self.modelled if self._model(name).measured_on.per is Per.DATAFRAME]

    @cached_property
    def modelled_crews(self) -> Crews:
        """The operators of each crew that take time."""
        in_slots = [name for name in self.modelled if name not in self.sparks_own]
        crews = self.crews
        if crews is None:
            single = tuple(name for name in in_slots if self.threads[name] == 1)
            crews = (single, *((name,) for name in in_slots if self.threads[name] > 1))
        inside = (tuple(name for name in crew if name in in_slots) for crew in crews)
        return tuple(crew for crew in inside if crew)

    @cached_property
    def _one_slot(self) -> dict[Slot, Mapping[str, int]]:
        """All slots are alike."""
        return {Slot("any", 0): self.threads}

    @property
    def _handling_cpu(self) -> float:
        return self.handling_seconds if self.handling_cpu_seconds is None else self.handling_cpu_seconds

    @cached_property
    def cpu_per_tuple(self) -> float:
        return self._handling_cpu + cpu_seconds_per_tuple(self.gains, self.demands, self._one_slot)

    @cached_property
    def _cpu_in_code(self) -> float:
        """u: without what Spark's own operators need, whose time is all counted."""
        return self.cpu_per_tuple - sum(
            self.gains[name].factor * own_cpu(self._model(name), 1) / self._model(name).rate(1)
            for name in self.sparks_own
        )

    def slots_rate(self) -> float:
        """Tuples/s of full batches, if every slot has a core."""
        return self.most_rows / self._corrected(self.slot_seconds(self.most_rows), self.most_rows)

    def rate(self, interval_seconds: float = 0.0) -> float:
        """Tuples/s of full batches: `most_rows / max(interval, batch_seconds(most_rows))`, as none begins before the
        interval is over."""
        return self.most_rows / max(interval_seconds, self.batch_seconds(self.most_rows))

    def _model(self, operator: str) -> Model:
        model = self.demands[operator]
        if not isinstance(model, Model):
            raise TypeError(f"operator '{operator}' has no model")
        return model

    def busy_seconds(self, operator: str, tuples: int) -> float:
        """b(n), of one slot's threads of an operator for the slot's part of a batch.

        Full rounds of t tuples take `S(t) = t / I(t) * w(t)` each, without the part of the engine in the trials. A
        last round of m tuples keeps m threads at work and takes S(m).
        """
        if operator not in self.modelled:
            return 0.0
        model = self._model(operator)
        work = model.measured_on.batch_seconds or ASSUMED_BATCH_SECONDS
        then = self.overhead_seconds if self.trial_overhead_seconds is None else self.trial_overhead_seconds
        assumed = work / (work + then)

        def round_seconds(threads: int) -> float:
            return threads / model.rate(threads) * (model.busy(threads) or assumed)

        count = self.threads[operator]
        whole, rest = divmod(whole_up(self.gains[operator].factor * tuples), count)
        return whole * round_seconds(count) + (round_seconds(rest) if rest else 0.0)

    def slot_seconds(self, tuples: int) -> float:
        """Seconds of the slowest slot's part of a batch of `tuples` over all slots, with the engine's."""
        each = -(-tuples // self.slots)
        own = sum(self._slowest_seconds(name, self._each_own(tuples)) for name in self.sparks_own)
        return self.fixed_seconds + self._code_seconds(each) + own

    def _each_own(self, tuples: int) -> int:
        """What the slot with most of it has of a batch in Spark's own operators: of p partitions over k slots
        `ceil(p / k)`, one after the other, each a p-th of the tuples."""
        partitions = self.partitions or self.slots
        return -(-tuples * -(-partitions // self.slots) // partitions)

    def batch_seconds(self, tuples: int) -> float:
        """Of a batch of `tuples` over all slots: its slowest slot, or its CPU over all cores where that is more. What
        the engine needs for any batch comes before and behind its tuples: no core has any of them to work on then."""
        cpu = tuples * (self.cpu_per_tuple + self.sparks_cpu_seconds)
        fixed = max(self.fixed_seconds, self.batch_cpu_seconds / self.cores)
        return self._corrected(max(self.slot_seconds(tuples), fixed + cpu / self.cores), tuples)

    def _corrected(self, seconds: float, tuples: int) -> float:
        if self.correction is None:
            return seconds
        return self.correction.applied(seconds, tuples, min(self.slots, self.cores))

    @cached_property
    def fixed_seconds(self) -> float:
        """o: of any batch, whatever is in it."""
        own = sum(self._model(name).measured_on.own_batch_ms or 0.0 for name in self.sparks_own)
        return self.overhead_seconds + own / 1000

    def _code_seconds(self, each: int) -> float:
        crews = self.modelled_crews
        times = [sum(self._slowest_seconds(name, each) for name in crew) for crew in crews]
        if len(crews) == 1 and all(self.threads[name] == 1 for name in crews[0]):
            return times[0] + each * self.handling_seconds
        slowest = times.index(max(times)) if times else 0
        pieces = [
            min(seconds, max(PIECE_SECONDS, sum(self.busy_seconds(name, 1) for name in crew)))
            for place, (crew, seconds) in enumerate(zip(crews, times, strict=True))
            if place != slowest
        ]
        return max(max(times, default=0.0), each * self._cpu_in_code) + sum(pieces)

    def _slowest_seconds(self, operator: str, each: int) -> float:
        """Seconds of the slowest slot."""
        spread = self._model(operator).batch_spread(self.threads[operator])
        return self.busy_seconds(operator, each) * (1 + spread * slowest_of(self.slots))

    def latency_ms(self, rate: float, interval_seconds: float) -> dict[str, float] | None:
        """Of tuples that come evenly at `rate`, until their batch is committed; None where that is more than it does.

        A tuple is due at any time of a period T, waits for the next batch, and is there when that is committed: latency
        lies evenly between `batch_seconds(n)` and `batch_seconds(n) + T`.
        """
        steady = self.steady_batch(rate, interval_seconds)
        if steady is None:
            return None
        batch, period = steady
        return {name: 1000 * (batch + part * period) for name, part in _PARTS.items()}

    def steady_batch(self, rate: float, interval_seconds: float) -> tuple[float, float] | None:
        """How long a batch takes, and how long it is from one to the next (T), once that is always the same: a batch
        holds what came while the one before lasted, `n = rate T`, `T = max(interval, batch_seconds(n))`."""
        tuples = 1
        for _ in range(MOST_LOOKS):
            batch = self.batch_seconds(tuples)
            period = max(interval_seconds, batch)
            wanted = max(1, whole_up(rate * period))
            if wanted > self.most_rows:
                return None
            if wanted <= tuples:
                return batch, period
            tuples = wanted
        return None

    @cached_property
    def pace(self) -> float | None:
        """What a run would show on cores as fast as those of the rehearsal, or of the trials where there was none. Its
        slots look ten times a second, whichever operator is at work then: `sum p_i w_i / sum w_i` with
        `w_i = gain_i / I_i(t_i)`, the seconds for a tuple."""
        if self.correction is not None and self.correction.pace is not None:
            return self.correction.pace
        paces = [
            (pace, self.gains[name].factor / model.rate(self.threads[name]))
            for name in self.modelled
            if isinstance(model := self.demands[name], Model) and (pace := pace_of([model])) is not None
        ]
        weight = sum(seconds for _, seconds in paces)
        return sum(pace * seconds for pace, seconds in paces) / weight if weight > 0 else None

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
            handling_cpu_seconds=slower * self._handling_cpu,
            sparks_cpu_seconds=slower * self.sparks_cpu_seconds,
            correction=None if self.correction is None else self.correction.slowed(slower),
        )

    def use(self, rate: float) -> SlotUse:
        """Use of each slot by its worker."""
        return fused_usage(self.gains, self.demands, self.threads, self.slots, rate, self._handling_cpu)

    def cores_used(self, rate: float, interval_seconds: float) -> float:
        """Cores of all processes at `rate` tuples/s, the engine's own included, with batches of n tuples every T
        seconds: `(CPU of a batch + n * CPU of a tuple) / T`, no more than there are."""
        steady = self.steady_batch(rate, interval_seconds)
        if steady is None:
            period = max(interval_seconds, self.batch_seconds(self.most_rows))
            rate = self.most_rows / period
        else:
            period = steady[1]
        each = self.cpu_per_tuple + self.sparks_cpu_seconds
        return min(self.cores, rate * each + (self.batch_cpu_seconds + self._workers_batch_cpu) / period)

    @property
    def _workers_batch_cpu(self) -> float:
        """CPU all workers need for a batch whatever is in it."""
        known = [model.measured_on.worker_batch_cpu_ms for model in self.models]
        milliseconds = [value for value in known if value is not None]
        return self.slots * sum(milliseconds) / len(milliseconds) / 1000 if milliseconds else 0.0

    @property
    def java_mb(self) -> float:
        """Resident memory of Spark's Java process, in MB: the mean of the models that say it."""
        known = [model.measured_on.java_memory_mb for model in self.models]
        measured = [value for value in known if value is not None]
        return sum(measured) / len(measured) if measured else JAVA_MB

    def forecast(self, target_rate: float | None, interval_seconds: float, confidence: float = 0.5) -> RunForecast:
        """Return everything that is predicted of this run at `target_rate` tuples/s of every source."""
        nothing = RunForecast("fused", target_rate, self.slots, float(self.cores), confidence=confidence)
        if (reasons := self.unknown) or not self.modelled:
            return replace(nothing, unknown=reasons or ("no operator has a model",))
        # where sources decide, the interval is in how many tuples a batch holds
        interval = 0.0 if self.admission.own_source else interval_seconds
        spread = self.spread
        max_rate = Estimate(self.rate(interval), spread)
        rate = max_rate.value if target_rate is None else min(target_rate, max_rate.value)
        latency = self.latencies(target_rate, interval)
        used, worker = self.cores_used(rate, interval), self.use(rate)
        memory = self.slots * worker.memory_mb + self.java_mb
        worker_part = self.slots * worker.memory_mb / memory
        memory_spread = math.hypot(worker_part * WORKER_MEMORY_SPREAD, (1 - worker_part) * JAVA_SPREAD)
        return replace(
            nothing,
            max_rate=max_rate,
            latency_ms=None
            if latency is None
            else {name: Estimate(value, spread.mirrored) for name, value in latency.items()},
            cpu_cores=Estimate(used, ErrorSpread(CPU_SPREAD, CPU_SPREAD)),
            memory_mb=Estimate(memory, ErrorSpread(memory_spread, memory_spread)),
            slot_use=(worker,) * self.slots,
            batch_rows=self.most_rows,
        )

    @property
    def unknown(self) -> tuple[str, ...]:
        """Everything that keeps the rate from being predicted."""
        reasons = [f"operator '{name}' was not measured: penstock profile measures it" for name in self.unmeasured]
        return (*reasons, *([self.admission.unknown] if self.admission.unknown else []))

    @property
    def spread(self) -> ErrorSpread:
        """ErrorSpread of the highest rate."""
        most = self.rehearsed_slots
        reach = self.slots / most if most else float(self.slots)
        return spread_of_models(self.models, rehearsed=most is not None, reach=reach)

    def latencies(self, rate: float | None, interval_seconds: float) -> dict[str, float] | None:
        """Percentiles at a rate, in ms, as a run counts them: from when a tuple was due, or of a source of the user's
        own from when Spark took it in."""
        if self.admission.own_source:
            rows: int | None = self.most_rows
            if self.admission.rows is None and self.admission.unknown is None:
                rows = None if rate is None else self._steady_rows(rate, interval_seconds)
            return None if rows is None else {"p50": 1000 * self.batch_seconds(rows)}
        return None if rate is None else self.latency_ms(rate, interval_seconds)

    def _steady_rows(self, rate: float, interval_seconds: float) -> int | None:
        steady = self.steady_batch(rate, interval_seconds)
        return None if steady is None else max(1, whole_up(rate * steady[1]))


# Fused execution of a pipeline: threads, batch sizes and costs, from the models of its operators. Rehearsals, runs of
# the whole pipeline in its profile, correct the models of the single operators.


BATCH_SECONDS = 2.0
"""Batches of a run hold at most so much work: the engine's own part of one is about a tenth of a second, and only a run
that falls behind fills them."""
UNLIMITED_SECONDS = 10 * BATCH_SECONDS
"""Work of the largest batch if a source of the user's own admits everything that is there."""


@dataclass(frozen=True)
class PlannedRun:
    """What a plan says about running it: rate, threads of each operator over all slots, slots, and its prediction."""

    rate: float
    threads: Mapping[str, int]
    slots: int
    rates: Mapping[str, float | None]


def most_work_seconds(interval_seconds: float) -> float:
    """Seconds of work a batch of a run holds at most: `max(BATCH_SECONDS, interval)`. With less than the interval slots
    that fall behind would be done before the next batch may begin, and wait for it."""
    return max(BATCH_SECONDS, interval_seconds)


def fused_setup(
    pipeline: Pipeline,
    planned: PlannedRun | None,
    demands: Demands,
    slots: int | None,
    rate: float,
    cores: int,
    most_work: float = BATCH_SECONDS,
    admission: BatchAdmission | None = None,
) -> FusedSetup:
    """How `pipeline` runs fused at up to `rate` tuples/s: on the slots given, else those of the plan, else a slot for
    every core; with the threads of the plan, else those declared, else those the models say. A batch holds `most_work`
    seconds of work at most, or what its sources admit."""
    slots = slots or (planned.slots if planned else None) or cores
    threads = fused_threads(gains(pipeline), demands, rate, slots)
    given = (
        planned.threads
        if planned
        else {n: operator.threads for n, operator in pipeline.operators.items() if operator.threads}
    )
    threads |= {name: -(-count // slots) for name, count in given.items()}
    setup = _of_models(pipeline, demands, threads, slots, cores)
    setup = replace(_set_right(setup, pipeline, demands), admission=admission or BatchAdmission())
    if admission is None or not admission.own_source:
        return replace(setup, most_rows=rows_of_batch(setup, most_work))
    return replace(setup, most_rows=admission.rows or rows_of_batch(setup, UNLIMITED_SECONDS))


def _set_right(setup: FusedSetup, pipeline: Pipeline, demands: Demands) -> FusedSetup:
    """By rehearsals, where there were any; what Spark's processes need is as the one with most slots says."""
    rehearsals = rehearsals_of(pipeline, demands)
    if not rehearsals:
        return setup
    as_models_say = {rehearsal.slots: _as_rehearsed(pipeline, demands, rehearsal) for rehearsal in rehearsals}
    fullest = max(rehearsals, key=lambda rehearsal: rehearsal.slots)
    code_cpu = as_models_say[fullest.slots].cpu_per_tuple
    sparks_cpu = max(0.0, rehearsed_cpu_seconds(fullest) - code_cpu)
    known = []
    for rehearsal in rehearsals:
        formula = replace(as_models_say[rehearsal.slots], sparks_cpu_seconds=sparks_cpu)
        known.append((rehearsal.slots, correction_by(rehearsal, formula.batch_seconds)))
    correction = correction_for(min(setup.slots, setup.cores), known)
    return replace(setup, sparks_cpu_seconds=sparks_cpu, correction=correction, rehearsed_slots=fullest.slots)


def _of_models(pipeline: Pipeline, demands: Demands, threads: Mapping[str, int], slots: int, cores: int) -> FusedSetup:
    """Return the setup by the models of the operators alone."""
    modelled = [demand for demand in demands.values() if isinstance(demand, Model)]
    entering = len(pipeline.sources)
    crews = crews_of(pipeline, threads, sparks_own(pipeline, demands))
    return FusedSetup(
        gains(pipeline),
        handed_on(demands, crews),
        threads,
        slots,
        cores,
        1,
        batch_overhead_seconds(modelled),
        batch_cpu_seconds(modelled),
        handling_seconds=entering * handling_seconds(modelled),
        handling_cpu_seconds=entering * handling_cpu_seconds(modelled),
        crews=crews,
        models=tuple(modelled),
        unmeasured=unmeasured_operators(pipeline, demands),
    )


def _as_rehearsed(pipeline: Pipeline, demands: Demands, rehearsal: Rehearsal) -> FusedSetup:
    cores = max(demand.measured_on.cores or 1 for demand in demands.values() if isinstance(demand, Model))
    threads = {**dict.fromkeys(pipeline.operators, 1), **rehearsal.threads}
    return _of_models(pipeline, demands, threads, rehearsal.slots, cores)


def handed_on(demands: Demands, crews: Crews) -> Demands:
    """Models without what a slot pays once for all its operators."""
    rows = {name for name, model in demands.items() if isinstance(model, Model) and model.measured_on.per is Per.ROW}
    behind_rows = {after for crew in crews for before, after in pairwise(crew) if {before, after} <= rows}
    return {
        name: without_handling(model, gets_rows=name in behind_rows) if isinstance(model, Model) else model
        for name, model in demands.items()
    }


MAX_TIMES_SLOTS = 4
"""Search up to this multiple of the slots of the allocation for a number that keeps the rate fused."""
THREAD_MARGINS = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.5, math.inf)
"""Threads of a slot are tried for these multiples of its share: batches leave less time than there is."""
CORES_TOLERANCE = 0.05
"""Cores that a forecast may exceed the machines by: it is not more exact than that."""


@dataclass(frozen=True)
class FusedSizing:
    """Sizes fused runs of a pipeline for a rate."""

    pipeline: Pipeline
    demands: Demands
    rate: float
    sized_for: float
    interval_seconds: float
    admission: BatchAdmission
    confidence: float
    slot_memory_mb: float
    max_cores: float | None = None
    """Cores of the cluster that is given; None: machines are rented."""

    def setup(self, slots: int, threads: Mapping[str, int]) -> FusedSetup:
        """Return the fused run on `slots` slots with `threads` in each. With fewer slots than the machine of
        the models had cores, Spark itself uses the remaining ones."""
        cores = max(
            (demand.measured_on.cores or 1 for demand in self.demands.values() if isinstance(demand, Model)), default=1
        )
        there = cores if self.max_cores is None else min(cores, math.ceil(self.max_cores))
        return fused_setup(
            self.pipeline,
            PlannedRun(self.rate, {name: slots * count for name, count in threads.items()}, slots, {}),
            self.demands,
            slots,
            self.sized_for,
            max(slots, there),
            most_work_seconds(self.interval_seconds),
            self.admission,
        )

    def keeps(self, setup: FusedSetup) -> bool:
        """Whether it keeps the rate the plan is sized for with the confidence asked for, in the memory of its slots."""
        forecast = setup.forecast(self.sized_for, self.interval_seconds, self.confidence)
        return forecast.meets_target is True and covers(self.slot_memory_mb, forecast.slot_use[0].memory_mb)

    def on(self, slots: int) -> FusedSetup:
        """Return the run on `slots` slots with the smallest number of threads that keeps the rate, or with most."""
        tried: FusedSetup | None = None
        for margin in THREAD_MARGINS:
            threads = self._threads(slots, margin)
            if tried is None or threads != tried.threads:
                tried = self.setup(slots, threads)
            if self.keeps(tried):
                return tried
        assert tried is not None  # noqa: S101 - there are margins
        return tried

    def _threads(self, slots: int, margin: float) -> dict[str, int]:
        """Threads in one slot: those declared, else the smallest number that does `margin` times the slot's share."""
        threads = dict.fromkeys(self.pipeline.operators, 1)
        for name, gain in self.gains.items():
            model = self.demands[name]
            if isinstance(model, Model):
                threads[name] = fewest_threads(model, margin * gain.at(self.sized_for) / slots)
        declared = {name: operator.threads for name, operator in self.pipeline.operators.items() if operator.threads}
        return threads | {name: -(-count // slots) for name, count in declared.items()}

    @cached_property
    def gains(self) -> Mapping[str, Gain]:
        return gains(self.pipeline)

    def fewest_slots(self, most: int) -> int | None:
        """Return the smallest number of slots up to `most` that keeps the rate; None: none does. It is doubled until it
        suffices, then bisected: more slots keep no less."""
        refused, slots = 0, 1
        while not self.keeps(self.on(slots)):
            if slots >= most:
                return None
            refused, slots = slots, min(2 * slots, most)
        return (
            refused + 1 + bisect_left(range(refused + 1, slots), x=True, key=lambda fewer: self.keeps(self.on(fewer)))
        )
