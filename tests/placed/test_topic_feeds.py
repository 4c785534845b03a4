"""What a feed makes of logs that have holes, move on while they are read, or lose partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_placed_topics import filled, look_again, made_anew, read_all, share

from penstock.connectors import topic_feed as feeds
from penstock.connectors.log_contract import MESSAGES, GoneError, Span
from penstock.connectors.topic_address import LogAddress
from penstock.connectors.topic_feed import MOST_REACH, TopicFeed, TopicShare, next_reach


class SparseLog:
    """One partition: `values` by offset, and none at the others."""

    def __init__(self, values: dict[int, bytes], end: int) -> None:
        self.values, self.first, self.end = values, 0, end
        self.reads = 0

    def spans(self, _topic: str) -> dict[int, Span]:
        return {0: Span(self.first, self.end)}

    def read(self, topic: str, partition: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        if first < self.first:
            raise GoneError(topic, partition, first, self.first)
        rows = [(offset, value) for offset, value in self.values.items() if first <= offset < end]
        for start in range(0, len(rows), 4):
            part = rows[start : start + 4]
            columns = [[None] * len(part), [row[1] for row in part], [row[0] for row in part], [0] * len(part)]
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, MESSAGES, strict=True)], schema=MESSAGES
            )


class DenseLog(SparseLog):
    """Several partitions without holes: how many messages each has."""

    def __init__(self, counts: dict[int, int]) -> None:
        super().__init__({}, 0)
        self.counts = counts

    def spans(self, _topic: str) -> dict[int, Span]:
        return {number: Span(0, count) for number, count in self.counts.items()}

    def read(self, topic: str, partition: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        self.values = {offset: f"{partition}-{offset}".encode() for offset in range(self.counts[partition])}
        yield from super().read(topic, partition, first, end)


@dataclass(frozen=True)
class OpenedAddress(LogAddress):
    log: Any = None

    def open(self) -> Any:
        return self.log


def feed_of(log: SparseLog, **more: Any) -> TopicFeed:
    return TopicFeed(TopicShare("src", OpenedAddress("log", {}, log), ("t",), **more), {})


def test_holes_are_passed_in_few_reads_and_what_is_behind_them_is_not_taken_at_once() -> None:
    """An aborted transaction of a million messages between a few and a hundred others."""
    numbers = [*range(10), *range(1_000_000, 1_000_100)]
    log = SparseLog({number: str(number).encode() for number in numbers}, 1_000_100)
    feed = feed_of(log)
    taken: list[int] = []
    while (messages := feed.next(16)) is not None:
        assert messages.rows.num_rows <= 16
        taken += messages.rows["offset"].to_pylist()
        feed.took(messages)
    assert taken == numbers
    assert log.reads < 40
    assert feed.lag == {"src/t/0": 0}


@pytest.mark.parametrize(
    ("reach", "rows", "after"),
    [(1, 16, 1), (1, 8, 1), (1, 7, 2), (8, 0, 16), (8, 16, 4), (8, 10, 8), (MOST_REACH, 0, MOST_REACH)],
)
def test_how_far_to_look_for_sixteen_messages(reach: int, rows: int, after: int) -> None:
    assert next_reach(reach, rows, 16) == after


def test_a_read_takes_no_more_bytes_than_it_may_but_for_a_single_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 1,000 bytes: 3 x 300, and then 300 alone, because 5,000 follow."""
    monkeypatch.setattr(feeds, "MOST_BYTES", 1_000)
    sizes = [300, 300, 300, 300, 5_000, 300]
    feed = feed_of(SparseLog({offset: b"x" * size for offset, size in enumerate(sizes)}, len(sizes)))
    taken = []
    while (messages := feed.next(100)) is not None:
        taken.append((messages.rows.num_rows, messages.end))
        feed.took(messages)
    assert taken == [(3, 3), (1, 4), (1, 5), (1, 6)]


def test_retention_between_a_look_and_a_read_is_counted_or_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "look_interval", lambda _quiet: 3600.0)
    for goes_on in (True, False):
        log = SparseLog(dict.fromkeys(range(100), b"x"), 100)
        feed = feed_of(log, goes_on=goes_on)
        messages = feed.next(10)
        assert messages is not None
        feed.took(messages)
        log.first = 50
        if not goes_on:
            with pytest.raises(GoneError, match="40 messages from offset 10 on are gone"):
                feed.next(10)
            continue
        assert feed.next(10) is None  # it looks again
        messages = feed.next(10)
        assert messages is not None
        assert (messages.gone, messages.rows["offset"][0].as_py(), messages.end) == (40, 50, 60)


def test_what_is_said_of_a_partition_that_vanished_and_came_back() -> None:
    log = DenseLog({0: 10, 1: 10})
    feed = feed_of(log, goes_on=True)
    assert len(read_all(feed)) == 20
    assert (feed.vanished, feed.take_notes()) == (frozenset(), [])
    log.counts = {0: 10}
    look_again()
    assert read_all(feed) == []
    assert (feed.offsets, feed.lag) == ({"src/t/0": 10}, {"src/t/0": 0})
    assert feed.vanished == {"src/t/1"}
    assert feed.take_notes() == ["topic and partition t/1: it is not there any more (made anew)"]
    assert feed.take_notes() == []
    # it has more messages now than were read of the one before
    log.counts = {0: 10, 1: 20}
    look_again()
    assert read_all(feed) == [f"1-{number}".encode() for number in range(20)]
    assert (feed.vanished, feed.take_notes()) == (frozenset(), [])


def test_a_partition_that_vanished_before_anything_was_read_of_it_leaves_the_commit_too(tmp_path: Path) -> None:
    filled(tmp_path, 2, 10)
    feed = TopicFeed(share(tmp_path, goes_on=True, starting="latest"), {})
    assert read_all(feed) == []
    assert feed.offsets == {"src/t/0": 10, "src/t/1": 10}
    made_anew(tmp_path, 1, 10)
    look_again()
    assert read_all(feed) == []
    assert feed.offsets == {"src/t/0": 10}
    assert feed.vanished == {"src/t/1"}


def test_a_partition_that_went_back_is_noted_when_it_is_taken(tmp_path: Path) -> None:
    filled(tmp_path, 1, 4)
    feed = TopicFeed(share(tmp_path, goes_on=True), {"src/t/0": 10})
    messages = feed.next(7)
    assert messages is not None
    assert feed.take_notes() == []
    feed.took(messages)
    note = "topic and partition t/0: it went back (made anew, or messages lost), and was read anew"
    assert feed.take_notes() == [note]


def test_a_feed_has_begun_when_a_commit_or_a_look_says_where(tmp_path: Path) -> None:
    filled(tmp_path, 1, 3)
    feed = TopicFeed(share(tmp_path), {"src": 0})
    assert not feed.begun
    feed.next(1)
    assert feed.begun
    assert TopicFeed(share(tmp_path), {"src/t/0": 2}).begun
