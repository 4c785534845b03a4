"""What somebody's own query needs, and what limits it: from a learned model, with the evidence for every word."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError
from penstock.base.tolerance import whole_down, whole_up
from penstock.control.attached.query_model import MAX_FIGURE, MIN_FIGURE, arrivals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.control.attached.query_model import BatchSeen, LearnedModel


MIN_UTILISATION = 1e-3
DEFAULT_UTILISATION = 0.7
"""Of what slots can do: the rest is for catching up, and for load that comes and goes."""
DEFAULT_BATCH_SECONDS = 10.0
"""Batches are taken to last so long at most where neither a latency nor a longer batch was seen."""
BATCHES_OF_LATENCY = 2
"""A row waits for the batch before it and is done at the end of its own: two batches at the most."""
MUCH = 0.5
"""More than this part of a batch's time: that is what limits it."""
GROWS = 0.02
"""A backlog that grows by more than this part of what arrives: it does not keep up."""
IDLE_BELOW = 0.8
"""Batches under way for less than this part of the time leave room for more."""


class Limit(StrEnum):
    NOTHING = "nothing"
    """It keeps up with what arrives."""
    EXECUTORS = "executors"
    """More of them do more."""
    PARTITIONS = "partitions"
    """More executors than partitions do nothing: the source, or the shuffle, is not divided further."""
    STATE = "state"
    DRIVER = "driver"
    """What is done once for every batch takes most of it."""
    SOURCE = "source"
    """Batches may take no more rows than they do, though more have arrived."""


@dataclass(frozen=True, slots=True)
class Advice:
    limit: Limit
    evidence: tuple[str, ...]
    target_rate: float
    batch_seconds: float
    needed_slots: int | None
    """None where no number of them is enough."""
    useful_slots: int | None
    """More than these do nothing; None where nobody knows."""
    now_slots: int
    most_rate_now: float
    headroom: float
    """most_rate_now / target - 1."""
    rows_per_batch: int
    """For `maxOffsetsPerTrigger`: as many as are done within a batch."""
    catch_up_seconds: float | None
    """For what waits, on the slots needed while the target goes on arriving; None where it never ends."""
    price_per_hour: float | None
    what_to_do: str

    def document(self) -> dict[str, Any]:
        return {
            "limit": str(self.limit),
            "evidence": list(self.evidence),
            "target_rate": self.target_rate,
            "executors": {"now": self.now_slots, "needed": self.needed_slots, "useful": self.useful_slots},
            "most_rate_now": self.most_rate_now,
            "headroom": self.headroom,
            "batch_seconds": self.batch_seconds,
            "max_offsets_per_trigger": self.rows_per_batch,
            "catch_up_seconds": self.catch_up_seconds,
            "price_per_hour": self.price_per_hour,
            "what_to_do": self.what_to_do,
        }


def advise(
    model: LearnedModel,
    *,
    rate: float | None = None,
    latency_ms: float | None = None,
    utilisation: float = DEFAULT_UTILISATION,
    price: float | None = None,
) -> Advice:
    """`rate` without: what arrives. `price` is that of a slot for an hour.

    batch = latency / 2; slots = rate * batch * row / ((batch - fixed) * utilisation), rounded up
    """
    if not MIN_UTILISATION <= utilisation <= 1:
        raise BadInputError(f"utilisation=: expected {MIN_UTILISATION:g} to 1, found {utilisation:g}")
    for what, given in (("rate", rate), ("latency", latency_ms)):
        if given is not None and not MIN_FIGURE <= given <= MAX_FIGURE:
            raise BadInputError(
                f"{what}: expected a number above 0 ({MIN_FIGURE:g} to {MAX_FIGURE:g}), found {given:g}"
            )
    if price is not None and not 0 <= price <= MAX_FIGURE:
        raise BadInputError(f"price: expected 0 to {MAX_FIGURE:g}, found {price:g}")
    target = rate or model.arrived_rate or model.done_rate
    batch = _batch_seconds(model, latency_ms)
    needed = _needed(model, target, batch, utilisation)
    most = model.most_rate(model.slots, batch)
    limit, evidence = find_limit(model, target, batch, needed, most)
    useful = model.partitions
    return Advice(
        limit=limit,
        evidence=tuple(evidence),
        target_rate=target,
        batch_seconds=batch,
        needed_slots=needed,
        useful_slots=useful,
        now_slots=model.slots,
        most_rate_now=most,
        headroom=most / target - 1,
        rows_per_batch=_rows_per_batch(model, needed, batch),
        catch_up_seconds=_catch_up(model, needed, target, batch),
        price_per_hour=None if price is None or needed is None else price * needed,
        what_to_do=_what_to_do(limit, model, needed, batch),
    )


