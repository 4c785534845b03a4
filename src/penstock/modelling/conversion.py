"""From a slot model to a task profile and back, as far as one says what the other does.

A slot model does not say what moving a tuple costs: its trials run in one slot, so `moving_cpu` becomes 0. And a
profile is linear where a model is a curve: only the model's single thread is taken over. The other way, a profile
knows nothing of threads that hinder each other: the slot it describes rises straight to what a core and the slot's
memory allow. `handled` is how many tuples are received or sent per tuple processed: 2 for one in, one out.
"""

from __future__ import annotations

import math

from penstock.cluster.resources import CPU_POINTS_PER_SLOT
from penstock.dataflow.tolerance import whole_up
from penstock.errors import BadInputError
from penstock.modelling.model import Model, Point
from penstock.modelling.task_profile import Bound, TaskProfile, threads_per_tuple

MOST_THREADS = 64
"""Threads of one slot where neither a core nor its memory limits them."""

_EVERY_COUNT_UP_TO = 16


def profile_of(model: Model, slot_memory_mb: float, handled: float = 2.0) -> TaskProfile:
    """What a tuple costs one thread alone at its peak:

    `t_soj = 1 / I(1)`, `c_p = 100 C(1) / I(1)`, `c_t = 0`, `m_pt = M(1) * slot_memory_mb / (I(1) * handled)`.

    Bound by sojourn: I(1) is what a thread did, whatever kept it from doing more.
    """
    rate = model.rate(1)
    costs = (1 / rate, CPU_POINTS_PER_SLOT * model.cpu(1) / rate, model.memory(1) * slot_memory_mb / rate / handled)
    if not all(map(math.isfinite, costs)):
        raise BadInputError(f"model '{model.name}': {rate:g} tuples/s of one thread are too few to compute costs from")
    return TaskProfile(
        name=model.name,
        sojourn_seconds=costs[0],
        processing_cpu=costs[1],
        moving_cpu=0.0,
        memory_mb=costs[2],
        bound=Bound.SOJOURN,
        measured_on=model.measured_on,
        provenance={
            "processing_cpu": "one thread of the slot model",
            "sojourn_seconds": "one thread of the slot model",
            "memory_mb": "one thread of the slot model",
            "moving_cpu": "unknown: a slot model's trials move nothing between nodes",
        },
    )


def model_of(profile: TaskProfile, slot_memory_mb: float, handled: float = 2.0) -> Model:
    """The slot that the costs describe, with everything it talks to on its node:

    `I(t) = min(t * r, 100 / c_p, slot_memory_mb / (handled * m_pt))`, r being what one thread does (1 / the most
    threads per tuple), `C(t) = I(t) * c_p / 100`, `M(t) = I(t) * handled * m_pt / slot_memory_mb`. The CPU of moving is
    left out: it depends on the placement, and the prediction adds it.
    """
    need = max(threads_per_tuple(profile).values())
    if need <= 0:
        asked = f"a cost of bound '{profile.bound}'" if profile.bound else "every cost"
        raise BadInputError(
            f"profile '{profile.name}': {asked} is 0, so nothing says what a thread can do; expected it above 0"
        )
    rate_of_one = 1 / need
    per_tuple_memory = handled * profile.memory_mb
    limits = [MOST_THREADS * rate_of_one]
    if profile.processing_cpu > 0:
        limits.append(CPU_POINTS_PER_SLOT / profile.processing_cpu)
    if per_tuple_memory > 0:
        limits.append(slot_memory_mb / per_tuple_memory)
    peak = min(limits)
    if not (math.isfinite(rate_of_one) and peak > 0):
        raise BadInputError(f"profile '{profile.name}': its costs are too small or too large to compute with")
    points = []
    for threads in _counts(peak / rate_of_one):
        rate = min(threads * rate_of_one, peak)
        points.append(
            Point(
                threads=threads,
                rate=rate,
                cpu=rate * profile.processing_cpu / CPU_POINTS_PER_SLOT,
                memory=rate * per_tuple_memory / slot_memory_mb,
            )
        )
    return Model(profile.name, tuple(points), profile.measured_on)


def _counts(threads: float) -> list[int]:
    """Thread counts up to the one that reaches the peak: all of the first, then ever wider apart, and both sides of the
    bend, so that the curve is exact."""
    last = max(1, whole_up(threads))
    counts = {1, last, max(1, last - 1), *range(1, min(last, _EVERY_COUNT_UP_TO) + 1)}
    step = _EVERY_COUNT_UP_TO
    while step < last:
        counts.add(step)
        step = math.ceil(step * 1.25)
    return sorted(counts)
