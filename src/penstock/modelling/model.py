"""A model: the rate, CPU and memory of one slot of an operator, by its number of threads."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from penstock.base.errors import BadInputError
from penstock.base.files import Amount, Count, Name, Positive, Spec
from penstock.base.tolerance import covers
from penstock.dataflow.logic import Per

if TYPE_CHECKING:
    from collections.abc import Sequence


class Point(Spec):
    """One measured thread count: its peak stable rate, and CPU and memory at that rate (1.0 = the whole slot).

    CPU is that of the slot's whole process tree; memory is what the operator adds above the base, the memory of a
    worker without it. The spreads are half the range seen over repeated trials, where there were any.
    """

    threads: Count
    rate: Annotated[Positive, Field(le=1e30)]
    cpu: Amount
    memory: Amount
    rate_spread: Amount | None = None
    cpu_spread: Amount | None = None
    memory_spread: Amount | None = None
    operator_cpu: Amount | None = None
    """The part of the CPU the operator's own process used, in cores: `operator_cpu / rate` seconds for a tuple."""
    engine_cpu: Amount | None = None
    """The part the engine used meanwhile, in cores. The two may come to more than 1 where other cores were free."""
    others_cpu: Amount | None = None
    """The part of the machine that other processes, and its host, used meanwhile: much of it, and rates are too low."""
    pace: Positive | None = None
    """How fast the cores were meanwhile: pieces of a fixed work that one did in a second it was wanted."""
    busy: Annotated[float, Field(gt=0, le=1)] | None = None
    """The part of the time in which the code was at work at that rate; the rest was the engine's, or there was nothing
    to do. So a slot with always something to do, and no engine, would do `rate / busy`."""
    batch_spread: Amount | None = None
    """How much the time for a batch varied from one to the next: the standard deviation as a part of the mean."""
    provenance: dict[str, str] = Field(default_factory=dict)
    """How each figure is known, by the name of the figure."""


class RehearsedBatches(Spec):
    """Batches of one size, as fast as they went: a typical one."""

    tuples: Count
    seconds: Positive
    cpu_seconds: Amount
    """Of Spark's whole process tree, code among it."""


class Rehearsal(Spec):
    """A whole pipeline, run fused on one machine with small and with large batches, when its operators had been
    measured."""

    pipeline: str
    slots: Count
    threads: dict[Name, Count]
    """Of each operator in one slot."""
    small: RehearsedBatches
    large: RehearsedBatches
    pace: Positive | None = None
    """Of the cores meanwhile."""
    shape: str | None = None
    """Of the pipeline as it was (`penstock.modelling.fingerprint`)."""

    @model_validator(mode="after")
    def _sizes_differ(self) -> Self:
        if self.small.tuples >= self.large.tuples:
            raise ValueError("small.tuples: expected fewer than large.tuples")
        return self


class MeasuredOn(Spec):
    """What a model was measured on, so that a plan can say when it does not fit."""

    what: str = ""
    cpu: str | None = None
    cores: Count | None = None
    slot_memory_mb: Positive | None = None
    spark: str | None = None
    date: str | None = None
    batch_seconds: Positive | None = None
    """How much work a batch of the trials held."""
    batch_overhead_ms: Amount | None = None
    """What the engine needed for a batch, whatever was in it."""
    batch_cpu_ms: Amount | None = None
    """The CPU the engine needed for a batch, whatever was in it."""
    worker_batch_cpu_ms: Amount | None = None
    """The CPU a worker needed for a batch with next to nothing in it: it is in the `operator_cpu` of every point."""
    others_cpu: Amount | None = None
    """The most that other processes used of the machine while a point was measured."""
    still_rising: bool = False
    """The profile ended while more threads did more."""
    code: str | None = None
    """The fingerprint of the code that was measured."""
    gets: str | None = None
    """The columns of the tuples it was measured with."""
    selectivity: Amount | None = None
    """Tuples it sent for each that it got, of those sampled before it was measured."""
    samples: Count | None = None
    """So many came to it then."""
    per: Per | None = None
    """What one call of the code gets."""
    handling_us: Amount | None = None
    """Microseconds a worker needed for a tuple with an operator that gets it the same way and does nothing: they are in
    the rate of every point, and operators that run fused need them once."""
    column_handling_us: Amount | None = None
    """The part of it that code over columns would need too: the rest is for making dicts of rows, and rows of dicts."""
    column_handling_cpu_us: Amount | None = None
    """The CPU of that part, where it is known: the rest of it is spent waiting for Spark."""
    own_batch_ms: Amount | None = None
    """Of an operator that is Spark's own: what a batch takes longer for it, whatever is in it (shuffles, state)."""
    base_memory_mb: Amount | None = None
    """What a worker held without any operator: a slot holds this, and what the models of its operators say."""
    rehearsals: tuple[Rehearsal, ...] = ()
    """Of its pipeline, at the end of the profile that measured it."""

    @model_validator(mode="before")
    @classmethod
    def _without_what_rehearsals_tell(cls, data: Any) -> Any:
        """Models of before say what a tuple took that passed through a slot in which nothing was done with it."""
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if name not in {"passing_us", "passing_cpu_us"}}