def _batch_seconds(model: LearnedModel, latency_ms: float | None) -> float:
    if latency_ms is not None:
        return latency_ms / 1000 / BATCHES_OF_LATENCY
    return max(DEFAULT_BATCH_SECONDS, model.typical_seconds)


def _needed(model: LearnedModel, rate: float, batch: float, utilisation: float) -> int | None:
    useful = batch - model.fixed_seconds
    if useful <= 0:
        return None
    slots = max(1, whole_up(rate * batch * model.row_seconds / (useful * utilisation)))
    return slots if model.partitions is None or slots <= model.partitions else None


def slots_to_keep_up(model: LearnedModel, rate: float, latency_ms: float | None, utilisation: float) -> int | None:
    """For the rate, in batches of at least twice their fixed cost: where those are longer than the latency allows no
    number of slots makes them shorter, and rows must be done all the same."""
    batch = max(_batch_seconds(model, latency_ms), model.fixed_seconds / MUCH)
    return _needed(model, rate, batch, utilisation)


def _rows_per_batch(model: LearnedModel, needed: int | None, batch: float) -> int:
    """rows = (batch - fixed) * parallel / row: what is done in a batch of that length."""
    slots = needed or (model.partitions or model.slots)
    useful = max(0.0, batch - model.fixed_seconds)
    return max(1, whole_down(useful * model.parallel_on(slots) / max(model.row_seconds, 1e-12)))


def _catch_up(model: LearnedModel, needed: int | None, rate: float, batch: float) -> float | None:
    if not model.backlog:
        return 0.0
    spare = model.most_rate(needed or model.partitions or model.slots, batch) - rate
    return model.backlog / spare if spare > 0 else None


@dataclass(frozen=True, slots=True)
class _Case:
    """All a rule looks at."""

    model: LearnedModel
    rate: float
    batch: float
    needed: int | None
    most: float

    @property
    def keeps_up(self) -> bool:
        return self.most >= self.rate and not (self.model.backlog_growth or 0) > GROWS * self.rate

    @property
    def is_enough(self) -> bool:
        """It keeps up, with the room that is wanted."""
        return self.keeps_up and self.needed is not None and self.needed <= self.model.slots


def find_limit(
    model: LearnedModel, rate: float, batch: float, needed: int | None, most: float
) -> tuple[Limit, list[str]]:
    """The first that holds, from what no executor can change to what executors can."""
    case = _Case(model, rate, batch, needed, most)
    from_driver = ""
    if model.from_driver:
        known = model.driver_share > 0
        from_driver = "; from the driver's own times" if known else "; what a batch costs at all is in it"
    evidence = [
        f"{model.batches} batches: {model.fixed_seconds:.3g} s each, and {1000 * model.row_seconds:.3g} ms a row on "
        f"one slot (off by {100 * model.error:.0f} % in the median{from_driver})",
        f"on {model.slots} slots that is {most:,.0f} rows/s at most, in batches of {batch:.3g} s; "
        f"{rate:,.0f} rows/s are wanted",
    ]
    if model.backlog:
        growth = model.backlog_growth or 0.0
        evidence.append(f"{model.backlog:,.0f} rows wait" + (f", {growth:,.0f} more a second" if growth >= 1 else ""))
    for limit, rule in RULES:
        reasons = rule(case)
        if reasons:
            return limit, [*evidence, *reasons]
    return Limit.EXECUTORS, [*evidence, f"{needed} slots are needed, and {model.slots} are there"]


