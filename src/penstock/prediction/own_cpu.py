"""CPU of one tuple, by the models of its operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.modelling.model import Model
from penstock.prediction.rate import spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.rates import Gain
    from penstock.prediction.rate import Demands, ThreadsBySlot


def cpu_seconds_per_tuple(gains: Mapping[str, Gain], demands: Demands, threads: ThreadsBySlot) -> float:
    """Of everything one tuple of the source causes; what an operator's own process used, where its model says."""
    total = 0.0
    for operator, gain in gains.items():
        model = demands[operator]
        if not isinstance(model, Model):
            continue
        spread = spread_of(threads, operator)
        rate = sum(model.rate(count) for count in spread.values())
        cpu = sum(own_cpu(model, count) for count in spread.values())
        total += gain.factor * cpu / rate if rate > 0 else 0.0
    return total


def own_cpu(model: Model, threads: int) -> float:
    """CPU of the operator's own code at the peak of `threads`: that of the nearest measured point, less what its worker
    needs for batches whatever is in them, scaled to the rate; the slot's where the model does not say."""
    point = min(model.points, key=lambda measured: abs(measured.threads - threads))
    if point.operator_cpu is None or point.rate <= 0:
        return model.cpu(threads)
    on = model.measured_on
    period = (on.batch_seconds or 1.0) + (on.batch_overhead_ms or 0.0) / 1000
    batches = (on.worker_batch_cpu_ms or 0.0) / 1000 / period
    return max(0.0, point.operator_cpu - batches) / point.rate * model.rate(threads)