@dataclass(frozen=True)
class Model:
    """Measured points in order of rising threads.

    Between points everything is linear, before the first it falls to 0 at 0 threads, after the last it is flat.
    """

    name: str
    points: tuple[Point, ...]
    measured_on: MeasuredOn = field(default_factory=MeasuredOn)

    def __post_init__(self) -> None:
        if not self.points:
            raise BadInputError(f"model '{self.name}': expected at least one point")
        counts = [point.threads for point in self.points]
        for before, after in pairwise(counts):
            if after <= before:
                raise BadInputError(f"model '{self.name}': thread counts must rise, found {after} after {before}")

    @cached_property
    def _threads(self) -> list[int]:
        return [point.threads for point in self.points]

    def rate(self, threads: float) -> float:
        """I(t), the peak rate of a slot with `threads` threads."""
        return self._interpolate(threads, self._rates)

    def cpu(self, threads: float) -> float:
        """C(t), the CPU of a slot at the peak rate of `threads` threads."""
        return self._interpolate(threads, self._cpus)

    def memory(self, threads: float) -> float:
        """M(t), the memory of a slot at the peak rate of `threads` threads."""
        return self._interpolate(threads, self._memories)

    def rate_spread(self, threads: float) -> float:
        """Half the range of I(t) over repeated trials; 0 where there were none."""
        return self._interpolate(threads, [point.rate_spread or 0.0 for point in self.points])

    def batch_spread(self, threads: float) -> float:
        """How much of its mean the time for a batch varies by; 0 where no point says."""
        return self._interpolate(threads, [point.batch_spread or 0.0 for point in self.points])

    def busy(self, threads: float) -> float | None:
        """The part of the time in which `threads` threads were at work at their peak rate; None where points do not
        say. Before the first point it is that of the first."""
        known = [point.busy for point in self.points if point.busy is not None]
        if len(known) < len(self.points):
            return None
        return self._interpolate(max(threads, self._threads[0]), known)

    def threads_for(self, rate: float) -> int:
        """T(w), the smallest MEASURED thread count whose peak rate is at least `rate`."""
        for point in self.points:
            if covers(point.rate, rate, self.peak_rate):
                return point.threads
        raise BadInputError(
            f"model '{self.name}': one slot supports at most {self.peak_rate:g} tuples/s, asked for {rate:g}"
        )

    @cached_property
    def peak_rate(self) -> float:
        """The highest rate one slot supports, with any number of threads."""
        return max(self._rates)

    @cached_property
    def peak_threads(self) -> int:
        """The smallest measured thread count that reaches the peak rate."""
        return next(point.threads for point in self.points if covers(point.rate, self.peak_rate))

    @cached_property
    def _rates(self) -> list[float]:
        return [point.rate for point in self.points]

    @cached_property
    def _cpus(self) -> list[float]:
        return [point.cpu for point in self.points]

    @cached_property
    def _memories(self) -> list[float]:
        return [point.memory for point in self.points]

    def _interpolate(self, threads: float, values: Sequence[float]) -> float:
        if threads <= 0:
            return 0.0
        counts = self._threads
        right = bisect_left(counts, threads)
        if right == len(counts):
            return values[-1]
        if counts[right] == threads:
            return values[right]
        left_count, left_value = (counts[right - 1], values[right - 1]) if right else (0, 0.0)
        part = (threads - left_count) / (counts[right] - left_count)
        return left_value + part * (values[right] - left_value)


@dataclass(frozen=True, slots=True)
class FixedDemand:
    """A demand that does not depend on the rate: sources, sinks and Spark's own operators without a model."""

    cpu: float
    memory: float


SOURCE_DEMAND = FixedDemand(cpu=0.10, memory=0.15)
SINK_DEMAND = FixedDemand(cpu=0.10, memory=0.20)
AGGREGATE_DEMAND = FixedDemand(cpu=0.20, memory=0.20)
"""Of an aggregation, or another of Spark's own operators, without a model: a guess, until it is profiled."""