def _by_state(case: _Case) -> list[str]:
    model = case.model
    if case.is_enough or model.state_share is None or model.state_share < MUCH:
        return []
    share = f"{100 * model.state_share:.0f} % of a batch, what the driver does aside, is spent on its state"
    return [share, *_grows(model)]


def _grows(model: LearnedModel) -> list[str]:
    """Said where it keeps up, too: state that is never let go is a limit one day."""
    growth = model.state_growth or 0.0
    return [f"its state grows by {growth:,.0f} rows a second"] if growth >= 1 else []


def _by_source(case: _Case) -> list[str]:
    model = case.model
    if case.keeps_up and (model.backlog_growth or 0) <= 0:
        return []
    if model.busy >= IDLE_BELOW or not (model.backlog or 0) > model.largest_batch:
        return []
    return [
        f"yet a batch is under way only {100 * model.busy:.0f} % of the time, and none has more than "
        f"{model.largest_batch:,.0f} rows"
    ]


def _by_driver(case: _Case) -> list[str]:
    model = case.model
    if case.batch <= model.fixed_seconds:
        return [f"a batch costs {model.fixed_seconds:.3g} s before its first row, and may last {case.batch:.3g} s"]
    if case.keeps_up:
        return []
    if model.from_driver and model.driver_share >= MUCH:
        # what remains is mostly what a task costs at all: rows are charged with more than is theirs
        return [
            f"its batches are alike, of up to {model.largest_batch:,.0f} rows, and the driver needs "
            f"{100 * model.driver_share:.0f} % of each by itself: only larger ones tell what a row costs"
        ]
    part = model.fixed_seconds / case.batch
    if part < MUCH:
        return []
    return [
        f"{100 * part:.0f} % of a batch of {case.batch:.3g} s does not depend on its rows; the driver says "
        f"it needs {100 * model.driver_share:.0f} % by itself"
    ]


def _by_partitions(case: _Case) -> list[str]:
    model = case.model
    if model.partitions is None:
        return []
    if case.needed is not None and (case.keeps_up or model.slots < model.partitions):
        return []
    if model.uneven is not None:
        return [
            f"its input has {model.uneven} partitions, yet its longest tasks leave work for {model.partitions} at once:"
            " rows are not divided evenly, or by fewer keys or shuffle partitions"
        ]
    return [f"its input has {model.partitions} partitions: {model.slots} slots read with {model.parallel} at once"]


def _by_nothing(case: _Case) -> list[str]:
    model = case.model
    return [f"a batch is under way {100 * model.busy:.0f} % of the time", *_grows(model)] if case.is_enough else []


RULES: tuple[tuple[Limit, Callable[[_Case], list[str]]], ...] = (
    (Limit.STATE, _by_state),
    (Limit.SOURCE, _by_source),
    (Limit.DRIVER, _by_driver),
    (Limit.PARTITIONS, _by_partitions),
    (Limit.NOTHING, _by_nothing),
)
"""Each says what it saw, or nothing."""


def _what_to_do(limit: Limit, model: LearnedModel, needed: int | None, batch: float) -> str:
    if limit is Limit.NOTHING:
        spare = model.slots - (needed or model.slots)
        return f"nothing; {spare} of {model.slots} executors could go" if spare > 0 else "nothing: it keeps up"
    if limit is Limit.EXECUTORS:
        return f"take {needed} executors of one core instead of {model.slots}"
    if limit is Limit.PARTITIONS:
        input_alone = f"the input into more than {model.partitions} partitions"
        unevenly = "its rows more evenly, or into more shuffle partitions"
        return f"divide {input_alone if model.uneven is None else unevenly}; more executors do nothing"
    if limit is Limit.STATE:
        return "keep less state (a shorter watermark or window), or more state partitions and RocksDB as its store"
    if limit is Limit.DRIVER:
        return (
            f"take larger batches (more rows a trigger, or a trigger or latency above {batch:.3g} s), "
            "or a driver with faster cores"
        )
    return "raise maxOffsetsPerTrigger (or maxFilesPerTrigger), or drop the trigger interval: batches could be larger"


