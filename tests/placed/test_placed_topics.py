"""Placed runs from topics into topics, on the embedded log: nothing of it needs Spark or a broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
from test_engine import turn_until
from topic_chaos import TopicChaos, rounds, topic_pipeline, values

from penstock.base.clock import pause
from penstock.base.errors import BadInputError
from penstock.connectors.commit import Commit, of_sources, taken_in
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.connectors.log_contract import GoneError, LogError
from penstock.connectors.topic_address import LogAddress, parse_log
from penstock.connectors.topic_feed import LOOK_SECONDS, TopicFeed, TopicShare, look_interval
from penstock.dataflow.load import Load
from penstock.dataflow.pipeline import Pipeline
from penstock.engines.placed.application import from_topics
from penstock.engines.placed.endpoints import ToldCommits, topic_shares
from penstock.engines.placed.flow.states import FlowState
from penstock.engines.placed.monitoring import EpochObserver
from penstock.report.epochs import EpochObservation, summarise_epochs
from penstock.report.report import Audit, Report

GOING_ON = {"failOnDataLoss": "false"}


@pytest.mark.parametrize("fault", ["kill", "plan", "conductor"])
def test_nothing_is_lost_and_nothing_doubled(tmp_path: Path, fault: str) -> None:
    chaos, lost, doubled = rounds(tmp_path, parse_log(f"log:{tmp_path / 'log'}"), [fault] * 5, messages=1_000)
    assert (chaos.sent, lost, doubled) == (5_000, 0, 0)


def test_what_does_not_parse_goes_to_the_topic_of_dead_letters(tmp_path: Path) -> None:
    chaos = TopicChaos(tmp_path, parse_log(f"log:{tmp_path / 'log'}"), seed=1)
    try:
        producer = chaos.log.producer()
        producer.send("in", [b"1", b"no number", b"2"])
        producer.close()
        turn_until(chaos.run, lambda: chaos.run.run.state is FlowState.FLOWING)
        turn_until(chaos.run, lambda: len(values(chaos.log, "out")) == 2 and len(values(chaos.log, "letters")) == 1)
        (letter,) = values(chaos.log, "letters")
        assert b"invalid literal for int()" in letter
        assert b'"operator":"op"' in letter
    finally:
        chaos.close()


def test_a_consumer_group_hears_of_every_commit(tmp_path: Path) -> None:
    address = parse_log(f"log:{tmp_path / 'log'}")
    chaos = TopicChaos(tmp_path, address, seed=1)
    groups = ToldCommits(grouped(address, "readers"))
    chaos.run.setting = replace(chaos.run.setting, committed=groups.committed)
    try:
        chaos.send(300)
        turn_until(chaos.run, lambda: sum(chaos.log.group_offsets("readers", "in").values()) == 300)
    finally:
        chaos.close()
    assert groups.close() == ()


def grouped(address: LogAddress, group: str) -> Pipeline:
    pipeline = topic_pipeline(address, address)
    source = pipeline.operators["src"]
    source = source.model_copy(update={"options": {**source.options, "groupId": group}})
    operators = [source if operator.name == "src" else operator for operator in pipeline.operators.values()]
    return Pipeline.of(pipeline.name, operators, pipeline.streams)


def test_a_group_that_cannot_be_told_is_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EmbeddedLog(tmp_path)
    log.create("in", 1)

    def away(*_: object) -> None:
        raise LogError("no answer")

    monkeypatch.setattr(EmbeddedLog, "commit_group", away)
    groups = ToldCommits(grouped(parse_log(f"log:{tmp_path}"), "readers"))
    for at in (3, 5):
        groups.committed(
            Commit(run="r", conductor=1, generation=1, epoch=at, plan="p", offsets={"src/in/0": at, "other": 7})
        )
    assert groups.close() == (
        "source 'src': consumer group 'readers' could not always be told how far it has read; the first time: "
        "no answer",
    )


def test_what_waits_in_the_topics_is_the_backlog(tmp_path: Path) -> None:
    address = parse_log(f"log:{tmp_path / 'log'}")
    chaos = TopicChaos(tmp_path, address, seed=1)
    observer = EpochObserver(chaos.run, Load.constant(1.0), ("src",))
    try:
        chaos.send(300)

        def all_through() -> bool:
            observer.look()
            return len(values(chaos.log, "out")) == 300 and bool(observer.epochs) and not observer.backlog

        turn_until(chaos.run, all_through)
        assert set(observer.lag) == {"src/in/0", "src/in/1", "src/in/2"}
        assert sum(epoch.tuples for epoch in observer.epochs) == 300
        # they have no numbers: that none is lost is not known, and so it is not said
        assert observer.audited(topic_pipeline(address, address)) == Audit(300, None, None, 0, 0)
    finally:
        chaos.close()


def test_a_report_says_what_waits_where() -> None:
    report = Report(5.0, 3.0, 0.0, 1.0, {}, 12, {}, {}, Audit(0, None, None, 0, 0))
    made = from_topics(report, {"src/orders/0": 12, "src/orders/1": 0}, {"src/orders/1": 3000})
    assert made.notes == (
        "topic and partition orders/0: 12 messages wait",
        "topic and partition orders/1: 3,000 messages were gone unread",
    )
    assert made.lag == {"orders/0": 12, "orders/1": 0}
    assert made.offered_rate == 5.0
    assert from_topics(report, {}, {}) == report


def test_messages_that_retention_took_are_counted_with_their_epoch(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log", segment_bytes=1_000)
    log.create("in", 3, retention_seconds=3600)
    producer = log.producer()
    for _ in range(3):
        producer.send("in", [b"1"] * 200, partition=1, times_ms=[1000] * 200)
        producer.flush()
    producer.close()
    gone, there = log.spans("in")[1].first, log.spans("in")[1].end
    assert 0 < gone < there
    address = parse_log(f"log:{tmp_path / 'log'}")
    options = {**GOING_ON, "startingOffsets": '{"in": {"1": 0}}'}
    chaos = TopicChaos(tmp_path, address, seed=1, source_options=options)
    observer = EpochObserver(chaos.run, Load.constant(1.0), ("src",))
    try:

        def all_through() -> bool:
            observer.look()
            return len(values(chaos.log, "out")) == there - gone and bool(observer.gone)

        turn_until(chaos.run, all_through)
        assert observer.gone == {"src/in/1": gone}
    finally:
        chaos.close()


def test_a_partition_that_is_gone_is_said_in_the_report_and_leaves_the_commit(tmp_path: Path) -> None:
    """Another conductor goes on from the commit of the first; the topic was made anew in between, with fewer."""
    chaos = TopicChaos(tmp_path, parse_log(f"log:{tmp_path / 'log'}"), seed=1, source_options=GOING_ON)
    try:
        chaos.send(300)
        turn_until(chaos.run, lambda: sum(chaos.run.run.commit.offsets.values()) == 300)
        chaos.run.close()
        rmtree(tmp_path / "log" / "topics" / "in")
        chaos.log.create("in", 2)
        chaos.hire()
        notes: list[str] = []
        observer = EpochObserver(chaos.run, Load.constant(1.0), ("src",))
        chaos.run.setting = replace(chaos.run.setting, on_message=notes.append)
        turn_until(chaos.run, lambda: chaos.run.run.commit.offsets == {"src/in/0": 0, "src/in/1": 0})
        observer.look()
        assert set(observer.lag) == {"src/in/0", "src/in/1"}
    finally:
        chaos.close()
    assert {note for note in notes if note.startswith("topic and")} == {
        "topic and partition in/0: it went back (made anew, or messages lost), and was read anew",
        "topic and partition in/1: it went back (made anew, or messages lost), and was read anew",
        "topic and partition in/2: it is not there any more (made anew)",
    }


@pytest.mark.parametrize(
    ("backlogs", "offered", "verdict"),
    [
        ((0, 0, 0, 0, 0), 100.0, "stable"),
        # 300 taken in and 3 x 50 more waiting in 3 s: 150 came each second
        ((0, 50, 100, 150, 200), 150.0, "falls behind"),
        # 300 taken in and 3 x 40 fewer waiting
        ((900, 860, 820, 780, 740), 60.0, "stable"),
    ],
)
def test_what_came_to_the_topics_was_offered(backlogs: tuple[int, ...], offered: float, verdict: str) -> None:
    epochs = [
        EpochObservation(100.0 + number, 100, backlog, {}, {}, {0.01: 100}) for number, backlog in enumerate(backlogs)
    ]
    report = summarise_epochs(epochs, 100.0, 104.0, 1.0, None, Audit(0, None, None, 0, 0), backlogs[-1])
    assert (report.offered_rate, report.sustained_rate, report.verdict) == (offered, 100.0, verdict)


@pytest.mark.parametrize(
    ("offsets", "tuples"),
    [
        ({}, 0),
        ({"left": 7, "right": 9}, 9),
        # of topics they say where to go on, and not how many there were
        ({"left/t/0": 7, "left/t/1": 1, "right/t/0": 9}, 0),
        ({"left": 7, "right/t/0": 9}, 7),
    ],
)
def test_sources_of_the_load_emit_the_same_and_offsets_count_it(offsets: dict[str, int], tuples: int) -> None:
    assert taken_in(offsets) == tuples


def share(folder: Path, topics: tuple[str, ...] = ("t",), **more: object) -> TopicShare:
    return TopicShare("src", parse_log(f"log:{folder}"), topics, **more)  # type: ignore[arg-type] # as the test says


def filled(folder: Path, partitions: int, each: int, topic: str = "t") -> EmbeddedLog:
    log = EmbeddedLog(folder)
    log.create(topic, partitions)
    producer = log.producer()
    for partition in range(partitions):
        producer.send(topic, [f"{partition}-{number}".encode() for number in range(each)], partition=partition)
    producer.close()
    return log


def send(log: EmbeddedLog, value: bytes, partition: int, topic: str = "t") -> None:
    producer = log.producer()
    producer.send(topic, [value], partition=partition)
    producer.close()


def look_again() -> None:
    """Feeds look at a log now and then."""
    pause(LOOK_SECONDS + 0.02)


def read_all(feed: TopicFeed, most: int = 7) -> list[bytes]:
    found: list[bytes] = []
    while (messages := feed.next(most)) is not None:
        found += messages.rows["value"].to_pylist()
        feed.took(messages)
    return found


def test_partitions_are_dealt_and_taken_over_with_their_offsets(tmp_path: Path) -> None:
    filled(tmp_path, 5, 10)
    feeds = [TopicFeed(share(tmp_path, sharer=number, sharers=2), {}) for number in (0, 1)]
    first = [messages for feed in feeds if (messages := feed.next(4)) is not None]
    for feed, messages in zip(feeds, first, strict=True):
        feed.took(messages)
    offsets = {key: at for feed in feeds for key, at in feed.offsets.items()}
    assert sum(offsets.values()) == 8
    # another plan: one reads all, from where the two were
    alone = TopicFeed(share(tmp_path), of_sources(offsets, ["src"]))
    read = [*(v for messages in first for v in messages.rows["value"].to_pylist()), *read_all(alone)]
    assert sorted(read) == sorted(f"{p}-{n}".encode() for p in range(5) for n in range(10))


def test_a_partition_that_is_new_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = filled(tmp_path, 1, 3)
    feed = TopicFeed(share(tmp_path), {})
    assert len(read_all(feed)) == 3
    log.create("t", 2)
    send(log, b"new", partition=1)
    look_again()
    assert read_all(feed) == [b"new"]


def test_partitions_stay_with_whom_they_were_dealt_to_when_a_topic_grows(tmp_path: Path) -> None:
    filled(tmp_path, 1, 10, "t")
    log = filled(tmp_path, 3, 10, "u")
    feeds = [TopicFeed(share(tmp_path, ("t", "u"), sharer=number, sharers=2), {}) for number in (0, 1)]
    before = [value for feed in feeds for value in read_all(feed)]
    owners = [set(feed.offsets) for feed in feeds]
    log.create("t", 2)  # it stands before u
    send(log, b"new", partition=1)
    look_again()
    assert [value for feed in feeds for value in read_all(feed)] == [b"new"]
    assert len(before) == 40
    assert all(former <= set(feed.offsets) for former, feed in zip(owners, feeds, strict=True))


def test_of_latest_only_partitions_that_were_there_begin_at_their_end(tmp_path: Path) -> None:
    log = filled(tmp_path, 1, 3)
    shares = [share(tmp_path, starting="latest", sharer=number, sharers=2) for number in (0, 1)]
    feeds = [TopicFeed(part, {}) for part in shares]  # the second has no partition yet
    assert [read_all(feed) for feed in feeds] == [[], []]
    committed = {key: at for feed in feeds for key, at in feed.offsets.items()}
    assert committed == {"src/t/0": 3}
    log.create("t", 2)
    send(log, b"new", partition=1)
    look_again()
    assert [read_all(feed) for feed in feeds] == [[], [b"new"]]
    # another generation goes on from a commit of before the topic grew
    assert [read_all(TopicFeed(part, {"src": 0, **committed})) for part in shares] == [[], [b"new"]]


def made_anew(folder: Path, partitions: int, each: int) -> None:
    rmtree(folder / "topics" / "t")
    filled(folder, partitions, each)


@pytest.mark.parametrize(
    ("partitions", "each", "complaint"),
    [
        (2, 4, r"topic 't', partition \d ends at offset 4, and it was read up to 10: it was made anew"),
        (2, 0, r"partition \d ends at offset 0, and it was read up to 10"),
        (1, 10, "partition 1 is not there any more, and it was read up to 10"),
    ],
)
def test_a_topic_that_was_made_anew_stops_the_run_or_is_begun_anew(
    tmp_path: Path, partitions: int, each: int, complaint: str
) -> None:
    filled(tmp_path, 2, 10)
    before = TopicFeed(share(tmp_path), {})
    assert len(read_all(before)) == 20
    made_anew(tmp_path, partitions, each)
    with pytest.raises(GoneError, match=complaint):
        read_all(TopicFeed(share(tmp_path), before.offsets))
    going_on = TopicFeed(share(tmp_path, goes_on=True), before.offsets)
    kept = [f"{p}-{n}".encode() for p in range(partitions) for n in range(each)] if each < 10 else []
    went_back = 0
    while (messages := going_on.next(7)) is not None:
        kept = [value for value in kept if value not in messages.rows["value"].to_pylist()]
        went_back += messages.went_back
        going_on.took(messages)
    assert kept == []
    assert going_on.offsets == {f"src/t/{number}": each for number in range(partitions)}
    assert went_back == (2 if each < 10 else 0)


@pytest.mark.parametrize(("quiet", "interval"), [(0.0, 0.05), (0.4, 0.05), (2.0, 0.2), (5.0, 0.5), (3600.0, 0.5)])
def test_a_log_in_which_nothing_happens_is_looked_at_less_often(quiet: float, interval: float) -> None:
    assert look_interval(quiet) == pytest.approx(interval)


def test_a_topic_that_is_not_there_is_said_before_anything_runs(tmp_path: Path) -> None:
    EmbeddedLog(tmp_path).create("inn", 1)
    address = parse_log(f"log:{tmp_path}")
    with pytest.raises(BadInputError, match="no topic 'in'; did you mean 'inn'"):
        topic_shares(topic_pipeline(address, address))
