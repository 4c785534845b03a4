"""What is made of producers' and sinks' messages, against values worked out by hand."""

from __future__ import annotations

import pytest

from penstock.experiments.priority.perf import (
    Arrival,
    complex_event_seconds,
    raw_seconds,
    seconds_per_tuple,
    tuple_seconds,
)


def rows(batch: int, reading: float, *times: float, source: str = "a") -> list[Arrival]:
    return [Arrival(source, batch, number, reading, at) for number, at in enumerate(times)]


def test_an_event_is_inferred_when_four_of_five_are_there() -> None:
    sent = [*rows(0, 10, *[0] * 5), *rows(1, 90, *[10] * 5), *rows(2, 90, *[20] * 5)]
    got = [*rows(0, 10, 1, 2, 3, 4, 5), *rows(1, 90, 11, 12, 13, 14, 15), *rows(2, 90, 21, 22, 23)]
    # batch 0 has no event; of batch 1 the fourth came at 14; of batch 2 only three came
    assert raw_seconds(sent, got, 50) == {1: 4.0}


def test_a_complex_event_needs_all_topics_and_the_slower_one_decides() -> None:
    assert complex_event_seconds([{1: 4.0, 2: 3.0, 3: 1.0}, {1: 2.0, 2: 7.0}]) == [4.0, 7.0]


def test_seconds_of_a_tuple() -> None:
    sent = [*rows(0, 10, 0, 1), *rows(1, 10, 10, 11)]
    got = [*rows(0, 10, 3, 6), *rows(1, 10, 20)]
    # a whole batch took 6 s for two tuples; the other never was whole
    assert seconds_per_tuple(sent, got) == pytest.approx(3.0)
    assert seconds_per_tuple(sent, []) is None
    assert tuple_seconds(rows(0, 1, 0, 1, 2), rows(0, 1, 2, 3)) == pytest.approx(2.0)
