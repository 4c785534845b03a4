"""The cost of one tuple for a thread of an operator: P-Deployer's task profile, the second kind of model.

A slot model gives the rate of a slot of t threads; a profile gives the cost of a tuple, and so the demand of a thread
on any node beside any neighbours. CPU is in points (100 = a core), all costs are linear in tuples/s. The sizes of the
streams, which the publication lists with the profile, are those of the pipeline at the rate that is planned.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field

from penstock.base.errors import BadInputError
from penstock.base.files import Amount, ModelName, Spec
from penstock.base.tolerance import ratio_key, whole_up
from penstock.cluster.topology import CPU_POINTS_PER_SLOT
from penstock.dataflow.pipeline import flows
from penstock.modelling.model import MeasuredOn, Model, Point

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Flows, Pipeline


IO_SHARE = 0.1
"""The most of a core one thread of an I/O-bound operator spends on moving tuples (alpha)."""

THREAD_MEMORY_MB = 512.0
"""The most memory one thread of a memory-bound operator takes (beta)."""


class Bound(StrEnum):
    """The resource that limits a thread."""

    CPU = "cpu"
    """One core: processing."""
    IO = "io"
    """Moving tuples between nodes."""
    SOJOURN = "sojourn"
    """Waiting: the time a tuple stays, whatever it uses."""
    MEMORY = "memory"
    """Memory kept per tuple."""


class TaskProfile(Spec):
    """Costs of one operator, by the name pipelines use for its model."""

    name: ModelName
    sojourn_seconds: Amount
    """Seconds a tuple occupies a thread (t_soj)."""
    processing_cpu: Amount
    """Points of CPU per tuple/s processed (c_p)."""
    moving_cpu: Amount
    """Points of CPU per tuple/s that is sent to or received from another node (c_t)."""
    memory_mb: Amount
    """MB per tuple/s received or sent (m_pt)."""
    bound: Bound | None = None
    """The bound of a thread, if that is known; otherwise it follows from the costs."""
    measured_on: MeasuredOn = MeasuredOn()
    provenance: dict[str, str] = Field(default_factory=dict)
    """Origin of each figure, by the name of the figure."""


def cpu(profile: TaskProfile, received: float, moved: float) -> float:
    """Eq. 1: `C = received * c_p + moved * c_t`, `moved` being the tuples/s that cross between nodes."""
    return received * profile.processing_cpu + moved * profile.moving_cpu


def memory(profile: TaskProfile, traffic: Traffic, threads: int = 1) -> float:
    """Eq. 2 and 4: `M = (sum_in S_k + sum_out S'_k) * m_pt / P`, ingest counted as an input."""
    return (traffic.received + sum(traffic.outputs)) * profile.memory_mb / threads


def thread_cpu_range(profile: TaskProfile, threads: int, traffic: Traffic) -> tuple[float, float]:
    """Eq. 3, points of one of `threads` threads with every neighbour on its node, and with none:

    `C = received / P * c_p + sum_k S_k / (P_k P) * (P_k - Adj_k) * c_t`, Adj_k of operator k's P_k threads being beside
    it. (The printed formula divides the first term by P_k too, which contradicts Eq. 1.) What lies between depends on
    the placement: `penstock.planning.placement.packing` counts it.
    """
    return cpu(profile, traffic.received / threads, 0.0), cpu(
        profile, traffic.received / threads, traffic.moved / threads
    )


def threads_per_tuple(
    profile: TaskProfile, io_share: float = IO_SHARE, thread_memory_mb: float = THREAD_MEMORY_MB
) -> dict[Bound, float]:
    """Threads that 1 tuple/s needs by each bound: `c_p / 100`, `c_t / (100 alpha)`, `t_soj`, `m_pt / beta`.

    Only the bound of the profile if it names one.
    """
    needs = {
        Bound.CPU: profile.processing_cpu / CPU_POINTS_PER_SLOT,
        Bound.IO: profile.moving_cpu / (CPU_POINTS_PER_SLOT * io_share),
        Bound.SOJOURN: profile.sojourn_seconds,
        Bound.MEMORY: profile.memory_mb / thread_memory_mb,
    }
    return needs if profile.bound is None else {profile.bound: needs[profile.bound]}


def bound_of(needs: dict[Bound, float]) -> Bound:
    """Return the bound of an operator: the one that needs the most threads per tuple, ties in the order cpu, io,
    sojourn, memory."""
    return max(needs, key=lambda bound: ratio_key(needs[bound]))


def parallelism(needs: dict[Bound, float], received: float) -> int:
    """Return the min number of threads for a load: `max over bounds of ceil(S * threads per tuple)`, at least 1."""
    return max(1, whole_up(received * max(needs.values())))


# Convert a slot model to a task profile and back, as far as the one determines the other.
#
# A slot model does not contain the cost of moving a tuple: its trials run in one slot, so `moving_cpu` becomes 0. And a
# profile is linear, a model is a curve: only the model's single thread is taken over. The other way, a profile does not
# cover contention of threads: the slot it describes rises straight to the limits of a core and the slot's memory.
# `handled` is how many tuples are received or sent per tuple processed: 2 for one in, one out.


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


# Traffic of an operator: tuples/s in and out, stream by stream.


class Traffic(NamedTuple):
    """Tuples/s of one operator: from outside (a source's), over its input streams, over its output streams."""

    ingest: float
    inputs: tuple[float, ...]
    outputs: tuple[float, ...]

    @property
    def received(self) -> float:
        """What is processed."""
        return self.ingest + sum(self.inputs)

    @property
    def moved(self) -> float:
        """What crosses to other nodes where nothing is co-located; ingest comes from outside in any case."""
        return sum(self.inputs) + sum(self.outputs)


def traffic_of(pipeline: Pipeline, carried: Flows, rate: float) -> dict[str, Traffic]:
    """Of every operator, at the pipeline's rate."""
    inputs: dict[str, list[float]] = {name: [] for name in pipeline.operators}
    outputs: dict[str, list[float]] = {name: [] for name in pipeline.operators}
    for stream, gain in zip(pipeline.streams, carried.streams, strict=True):
        outputs[stream.sender].append(gain.at(rate))
        inputs[stream.receiver].append(gain.at(rate))
    return {
        name: Traffic(
            carried.operators[name].at(rate) if name in pipeline.sources else 0.0,
            tuple(inputs[name]),
            tuple(outputs[name]),
        )
        for name in pipeline.operators
    }


def handled_per_tuple(pipeline: Pipeline, operator: str) -> float:
    """Tuples received or sent per tuple processed; constant parts of streams, which are not per tuple, left out.

    Where a stream has `selectivities`, a tuple is the mixture of the operator's inputs at a high rate.
    """
    outputs = pipeline.outputs(operator)
    if not any(stream.selectivities for stream in outputs):
        return 1 + sum(stream.weight * stream.selectivity for stream in outputs)
    rates = flows(pipeline)
    sent = sum(
        gain.factor for stream, gain in zip(pipeline.streams, rates.streams, strict=True) if stream.sender == operator
    )
    received = rates.operators[operator].factor
    return 1 + (sent / received if received > 0 else 0.0)
