"""P-Deployer's parallelisation: the min number of threads that keep up, by the cost of a tuple in one of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.topology import CPU_POINTS_PER_SLOT
from penstock.modelling.task_profile import (
    IO_SHARE,
    THREAD_MEMORY_MB,
    Traffic,
    bound_of,
    memory,
    parallelism,
    profile_of,
    thread_cpu_range,
    threads_per_tuple,
)
from penstock.planning.allocation.contract import OperatorAllocation, ThreadBundle, idle_operator

if TYPE_CHECKING:
    from penstock.modelling.model import Model
    from penstock.modelling.task_profile import TaskProfile


class ByProfile(ABC):
    """Threads by a task profile; if there is only a model of a slot, by the profile that follows from it."""

    __slots__ = ()

    def allocate(self, operator: str, rate: float, model: Model) -> OperatorAllocation:
        profile = profile_of(model, DEFAULT_SLOT_MEMORY_MB, handled=1.0)
        return self.allocate_profiled(operator, Traffic(rate, (), ()), profile, DEFAULT_SLOT_MEMORY_MB)

    @abstractmethod
    def allocate_profiled(
        self, operator: str, traffic: Traffic, profile: TaskProfile, slot_memory_mb: float
    ) -> OperatorAllocation: ...


@dataclass(frozen=True, slots=True)
class Profiled(ByProfile):
    """`ceil(S c_p / 100)` threads if CPU binds, `ceil(S c_t / (100 io_share))` if I/O does, `ceil(S t_soj)` if waiting
    does, `ceil(S m_pt / memory_mb)` if memory does; the max of these unless the profile names the class.

    Every thread gets an equal share. Its CPU is charged as if all its neighbours were on other nodes; the placer
    subtracts the saving of co-location.
    """

    name: ClassVar[str] = "profiled"

    io_share: Annotated[float, Field(gt=0, allow_inf_nan=False)] = IO_SHARE
    memory_mb: Annotated[float, Field(gt=0, allow_inf_nan=False)] = THREAD_MEMORY_MB

    def allocate_profiled(
        self, operator: str, traffic: Traffic, profile: TaskProfile, slot_memory_mb: float
    ) -> OperatorAllocation:
        needs = threads_per_tuple(profile, self.io_share, self.memory_mb)
        threads = parallelism(needs, traffic.received)
        bound = bound_of(needs)
        why = f"{bound}-bound by '{profile.name}': {traffic.received:g}/s x {needs[bound]:.4g} threads per tuple/s"
        return equal_threads(operator, traffic, profile, threads, slot_memory_mb, why)


def equal_threads(
    operator: str, traffic: Traffic, profile: TaskProfile, threads: int, slot_memory_mb: float, why: str
) -> OperatorAllocation:
    """Return `threads` threads with an equal share of the traffic: CPU by Eq. 3 with nothing co-located, memory by Eq.
    4."""
    if traffic.received <= 0:
        return idle_operator(operator, traffic.received)
    least, most = thread_cpu_range(profile, threads, traffic)
    held = memory(profile, traffic, threads)
    return OperatorAllocation(
        operator,
        traffic.received,
        ((threads, ThreadBundle(1, most / CPU_POINTS_PER_SLOT, held / slot_memory_mb)),),
        f"{why} = {threads} thread{'' if threads == 1 else 's'} of {least:.4g} to {most:.4g} points and {held:.4g} MB",
        moving_cpu=threads * (most - least) / CPU_POINTS_PER_SLOT,
    )
