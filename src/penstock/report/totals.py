"""Sums over all batches of a run, however few of them are kept."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.modelling.library import QUIET
from penstock.report.report import Audit, OperatorObservation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.report.report import BatchObservation


LEAST_JUDGED = 1000
"""Tuples it takes to say that too many died: the first of a run may be the only bad ones."""
MOST_LATELY = 0.5
"""Of the last tuples as many may die at most, whatever came before: code that began to fail on everything would be
outweighed for days by what went well."""


@dataclass(frozen=True, slots=True)
class Deaths:
    """Of so many tuples so many became dead letters."""

    tuples: int
    dead: int

    @property
    def share(self) -> float:
        """At most 1, though several descendants of one tuple may die."""
        return min(self.dead, self.tuples) / self.tuples if self.tuples else 0.0


@dataclass(slots=True)
class Totals:
    batches: int = 0
    tuples: int = 0
    dead: int = 0
    filtered: int = 0
    cpu_seconds: float = 0.0
    """Of the slots' own code."""
    operators: dict[str, OperatorObservation] = field(default_factory=dict)

    def add(self, batch: BatchObservation) -> None:
        self.batches += 1
        self.tuples += batch.tuples
        self.dead += dead_in(batch)
        self.filtered += sum(seen.filtered for seen in batch.operators.values())
        self.cpu_seconds += sum(slot.cpu_seconds for slot in batch.slots)
        for name, seen in batch.operators.items():
            before = self.operators.get(name)
            self.operators[name] = seen if before is None else _added(before, seen)

    @property
    def audit(self) -> Audit:
        """Where ids are not audited: nobody looked for losses."""
        return Audit(self.tuples, None, None, self.dead, self.filtered)

    @property
    def deaths(self) -> Deaths:
        return Deaths(self.tuples, self.dead)


def _added(before: OperatorObservation, seen: OperatorObservation) -> OperatorObservation:
    return OperatorObservation(
        before.received + seen.received,
        before.sent + seen.sent,
        before.filtered + seen.filtered,
        before.dead + seen.dead,
        before.busy_seconds + seen.busy_seconds,
    )


def dead_in(batch: BatchObservation) -> int:
    return sum(seen.dead for seen in batch.operators.values())


def deaths_lately(newest_first: Iterable[BatchObservation]) -> Deaths:
    """Of the fewest last batches that hold `LEAST_JUDGED` tuples together, or of all there are."""
    tuples = dead = 0
    for batch in newest_first:
        tuples += batch.tuples
        dead += dead_in(batch)
        if tuples >= LEAST_JUDGED:
            break
    return Deaths(tuples, dead)


def too_many_died(of_all: Deaths, lately: Deaths, max_dead_letter_ratio: float) -> Deaths | None:
    """Return the tuples that show it, or None: `share > max_dead_letter_ratio` of all tuples, or
    `share > max(max_dead_letter_ratio, MOST_LATELY)` of the last ones; either only of `LEAST_JUDGED` tuples or more."""
    if of_all.tuples >= LEAST_JUDGED and of_all.share > max_dead_letter_ratio:
        return of_all
    if lately.tuples >= LEAST_JUDGED and lately.share > max(max_dead_letter_ratio, MOST_LATELY):
        return lately
    return None


def forgotten_notes(kept: int, batches: int, *, whole: bool) -> list[str]:
    """What a report is of, where more batches came than are kept. An input that came to its end is counted whole."""
    if kept == batches:
        return []
    of_kept = "rates, latencies and slots" if whole else "rates, latencies, slots and operators"
    return [f"{of_kept} are of the last {kept:,} of {batches:,} batches, ids and dead letters of all"]


# The batches that an endless run keeps.


WHOLE_BATCHES = 200
"""So many keep what every operator did on every slot, which is most of what a batch takes: of 64 slots with 8
operators 100 kB. Figures are of fewer, reports do not look at it."""
_NOTHING: Mapping[str, OperatorObservation] = MappingProxyType({})


class KeptBatches:
    """The last `most` of them, oldest first."""

    def __init__(self, most: int, whole: int = WHOLE_BATCHES) -> None:
        self._batches: deque[BatchObservation] = deque(maxlen=most)
        self._whole = whole
        self.last_began: float | None = None
        """When the last batch that held tuples was begun, in seconds since the epoch."""

    def add(self, batch: BatchObservation) -> None:
        self._batches.append(batch)
        if batch.tuples:
            self.last_began = batch.began
        if len(self._batches) > self._whole:
            at = -1 - self._whole
            old = self._batches[at]
            self._batches[at] = replace(old, slots=tuple(replace(slot, operators=_NOTHING) for slot in old.slots))

    @property
    def last(self) -> BatchObservation | None:
        return self._batches[-1] if self._batches else None

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[BatchObservation]:
        return iter(self._batches)

    def __reversed__(self) -> Iterator[BatchObservation]:
        return reversed(self._batches)


# Note about other load on the machine.


def disturbance(others_cpu: float) -> list[str]:
    """A note where others used much of the machine during a run."""
    if others_cpu <= QUIET:
        return []
    return [
        f"other processes, or the host of this machine, used {100 * others_cpu:.0f} % of it meanwhile: what was "
        "measured is lower than it would be on a quiet one"
    ]
