"""What one tuple costs a thread of an operator: P-Deployer's task profile, the second kind of model.

A slot model says what a slot of t threads does; a profile says what a tuple takes, and so what a thread needs on any
node beside any neighbours. CPU is in points (100 = a core), all costs are linear in tuples/s. The sizes of the streams,
which the publication lists with the profile, are those of the pipeline at the rate that is planned.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import Field

from penstock.cluster.resources import CPU_POINTS_PER_SLOT
from penstock.dataflow.tolerance import ratio_key, whole_up
from penstock.files import Amount, ModelName, Spec
from penstock.modelling.model import MeasuredOn

if TYPE_CHECKING:
    from penstock.modelling.traffic import Traffic

IO_SHARE = 0.1
"""The most of a core one thread of an I/O-bound operator spends on moving tuples (alpha)."""

THREAD_MEMORY_MB = 512.0
"""The most memory one thread of a memory-bound operator takes (beta)."""


class Bound(StrEnum):
    """What keeps a thread from doing more."""

    CPU = "cpu"
    """One core: processing."""
    IO = "io"
    """Moving tuples between nodes."""
    SOJOURN = "sojourn"
    """Waiting: a tuple stays so long, whatever it uses."""
    MEMORY = "memory"
    """What it keeps per tuple."""


class TaskProfile(Spec):
    """Costs of one operator, by the name pipelines use for its model."""

    name: ModelName
    sojourn_seconds: Amount
    """How long a tuple occupies a thread (t_soj)."""
    processing_cpu: Amount
    """Points of CPU per tuple/s processed (c_p)."""
    moving_cpu: Amount
    """Points of CPU per tuple/s that is sent to or received from another node (c_t)."""
    memory_mb: Amount
    """MB per tuple/s received or sent (m_pt)."""
    bound: Bound | None = None
    """What binds a thread, where that is known; otherwise it is found from the costs."""
    measured_on: MeasuredOn = MeasuredOn()
    provenance: dict[str, str] = Field(default_factory=dict)
    """How each figure is known, by the name of the figure."""


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
    the placement: `penstock.placement.packing` counts it.
    """
    return cpu(profile, traffic.received / threads, 0.0), cpu(
        profile, traffic.received / threads, traffic.moved / threads
    )


def threads_per_tuple(
    profile: TaskProfile, io_share: float = IO_SHARE, thread_memory_mb: float = THREAD_MEMORY_MB
) -> dict[Bound, float]:
    """Threads that 1 tuple/s needs by each bound: `c_p / 100`, `c_t / (100 alpha)`, `t_soj`, `m_pt / beta`.

    Only the bound of the profile where it says one.
    """
    needs = {
        Bound.CPU: profile.processing_cpu / CPU_POINTS_PER_SLOT,
        Bound.IO: profile.moving_cpu / (CPU_POINTS_PER_SLOT * io_share),
        Bound.SOJOURN: profile.sojourn_seconds,
        Bound.MEMORY: profile.memory_mb / thread_memory_mb,
    }
    return needs if profile.bound is None else {profile.bound: needs[profile.bound]}


def bound_of(needs: dict[Bound, float]) -> Bound:
    """What binds an operator: the bound that needs the most threads per tuple, ties in the order cpu, io, sojourn,
    memory."""
    return max(needs, key=lambda bound: ratio_key(needs[bound]))


def parallelism(needs: dict[Bound, float], received: float) -> int:
    """The fewest threads for a load: `max over bounds of ceil(S * threads per tuple)`, at least 1."""
    return max(1, whole_up(received * max(needs.values())))
