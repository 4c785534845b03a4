"""The model of operators that run one after the other in the same threads.

A thread is busy with one part at a time. With f_k tuples of part k for one that enters, and p what a worker does with
every tuple whatever the operator (`per_tuple_overhead`), which is in all models and done once here, t threads do
`I(t) = 1 / (p / w + sum of f_k / I_k(t))`, I_k that of the part without p and w the part of the time they are at work.
The operators' own CPU of a tuple adds up in the same way; what the engine and batches need is that of one operator.
Memory is held: `sum of M_k`.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError
from penstock.dataflow.logic import Per
from penstock.modelling.model import (
    ASSUMED_BATCH_SECONDS,
    MeasuredOn,
    Model,
    Point,
    handling_cpu_seconds,
    handling_seconds,
    without_handling,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_THE_SAME = ("cpu", "cores", "slot_memory_mb", "spark", "batch_seconds", "per")
"""Conditions of measurement that a fused model has if all its models agree."""
_AMOUNTS = (
    "batch_overhead_ms",
    "batch_cpu_ms",
    "worker_batch_cpu_ms",
    "handling_us",
    "column_handling_us",
    "column_handling_cpu_us",
    "base_memory_mb",
)
"""Measured each time: the mean."""


def fused_model(name: str, parts: Sequence[tuple[Model, float]]) -> Model:
    """`parts` are models with how many tuples each handles for one that enters the fused operator."""
    if not any(share > 0 for _, share in parts):
        raise BadInputError(f"operator '{name}' receives nothing: there is no model of it")
    models = [model for model, _ in parts]
    shares = [share for _, share in parts]
    on = _measured_on(models)
    hands_dicts_on = on.per is Per.ROW
    inner = [without_handling(model, gets_rows=hands_dicts_on and place > 0) for place, model in enumerate(models)]
    fusion = _Fusion(models, inner, shares, on)
    counts = sorted({point.threads for model in models for point in model.points})
    return Model(name, tuple(fusion.point(threads) for threads in counts), on)


@dataclass(frozen=True)
class _Fusion:
    models: list[Model]
    inner: list[Model]
    """Models without the worker's handling of every tuple."""
    shares: list[float]
    on: MeasuredOn

    def point(self, threads: int) -> Point:
        seconds = [share / model.rate(threads) for model, share in zip(self.inner, self.shares, strict=True)]
        at_work = [self._at_work(model, threads) for model in self.inner]
        busy = _weighted(at_work, seconds)
        rate = 1 / (sum(seconds) + handling_seconds(self.models) / busy)
        nearest = [_nearest(model, threads) for model in self.models]
        operator_cpu = self._operator_cpu(threads, rate)
        engine_cpu = self._engine_cpu(nearest[0], rate)
        known = [point.batch_spread for point in nearest if point.batch_spread is not None]
        return Point(
            threads=threads,
            rate=rate,
            cpu=self._cpu(threads, rate, operator_cpu, engine_cpu),
            memory=sum(model.memory(threads) for model in self.models),
            operator_cpu=operator_cpu,
            engine_cpu=engine_cpu,
            busy=busy if all(model.busy(threads) is not None for model in self.models) else None,
            batch_spread=_weighted(known, seconds) if len(known) == len(nearest) else None,
            others_cpu=max((point.others_cpu for point in nearest if point.others_cpu is not None), default=None),
            pace=_mean(point.pace for point in nearest),
            provenance={"rate": f"of the models of {', '.join(model.name for model in self.models)}"},
        )

    def _cpu(self, threads: int, rate: float, operator_cpu: float | None, engine_cpu: float | None) -> float:
        """Return the CPU of the slot, which has one core. If models do not divide it, tuples need what they needed in
        the trials."""
        if operator_cpu is not None and engine_cpu is not None:
            return min(1.0, operator_cpu + engine_cpu)
        cpus = [model.cpu(threads) for model in self.models]
        each = [cpu / model.rate(threads) for cpu, model in zip(cpus, self.models, strict=True)]
        return min(max(1.0, *cpus), rate * sum(s * cpu for s, cpu in zip(self.shares, each, strict=True)))

    def _at_work(self, model: Model, threads: int) -> float:
        """Return the part of the time at work, as in its trials if the model does not have it."""
        on = model.measured_on
        work, overhead = on.batch_seconds or ASSUMED_BATCH_SECONDS, (on.batch_overhead_ms or 0.0) / 1000
        return model.busy(threads) or work / (work + overhead)

    @property
    def _period(self) -> float:
        """Seconds from a batch of the trials to the next."""
        return (self.on.batch_seconds or ASSUMED_BATCH_SECONDS) + (self.on.batch_overhead_ms or 0.0) / 1000

    def _operator_cpu(self, threads: int, rate: float) -> float | None:
        batches = (self.on.worker_batch_cpu_ms or 0.0) / 1000 / self._period
        each = handling_cpu_seconds(self.models)
        for model, share in zip(self.inner, self.shares, strict=True):
            point = _nearest(model, threads)
            if point.operator_cpu is None:
                return None
            each += share * max(0.0, point.operator_cpu - batches) / point.rate
        return batches + rate * each

    def _engine_cpu(self, first: Point, rate: float) -> float | None:
        """Return the engine's CPU. Input is carried once, so it is that of the first model: for batches, and for their
        tuples."""
        if first.engine_cpu is None:
            return None
        batches = min(first.engine_cpu, (self.on.batch_cpu_ms or 0.0) / 1000 / self._period)
        return batches + (first.engine_cpu - batches) * min(1.0, rate / first.rate)


def _nearest(model: Model, threads: int) -> Point:
    return min(model.points, key=lambda point: abs(point.threads - threads))


def _weighted(values: list[float], weights: list[float]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def _measured_on(models: Sequence[Model]) -> MeasuredOn:
    """Return the common conditions of measurement, without those of one model alone: its code, the kind of its calls,
    rehearsals of its pipeline."""
    all_on = [model.measured_on for model in models]
    fields: dict[str, Any] = {
        name: values.pop() for name in _THE_SAME if len(values := {getattr(on, name) for on in all_on}) == 1
    }
    fields |= {name: _mean(getattr(on, name) for on in all_on) for name in _AMOUNTS}
    return MeasuredOn(
        what=f"made of the models {', '.join(model.name for model in models)}",
        date=max((on.date for on in all_on if on.date is not None), default=None),
        others_cpu=max((on.others_cpu for on in all_on if on.others_cpu is not None), default=None),
        still_rising=any(on.still_rising for on in all_on),
        gets=all_on[0].gets,
        **fields,
    )
