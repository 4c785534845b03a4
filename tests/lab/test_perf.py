"""What is made of producers' and sinks' messages, against values worked out by hand."""

from __future__ import annotations

import pytest

from penstock_lab.experiments.priority_perf import (
    Arrival,
    complex_event_seconds,
    misjudged,
    needed_for_event,
    not_there_once,
    raw_seconds,
    seconds_per_tuple,
    tuple_seconds,
)


def rows(batch: int, reading: float, *times: float, source: str = "a") -> list[Arrival]:
    return [Arrival(source, batch, number, reading, at) for number, at in enumerate(times)]


def said(batch: int, at: float, source: str = "a") -> list[Arrival]:
    """By a detector, at the tuple that made a batch an event."""
    return [Arrival(source, batch, 3, 90, at, event=True)]


@pytest.mark.parametrize(("tuples", "needed"), [(5, 4), (40, 32), (80, 64), (3, 3), (1, 1)])
def test_four_of_five_are_an_event(tuples: int, needed: int) -> None:
    assert needed_for_event(tuples) == needed


def test_an_event_counts_from_the_end_of_sending_and_of_all_its_producers() -> None:
    sent = [*rows(0, 10, 0, 0), *rows(1, 90, 10, 11), *rows(1, 90, 10, 12, source="b"), *rows(2, 90, 20, 20)]
    sent += rows(2, 90, 20, 20, source="b")
    got = [*said(1, 14), *said(1, 19, "b"), *said(2, 24)]
    # batch 0 is none; of batch 1 producer b's was said last, 19 - 12; of batch 2 nothing was said of producer b's
    assert raw_seconds(sent, got) == {1: 7.0}


def test_a_detector_is_judged_by_what_was_sent() -> None:
    sent = [*rows(0, 10, 0, 0), *rows(1, 90, 10, 11), *rows(2, 90, 20, 20)]
    assert misjudged(sent, [*said(1, 14), *said(2, 24)], 50) == 0
    # an event of batch 0, none of batch 1, two of batch 2
    assert misjudged(sent, [*said(0, 1), *said(2, 24), *said(2, 25)], 50) == 3


def test_what_is_lost_and_what_is_doubled_do_not_cancel_out() -> None:
    sent = rows(0, 10, 0, 0)
    assert not_there_once(sent, sent) == 0
    assert not_there_once(sent, [sent[0], sent[0]]) == 2


def test_a_complex_event_needs_all_topics_and_the_slower_one_decides() -> None:
    assert complex_event_seconds([{1: 4.0, 2: 3.0, 3: 1.0}, {1: 2.0, 2: 7.0}]) == [4.0, 7.0]


def test_seconds_of_a_tuple() -> None:
    sent = [*rows(0, 10, 0, 1), *rows(1, 10, 10, 11)]
    got = [*rows(0, 10, 3, 6), *rows(1, 10, 20)]
    # a whole batch took 6 s for two tuples; the other never was whole
    assert seconds_per_tuple(sent, got) == pytest.approx(3.0)
    assert seconds_per_tuple(sent, []) is None
    assert tuple_seconds(rows(0, 1, 0, 1, 2), rows(0, 1, 2, 3)) == pytest.approx(2.0)
