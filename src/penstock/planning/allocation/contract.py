"""What an allocation policy is asked and what it answers: how many threads and slots each operator gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from penstock.base.tolerance import whole_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.modelling.model import Model
    from penstock.modelling.task_profile import TaskProfile, Traffic

Pattern = tuple[tuple[str, int], ...]
"""What one slot holds: (operator, threads)."""


@dataclass(frozen=True, slots=True)
class ThreadBundle:
    """Threads of one operator that go to one slot together, with what they need there (1.0 = the slot)."""

    threads: int
    cpu: float
    memory: float
    exclusive: bool = False
    """The slot takes nothing else, not even a bundle that needs nothing."""


@dataclass(frozen=True, slots=True)
class OperatorAllocation:
    """Threads of one operator and the bundles they come in, in the order they are placed."""

    name: str
    rate: float
    bundles: tuple[tuple[int, ThreadBundle], ...]
    """(how many, which): equal bundles are counted, not listed."""
    reason: str
    is_end: bool = False
    """A source or sink with a fixed demand: published slot counts leave these out."""
    moving_cpu: float = 0.0
    """How much of `cpu` goes when every thread it talks to is on its node; slots needed do not count it, because
    what of it stays is the placer's doing."""

    @property
    def threads(self) -> int:
        return sum(count * bundle.threads for count, bundle in self.bundles)

    @property
    def cpu(self) -> float:
        return sum(count * bundle.cpu for count, bundle in self.bundles)

    @property
    def memory(self) -> float:
        return sum(count * bundle.memory for count, bundle in self.bundles)


def slots_needed(cpu: float, memory: float) -> int:
    """`max(ceil(cpu), ceil(memory))`, forgiving what rounding adds to a whole number."""
    return max(whole_up(cpu), whole_up(memory))


@dataclass(frozen=True, slots=True)
class Allocation:
    """The answer for a whole pipeline, operators in topological order."""

    allocator: str
    operators: tuple[OperatorAllocation, ...]
    notes: tuple[str, ...] = ()
    """What a reader of the plan should know about it."""
    patterns: tuple[tuple[int, Pattern], ...] = ()
    """(how many slots, what each holds), where the allocator decided that too; most leave it to the placer."""

    def operator(self, name: str) -> OperatorAllocation:
        return next(operator for operator in self.operators if operator.name == name)

    @property
    def slots(self) -> int:
        """Slots without sources and sinks of fixed demand, as the documents count."""
        inner = [operator for operator in self.operators if not operator.is_end]
        return slots_needed(sum(o.cpu - o.moving_cpu for o in inner), sum(o.memory for o in inner))

    @property
    def slots_with_sources_and_sinks(self) -> int:
        cpu = sum(o.cpu - o.moving_cpu for o in self.operators)
        needed = slots_needed(cpu, sum(o.memory for o in self.operators))
        return max(needed, sum(count for count, _ in self.patterns))


def idle_operator(name: str, rate: float) -> OperatorAllocation:
    """One thread that needs nothing: an operator that receives nothing must still exist to be run."""
    return OperatorAllocation(name, rate, ((1, ThreadBundle(1, 0.0, 0.0)),), "receives nothing: one idle thread")


class Allocator(Protocol):
    """Decides the threads of ONE operator with a model; the planner calls it once per operator.

    `rate` is the operator's input rate, at least 0 and finite. The answer's threads must be enough for it by the
    policy's own rule. Pure: same input, same answer.
    """

    name: ClassVar[str]

    def allocate(self, operator: str, rate: float, model: Model) -> OperatorAllocation: ...


@runtime_checkable
class ProfileAllocator(Allocator, Protocol):
    """An allocator that decides from what a tuple costs. It is asked this where a pipeline is allocated; an operator
    that has only a slot model is given the costs of that model's single thread."""

    def allocate_profiled(
        self, operator: str, traffic: Traffic, profile: TaskProfile, slot_memory_mb: float
    ) -> OperatorAllocation: ...


@runtime_checkable
class NodeAllocator(Allocator, Protocol):
    """An allocator whose threads depend on how many nodes there are."""

    def on_nodes(self, nodes: int) -> Allocator:
        """The allocator for a cluster of so many nodes."""
        ...


@runtime_checkable
class ElasticAllocator(Allocator, Protocol):
    """An allocator that changes the threads of a running pipeline and does not choose them anew."""

    def beside(self, threads: Mapping[str, int]) -> Allocator:
        """Return the allocator for a pipeline that has this number of threads of each operator."""
        ...


@dataclass(frozen=True, slots=True)
class Need:
    """An operator with a model and the rate it must do."""

    operator: str
    rate: float
    model: Model


@runtime_checkable
class JointAllocator(Allocator, Protocol):
    """An allocator that decides for all operators together, and what every slot holds.

    `operators` come in topological order, those whose bundles are given (sources, sinks, declared demands) as they
    are; the answer has all of them in the same order, and patterns that hold every one of their threads.
    """

    def allocate_together(
        self, operators: Sequence[Need | OperatorAllocation]
    ) -> tuple[list[OperatorAllocation], tuple[tuple[int, Pattern], ...]]: ...
