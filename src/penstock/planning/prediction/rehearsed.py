"""Costs of the whole beyond its parts: the formula of a fused run, corrected by rehearsals of the pipeline.

Models are of operators alone. They leave out Spark's work to make tuples, to carry them to code and back, to read and
write files, and the loss of slots that share a machine. So a profile ends by running the pipeline as a whole, at full
speed, with batches of n1 and of n2 tuples on r slots: they took T1 and T2 seconds, and the formula gives F1 and F2. A
batch of n tuples on s slots is then predicted to need

T(n) = k F(n) + a + c n / min(s, cores)      seconds.

If tuples took longer than by the formula, `c = r ((T2 - T1) - (F2 - F1)) / (n2 - n1)` seconds of a slot each and
k = 1: Spark's cost of a tuple stays, however many threads its operators get. If they took less, c = 0 and
`k = (T2 - T1) / (F2 - F1)`. Either way `a = T1 - k F1 - c n1 / r`. Between numbers of slots that were rehearsed
everything is linear, outside of them flat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.modelling.model import Rehearsal

LEAST_LEFT = 0.05
"""Smallest share of the formula: a rehearsal that took hardly any time was none."""


@dataclass(frozen=True, slots=True)
class Correction:
    """k, a and c, and the pace of the cores they were measured at."""

    factor: float = 1.0
    batch_seconds: float = 0.0
    tuple_seconds: float = 0.0
    """Of a slot."""
    pace: float | None = None

    def applied(self, seconds: float, tuples: int, slots: int) -> float:
        """To a batch for which the formula says `seconds`."""
        corrected = self.factor * seconds + self.batch_seconds + self.tuple_seconds * tuples / slots
        return max(LEAST_LEFT * seconds, corrected)

    def slowed(self, slower: float) -> Correction:
        """On cores so many times slower: all of it is taken to be CPU."""
        return replace(
            self, batch_seconds=slower * self.batch_seconds, tuple_seconds=slower * self.tuple_seconds, pace=None
        )

    def towards(self, other: Correction, part: float) -> Correction:
        def between(here: float, there: float) -> float:
            return here + part * (there - here)

        return Correction(
            between(self.factor, other.factor),
            between(self.batch_seconds, other.batch_seconds),
            between(self.tuple_seconds, other.tuple_seconds),
            self.pace if part < 1 / 2 else other.pace,
        )


def correction_by(rehearsal: Rehearsal, formula: Callable[[int], float]) -> Correction:
    """`formula` says how long a batch takes as it was rehearsed."""
    small, large = rehearsal.small, rehearsal.large
    predicted = formula(large.tuples) - formula(small.tuples)
    took = max(LEAST_LEFT * predicted, large.seconds - small.seconds)
    if took >= predicted:
        factor, each = 1.0, (took - predicted) / (large.tuples - small.tuples)
    else:
        factor, each = took / predicted, 0.0
    batch = small.seconds - factor * formula(small.tuples) - each * small.tuples
    return Correction(factor, batch, rehearsal.slots * each, rehearsal.pace)


def correction_for(slots: int, known: Sequence[tuple[int, Correction]]) -> Correction | None:
    """Of `slots`, from what is `known` of some numbers of them."""
    ordered = sorted(known, key=lambda entry: entry[0])
    if not ordered:
        return None
    for (fewer, before), (more, after) in pairwise(ordered):
        if fewer <= slots <= more:
            return before.towards(after, (slots - fewer) / (more - fewer))
    return ordered[0][1] if slots <= ordered[0][0] else ordered[-1][1]


def rehearsed_cpu_seconds(rehearsal: Rehearsal) -> float:
    """Of Spark's whole process tree, code among it: the slope of the two sizes."""
    small, large = rehearsal.small, rehearsal.large
    return max(0.0, large.cpu_seconds - small.cpu_seconds) / (large.tuples - small.tuples)