# The executors of an attached query: grow at once, shrink late and in small steps, within its limits.


RECENT_BATCHES = 3
"""What arrives is at least the mean over so many."""
CATCH_UP_SECONDS = 60.0
"""What waits is to be worked off in so long."""
CALM_SECONDS = 900.0
"""Fewer executors only when fewer were enough for so long."""
LARGEST_STEP_DOWN = 0.4


@dataclass(frozen=True, slots=True)
class SizingGoal:
    """`target` is what must hold; executors stay within `minimum` and `maximum`."""

    rate: float | None = None
    latency_ms: float | None = None
    minimum: int = 1
    maximum: int | None = None
    calm_seconds: float = CALM_SECONDS
    utilisation: float = DEFAULT_UTILISATION

    def __post_init__(self) -> None:
        if self.minimum < 1:
            raise BadInputError(f"minimum: expected at least 1, found {self.minimum}")
        if self.maximum is not None and self.maximum < self.minimum:
            raise BadInputError(f"maximum: {self.maximum} is below the minimum of {self.minimum}")

    def within(self, executors: int) -> int:
        return max(self.minimum, executors if self.maximum is None else min(executors, self.maximum))


@dataclass(frozen=True, slots=True)
class Sized:
    """A decision: `to` executors instead of `before`, and why; the same number is a decision too."""

    at: float
    before: int
    to: int
    why: str
    advice: Advice | None = None


@dataclass(frozen=True, slots=True)
class Calm:
    """Since when fewer executors would have been enough, and how many at the most were needed in that time."""

    since: float | None = None
    most: int = 0


def arriving(batches: Sequence[BatchSeen]) -> float:
    """Rows/s at the sources: the mean over the newest batches, or what the last one says where that is more, or a step
    would be followed three batches late. The first batch of all has what waited before there was a query."""
    rates = [rate for rate in arrivals(batches)[1:] if rate][-RECENT_BATCHES:]
    return max(sum(rates) / len(rates), rates[-1]) if rates else 0.0


def follow(
    model: LearnedModel,
    batches: Sequence[BatchSeen],
    wanted: SizingGoal,
    executors: int,
    cores: int,
    calm: Calm,
    now: float,
) -> tuple[Sized, Calm]:
    """needed = slots for what arrives (at least the target's rate) and what waits; clamped; up at once, down late."""
    rate = max(arriving(batches), wanted.rate or 0.0) or model.done_rate
    to_do = rate + (model.backlog or 0.0) / CATCH_UP_SECONDS
    advice = advise(model, rate=to_do, latency_ms=wanted.latency_ms, utilisation=wanted.utilisation)
    slots = slots_to_keep_up(model, to_do, wanted.latency_ms, wanted.utilisation)
    # more slots than partitions do nothing
    needed = wanted.within(math.ceil((slots or model.partitions or executors * cores) / cores))
    seen = f"{rate:,.0f} rows/s arrive" + (f" and {model.backlog:,.0f} wait" if model.backlog else "")
    if needed > executors:
        return Sized(now, executors, needed, f"{seen}: {needed} executors are needed", advice), Calm()
    if needed == executors:
        return Sized(now, executors, executors, f"{seen}: {executors} executors are right", advice), Calm()
    calm = Calm(now, needed) if calm.since is None else replace(calm, most=max(calm.most, needed))
    waited = now - (calm.since or now)
    if waited < wanted.calm_seconds:
        why = f"{seen}: {needed} executors would do; fewer when that holds for {wanted.calm_seconds:g} s"
        return Sized(now, executors, executors, why, advice), calm
    step = max(1, int(LARGEST_STEP_DOWN * executors))
    to = wanted.within(max(calm.most, executors - step))
    return Sized(now, executors, to, f"{seen}: {calm.most} executors were enough for {waited:.0f} s", advice), Calm()
