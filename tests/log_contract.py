"""What every log of messages must do, whoever keeps it: a suite that each of them inherits."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError
from penstock.connectors.log_contract import NONE_YET, FencedError, GoneError, TopicLog, UnknownTopicError


def values_of(log: TopicLog, topic: str) -> list[bytes]:
    """Everything that can be read, partition by partition."""
    found = []
    for partition, span in log.spans(topic).items():
        for batch in log.read(topic, partition, span.first, span.end):
            found += batch.column("value").to_pylist()
    return found


def numbered(first: int, end: int) -> list[bytes]:
    return [str(number).encode() for number in range(first, end)]


def settled(log: TopicLog, topic: str, messages: int) -> Counter[bytes]:
    """What is there once `messages` are: Kafka tells a producer that it committed a moment before readers see it."""
    watch = Stopwatch()
    while (found := Counter(values_of(log, topic))).total() < messages and watch.seconds() < 10:
        pause(0.05)
    return found


class LogContract:
    """`make` opens the log under test; every call is another client of the same one."""

    @pytest.fixture
    def topic(self) -> str:
        return f"t-{uuid.uuid4().hex[:8]}"

    def test_what_was_sent_is_read_once_in_order(self, make: Callable[[], TopicLog], topic: str) -> None:
        log = make()
        log.create(topic, 1)
        producer = log.producer()
        sent_ms = int(time.time() * 1000) - 1000  # what is old a broker lets go of, in the midst of a test too
        producer.send(topic, numbered(0, 500), times_ms=list(range(sent_ms, sent_ms + 500)))
        producer.flush()
        producer.send(topic, numbered(500, 700), keys=[b"k"] * 200)
        producer.close()
        other = make()
        span = other.spans(topic)[0]
        assert (span.first, span.end, span.messages) == (0, 700, 700)
        batches = list(other.read(topic, 0, 0, 700))
        assert [v for batch in batches for v in batch.column("value").to_pylist()] == numbered(0, 700)
        assert [o for batch in batches for o in batch.column("offset").to_pylist()] == list(range(700))
        assert batches[0].column("time_ms")[0].as_py() == sent_ms
        assert batches[0].column("key")[0].as_py() is None
        assert batches[-1].column("key")[-1].as_py() == b"k"

    def test_a_range_is_read_and_no_more(self, make: Callable[[], TopicLog], topic: str) -> None:
        log = make()
        log.create(topic, 1)
        producer = log.producer()
        producer.send(topic, numbered(0, 100))
        producer.flush()
        producer.send(topic, numbered(100, 200))
        producer.close()
        got = [v for batch in log.read(topic, 0, 95, 105) for v in batch.column("value").to_pylist()]
        assert got == numbered(95, 105)
        assert list(log.read(topic, 0, 7, 7)) == []

    def test_equal_keys_share_a_partition_and_all_partitions_are_used(
        self, make: Callable[[], TopicLog], topic: str
    ) -> None:
        log = make()
        log.create(topic, 3)
        producer = log.producer()
        keys = [f"key-{number % 30}".encode() for number in range(300)]
        producer.send(topic, numbered(0, 300), keys=[*keys])
        producer.close()
        homes: dict[bytes, set[int]] = {}
        spans = log.spans(topic)
        for partition, span in spans.items():
            for batch in log.read(topic, partition, span.first, span.end):
                for key in batch.column("key").to_pylist():
                    homes.setdefault(key, set()).add(partition)
        assert len(homes) == 30
        assert all(len(found) == 1 for found in homes.values())
        assert all(span.messages > 0 for span in spans.values())

    def test_a_partition_can_be_chosen(self, make: Callable[[], TopicLog], topic: str) -> None:
        log = make()
        log.create(topic, 2)
        producer = log.producer()
        producer.send(topic, numbered(0, 10), partition=1)
        producer.close()
        assert {number: span.messages for number, span in log.spans(topic).items()} == {0: 0, 1: 10}

    def test_a_topic_that_is_there_may_be_told_how_long_to_keep_messages(
        self, make: Callable[[], TopicLog], topic: str
    ) -> None:
        log = make()
        log.create(topic, 2)
        log.create(topic, 2, retention_seconds=3600)
        log.create(topic, 3, retention_seconds=7200)
        assert make().topics()[topic] == 3

    def test_a_topic_grows_and_keeps_what_it_has(self, make: Callable[[], TopicLog], topic: str) -> None:
        log = make()
        log.create(topic, 1)
        producer = log.producer()
        producer.send(topic, numbered(0, 5))
        producer.close()
        log.create(topic, 3)
        log.create(topic, 2)
        assert make().topics()[topic] == 3
        assert values_of(log, topic) == numbered(0, 5)

    def test_a_transaction_is_seen_whole_or_not_at_all(self, make: Callable[[], TopicLog], topic: str) -> None:
        log = make()
        log.create(topic, 2)
        producer = log.transactional(f"{topic}-p", topic)
        assert producer.last == NONE_YET
        producer.send(topic, numbered(0, 50))
        assert values_of(make(), topic) == []
        producer.commit(3)
        assert settled(make(), topic, 50) == Counter(numbered(0, 50))
        producer.send(topic, numbered(50, 60))
        producer.abort()
        producer.send(topic, numbered(60, 70))
        producer.commit(4)
        producer.close()
        assert settled(make(), topic, 60) == Counter([*numbered(0, 50), *numbered(60, 70)])

    def test_the_number_of_the_last_transaction_outlives_its_producer(
        self, make: Callable[[], TopicLog], topic: str
    ) -> None:
        log = make()
        log.create(topic, 1)
        first = log.transactional(f"{topic}-p", topic)
        first.send(topic, numbered(0, 3))
        first.commit(7)
        first.commit(8)  # an epoch in which nothing was sent
        second = make().transactional(f"{topic}-p", topic)
        assert second.last == 8
        assert make().transactional(f"{topic}-other", topic).last == NONE_YET

    def test_a_producer_that_was_replaced_cannot_commit(self, make: Callable[[], TopicLog], topic: str) -> None:
        log = make()
        log.create(topic, 1)
        zombie = log.transactional(f"{topic}-p", topic)
        zombie.send(topic, numbered(0, 10))
        new = make().transactional(f"{topic}-p", topic)
        new.send(topic, numbered(10, 20))
        new.commit(1)
        with pytest.raises(FencedError):
            zombie.commit(1)
        assert settled(make(), topic, 10) == Counter(numbered(10, 20))

    def test_groups_are_told_how_far_they_read(self, make: Callable[[], TopicLog], topic: str) -> None:
        log = make()
        log.create(topic, 2)
        producer = log.producer()
        producer.send(topic, numbered(0, 10), partition=0)
        producer.close()
        assert log.group_offsets(f"{topic}-g", topic) == {}
        log.commit_group(f"{topic}-g", topic, {0: 4})
        log.commit_group(f"{topic}-g", topic, {1: 0, 0: 5})
        assert make().group_offsets(f"{topic}-g", topic) == {0: 5, 1: 0}

    def test_an_unknown_topic_is_named_with_those_there_are(self, make: Callable[[], TopicLog], topic: str) -> None:
        log = make()
        log.create(topic, 1)
        with pytest.raises(UnknownTopicError, match=f"no topic '{topic}x'; did you mean '{topic}'"):
            log.spans(f"{topic}x")
        with pytest.raises(BadInputError, match="expected letters"):
            log.create("../up", 1)

    def test_messages_that_retention_took_are_counted(
        self, make: Callable[[], TopicLog], topic: str, expire: Callable[[TopicLog, str], int]
    ) -> None:
        log = make()
        first = expire(log, topic)
        assert first > 0
        with pytest.raises(GoneError, match=f"{first:,} messages from offset 0 on are gone") as gone:
            list(log.read(topic, 0, 0, log.spans(topic)[0].end))
        assert gone.value.first == first
