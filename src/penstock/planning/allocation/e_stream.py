"""E-Stream's instances of vertices: replicas of an operator added and removed as the rate moves (section 4.3).

A replica is a thread. `n` of them fill slots up to their peak: `capacity(n) = floor(n / t^) w^ + I(n mod t^)` with
`w^ = I(t^)` the peak of a slot. The busy share of the operator is `rate / capacity(n)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from penstock.base.errors import BadInputError
from penstock.base.tolerance import exceeds, whole_down
from penstock.planning.allocation.contract import OperatorAllocation, ThreadBundle, idle_operator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.modelling.model import Model

Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class EStream:
    """Keep the replicas that run while the busy share of their operator is between `low` and `high`.

    Above the band the operator is critical and gets replicas, below it loses some, until it is at most `target` busy;
    at least one stays. An operator that does not run yet gets the number for `target`.
    """

    low: Share = 0.6
    target: Share = 0.9
    high: Share = 1.0

    name: ClassVar[str] = "e-stream"

    def __post_init__(self) -> None:
        if not self.low < self.target <= self.high:
            raise BadInputError(
                f"allocator 'e-stream': expected low < target <= high, found {self.low:g}, {self.target:g} and "
                f"{self.high:g}"
            )

    def allocate(self, operator: str, rate: float, model: Model) -> OperatorAllocation:
        return self.change(operator, rate, model, 0)

    def beside(self, threads: Mapping[str, int]) -> EStreamBeside:
        return EStreamBeside(self, threads)

    def change(self, operator: str, rate: float, model: Model, now: int) -> OperatorAllocation:
        """Return the allocation of an operator that has `now` replicas."""
        if rate <= 0:
            return idle_operator(operator, rate)
        threads = replicas_for(model, rate, now, self.low, self.target, self.high)
        if not now:
            why = f"{threads} replica{'' if threads == 1 else 's'}"
        elif threads == now:
            why = f"{rate / capacity(model, now):.0%} busy: its {now} replicas stay"
        else:
            why = f"{rate / capacity(model, now):.0%} busy: {now} -> {threads} replicas"
        reason = f"{why}; {rate:g}/s of {capacity(model, threads):g}/s"
        return OperatorAllocation(operator, rate, _bundles(model, threads), reason)


@dataclass(frozen=True, slots=True, eq=False)
class EStreamBeside:
    """The policy for a pipeline that runs."""

    policy: EStream
    threads: Mapping[str, int]

    name: ClassVar[str] = EStream.name

    def allocate(self, operator: str, rate: float, model: Model) -> OperatorAllocation:
        return self.policy.change(operator, rate, model, self.threads.get(operator, 0))


def capacity(model: Model, threads: int) -> float:
    """Return the tuples/s of `threads` replicas: `floor(n / t^) w^ + I(n mod t^)`."""
    full, rest = divmod(threads, model.peak_threads)
    return full * model.peak_rate + (model.rate(rest) if rest else 0.0)


def fewest_replicas(model: Model, rate: float) -> int:
    """Return the replicas a rate needs: `n t^ + T(rate - n w^)` with `n = floor(rate / w^)`."""
    full = whole_down(rate / model.peak_rate)
    threads = full * model.peak_threads
    if not full or exceeds(rate, full * model.peak_rate):
        threads += model.threads_for(rate - full * model.peak_rate)
    return threads


def replicas_for(model: Model, rate: float, now: int, low: float, target: float, high: float) -> int:
    """Return how many replicas an operator has for a rate after it had `now`.

    `busy = rate / capacity(now)`. Above `high` and below `low` the number changes to the one for `target`; in between
    all stay.
    """
    enough = fewest_replicas(model, rate / target)
    if now < 1:
        return enough
    room = capacity(model, now)
    if exceeds(rate, high * room):
        # a model may dip: then the slot that peaks with fewer threads gets a neighbour
        return enough if enough > now else (now // model.peak_threads + 1) * model.peak_threads
    if exceeds(low * room, rate):
        return min(now, enough)
    return now


def _bundles(model: Model, threads: int) -> tuple[tuple[int, ThreadBundle], ...]:
    """Return full slots at their peak, each for itself, and the rest with the CPU and memory of its own peak."""
    full, rest = divmod(threads, model.peak_threads)
    bundles = [(full, ThreadBundle(model.peak_threads, 1.0, 1.0, exclusive=True))] if full else []
    if rest:
        bundles.append((1, ThreadBundle(rest, model.cpu(rest), model.memory(rest))))
    return tuple(bundles)
