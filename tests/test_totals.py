"""Sums over all batches of a run, and when too many of its tuples died."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.report.report import Audit, BatchObservation, OperatorObservation, SlotObservation
from penstock.report.totals import Deaths, KeptBatches, Totals, deaths_lately, too_many_died


def batch(tuples: int, dead: int) -> BatchObservation:
    return BatchObservation(
        1000.0,
        tuples,
        0,
        np.array([]),
        {
            "a": OperatorObservation(tuples, tuples - dead, 0, dead, 0.5),
            "b": OperatorObservation(tuples - dead, tuples - dead - 1, 1, 0, 0.25),
        },
        [SlotObservation(0, 0.2, 0.5, 100.0), SlotObservation(1, 0.1, 0.5, 90.0)],
    )


def test_sums_are_of_every_batch() -> None:
    totals = Totals()
    for dead in (1, 2, 3):
        totals.add(batch(100, dead))
    assert totals.batches == 3
    assert totals.cpu_seconds == pytest.approx(0.9)
    assert totals.audit == Audit(emitted=300, lost=None, duplicated=None, dead=6, filtered=3)
    assert totals.operators["a"] == OperatorObservation(300, 294, 0, 6, 1.5)
    assert totals.operators["b"] == OperatorObservation(294, 291, 3, 0, 0.75)


def test_of_older_batches_slots_are_kept_without_their_operators() -> None:
    seen = {"a": OperatorObservation(9, 9, 0, 0, 0.5)}
    kept = KeptBatches(most=4, whole=2)
    assert (kept.last, kept.last_began) == (None, None)
    for number in range(6):
        made = batch(100 if number < 5 else 0, 1)
        kept.add(replace(made, finished=1000.0 + number, slots=[replace(slot, operators=seen) for slot in made.slots]))
    assert [observed.finished for observed in kept] == [1002, 1003, 1004, 1005]
    assert [[slot.operators for slot in observed.slots] for observed in kept] == [[{}] * 2] * 2 + [[seen] * 2] * 2
    # all that is added up of slots is there
    assert [sum(slot.cpu_seconds for slot in observed.slots) for observed in kept] == pytest.approx([0.3] * 4)
    # the last one held nothing
    assert (kept.last_began, next(observed.finished for observed in reversed(kept))) == (1004.0, 1005.0)


def test_the_last_tuples_are_those_of_whole_batches() -> None:
    assert deaths_lately([]) == Deaths(0, 0)
    assert deaths_lately([batch(400, 4), batch(500, 5)]) == Deaths(900, 9)
    # newest first; the fourth is not needed
    newest_first = [batch(400, 4), batch(500, 5), batch(600, 6), batch(700, 7)]
    assert deaths_lately(newest_first) == Deaths(1500, 15)


@pytest.mark.parametrize(
    ("of_all", "lately", "limit", "shown"),
    [
        # 1 % may die, of all
        (Deaths(1000, 10), Deaths(1000, 10), 0.01, None),
        (Deaths(1000, 11), Deaths(1000, 11), 0.01, Deaths(1000, 11)),
        # fewer than 1,000 tuples say nothing
        (Deaths(999, 999), Deaths(999, 999), 0.01, None),
        # a burst after a good week is within the limit of all
        (Deaths(1_000_000, 450), Deaths(1000, 450), 0.01, None),
        # nearly everything dies of late: 1 % of all would be reached in hours
        (Deaths(1_000_000, 900), Deaths(1000, 900), 0.01, Deaths(1000, 900)),
        (Deaths(1_000_000, 900), Deaths(1000, 900), 0.95, None),
        # where all may die nothing is too much, however many descendants a tuple has
        (Deaths(2000, 6000), Deaths(1000, 3000), 1.0, None),
        (Deaths(1000, 1), Deaths(1000, 1), 0.0, Deaths(1000, 1)),
        (Deaths(1000, 0), Deaths(1000, 0), 0.0, None),
    ],
)
def test_when_too_many_tuples_died(of_all: Deaths, lately: Deaths, limit: float, shown: Deaths | None) -> None:
    assert too_many_died(of_all, lately, limit) == shown
