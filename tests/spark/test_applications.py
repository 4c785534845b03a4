"""Every application by its name, on Spark, against answers worked out another way over the same messages.

`./run test tests/spark/test_applications.py --long` goes through all of them in one session. The load generator sends
the numbers of messages, as `penstock run NAME --rate R` does; only where sinks leave their rows is other: in topics of
the embedded log, where they are read. What has windows, ranks or joins is also read from a topic, as by `penstock run
NAME --from TOPIC --to TOPIC --until-end`: that takes seconds, and `./run test-long` has it.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import application_answers as answers
import penstock
from penstock.base.clock import Stopwatch
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.connectors.topic_address import writing_to
from penstock.dataflow.logic import Per
from penstock.dataflow.pipeline import Kind
from penstock.inputs.finders import builtin_pipeline
from penstock.profiling import spark_operators as own_operators
from penstock.profiling.samples import take_samples
from penstock.profiling.subject import subject_of
from penstock.workloads.applications.messages import MESSAGES

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # pyspark's own


@dataclass(frozen=True)
class Answer:
    """`expected` gives all rows. By `key` only the last row counts: the one before was true before. With `over` rows
    come when their window is over: those that came must be the first ones, whole."""

    expected: answers.Expected
    key: str | None = None
    over: bool = False


SINKS: dict[str, dict[str, Answer]] = {
    "word-count": {"sink": Answer(answers.words, key="word")},
    "word-count-json": {"sink": Answer(answers.words, key="word")},
    "top-n": {"sink": Answer(answers.top_words, over=True)},
    "twitter-sentiment": {
        "archived": Answer(answers.values(1)),
        "averages": Answer(answers.averages, over=True),
        "trends": Answer(answers.trends, over=True),
    },
    "page-load": {"sink": Answer(answers.campaigns, key="campaign")},
    "processing": {"sink1": Answer(answers.worth), "sink2": Answer(answers.speeds)},
    "linear-network": {"sink": Answer(answers.once_a_path(1))},
    "diamond-network": {"sink": Answer(answers.once_a_path(3))},
    "star-network": dict.fromkeys(("sink1", "sink2"), Answer(answers.once_a_path(2))),
    "linear-cpu": {"sink": Answer(answers.once_a_path(1))},
    "diamond-cpu": {"sink": Answer(answers.once_a_path(3))},
    "star-cpu": dict.fromkeys(("sink1", "sink2"), Answer(answers.once_a_path(2))),
    "micro-linear": {"sink": Answer(answers.once_a_path(1))},
    "micro-diamond": {"sink": Answer(answers.once_a_path(4))},
    "micro-star": {"sink": Answer(answers.once_a_path(4))},
    "nexmark-q0": {"sink": Answer(answers.q0)},
    "nexmark-q1": {"sink": Answer(answers.q1)},
    "nexmark-q2": {"sink": Answer(answers.q2)},
    "nexmark-q3": {"sink": Answer(answers.q3)},
    "nexmark-q4": {"sink": Answer(answers.q4, over=True)},
    "nexmark-q5": {"sink": Answer(answers.q5, over=True)},
    "nexmark-q7": {"sink": Answer(answers.q7, over=True)},
    "nexmark-q8": {"sink": Answer(answers.q8)},
}
LEAVING = {"app-traffic": 3, "app-finance": 3, "app-grid": 4}
"""Of reference tasks, whose sinks get rows of several kinds: as many leave for one that enters as document 000 says. A
topic takes rows of one kind only; tests/workloads looks at what is in them."""
QUICK: tuple[str, ...] = ()
QUICK_FROM_TOPICS = ("word-count",)
"""An aggregation; windows are in a test of their own. The others differ in what they work out, and
tests/workloads looks at that as far as it is not Spark's."""
RATE = {"linear-cpu": 100, "diamond-cpu": 50, "star-cpu": 50, "app-traffic": 20, "app-finance": 20, "app-grid": 20}
USUAL_RATE = 800
"""Event time passes eight times as fast as the clock: some windows are over before long."""
FEWEST_ROWS, FEWEST_WINDOWS = 100, 2
PATIENCE_SECONDS = 180.0


LONG = pytest.mark.long("all applications take minutes")
NEEDS_OUR_READER = pytest.mark.skipif(
    find_spec("pyspark.sql.streaming.datasource") is None, reason="reading topics ourselves needs pyspark 4.2"
)
PARTITIONS = 4
FROM_TOPICS = {
    "word-count": "sentences",
    "nexmark-q8": "auctions",
    "twitter-sentiment": "tweets",
    "top-n": "sentences",
    **dict.fromkeys(("nexmark-q3", "nexmark-q4", "nexmark-q5", "nexmark-q7"), "auctions"),
}
"""By name, what `produce` makes for it: all that has windows, ranks or joins. They do not wait for time to pass."""


def marked(names: Iterable[str], quick: Container[str] = QUICK) -> list[Any]:
    return [pytest.param(name, marks=() if name in quick else LONG) for name in names]


def rows_of(log: EmbeddedLog, topic: str) -> list[dict[str, Any]]:
    made = []
    for partition, span in log.spans(topic).items():
        for batch in log.read(topic, partition, span.first, span.end):
            made += [parsed(value) for value in batch["value"].to_pylist()]
    return made


def parsed(message: bytes) -> dict[str, Any]:
    """Lists and events are JSON in a field of JSON."""
    row = json.loads(message)
    if not isinstance(row, dict):
        return {"value": row}
    if "event" in row:
        return dict(json.loads(row["event"]))
    return {name: json.loads(text) if name in {"first", "auctions"} else text for name, text in row.items()}


def check(answer: Answer, rows: list[dict[str, Any]], n: int) -> None:
    expected = answer.expected(n)
    if answer.key is not None:
        rows = list({row[answer.key]: row for row in rows}.values())
    if answer.over:
        last = max(row["window_end"] for row in rows)
        expected = [row for row in expected if row["window_end"] <= last]
    assert rows
    assert answers.frozen(rows) == answers.frozen(expected)


def is_enough(answer: Answer, rows: list[dict[str, Any]]) -> bool:
    if answer.over:
        return len({row["window_end"] for row in rows}) >= FEWEST_WINDOWS
    return len(rows) >= FEWEST_ROWS


def topics_of(log: EmbeddedLog, sinks: Iterable[str]) -> dict[str, str]:
    """A topic for every sink, which is there now."""
    names = list(sinks)
    topics = {sink: "rows" if len(names) == 1 else f"rows-{sink}" for sink in names}
    for topic in topics.values():
        log.create(topic, 1)
    return topics


@pytest.mark.parametrize("name", marked(SINKS))
def test_the_answer_is_the_one_worked_out_another_way(name: str, session: Any, tmp_path: Path, own_runs: Path) -> None:
    pipeline = builtin_pipeline(name)
    sinks = SINKS[name]
    assert set(sinks) == {operator.name for operator in pipeline.operators.values() if operator.kind is Kind.SINK}
    log = EmbeddedLog(tmp_path / "log")
    topics = topics_of(log, sinks)
    written = writing_to(pipeline, f"log:{tmp_path / 'log'}/rows")
    run = penstock.start(written, RATE.get(name, USUAL_RATE), session=session, warm_up=0, folder=tmp_path / "run")
    watch = Stopwatch()
    while not all(is_enough(answer, rows_of(log, topics[sink])) for sink, answer in sinks.items()):
        assert not run.await_termination(0.5)
        assert watch.seconds() < PATIENCE_SECONDS, f"'{name}' sent nothing that can be judged"
    audit = run.stop().report.audit
    # what was lost or doubled is not known of Spark's own operators
    assert (audit.dead, audit.lost or 0, audit.duplicated or 0) == (0, 0, 0)
    for sink, answer in sinks.items():
        check(answer, rows_of(log, topics[sink]), audit.emitted)


def between_topics(name: str, address: str) -> Any:
    return penstock.writing_to(penstock.reading_from(name, f"{address}/messages"), f"{address}/rows")


@NEEDS_OUR_READER
@pytest.mark.parametrize("name", marked(FROM_TOPICS, QUICK_FROM_TOPICS))
def test_the_answer_from_a_topic_is_the_same(name: str, session: Any, tmp_path: Path, own_runs: Path) -> None:
    address, messages = f"log:{tmp_path / 'log'}", 3_000
    sent = {"to": f"{address}/messages", "data": FROM_TOPICS[name], "partitions": PARTITIONS}
    assert penstock.produce({**sent, "rate": 100_000, "messages": messages}).messages == messages
    result = penstock.run(between_topics(name, address), session=session, until_end=True, folder=tmp_path / "run")
    assert result.report.audit.dead == 0
    log = EmbeddedLog(tmp_path / "log")
    for sink, topic in topics_of(log, SINKS[name]).items():
        check(SINKS[name][sink], rows_of(log, topic), messages)


@NEEDS_OUR_READER
@LONG
@pytest.mark.parametrize(("name", "data"), [("nexmark-q5", "auctions"), ("twitter-sentiment", "tweets")])
def test_windows_wait_for_a_partition_that_is_behind_the_others(
    name: str, data: str, session: Any, tmp_path: Path, own_runs: Path
) -> None:
    """The first of two runs gets nothing of one partition's last messages in a window that is over by what the others
    hold."""
    log, address = EmbeddedLog(tmp_path / "log"), f"log:{tmp_path / 'log'}"
    log.create("messages", PARTITIONS)
    pipeline = between_topics(name, address)
    # message 1,100 is one second behind the first window's end
    early = [number for number in range(1_100) if number % PARTITIONS or number < 950]
    late = sorted({*range(3_100)} - {*early})
    for numbers in (early, late):
        producer = log.producer()
        for number in numbers:
            producer.send("messages", [json.dumps(MESSAGES[data](number)).encode()], partition=number % PARTITIONS)
        producer.close()
        result = penstock.run(pipeline, session=session, until_end=True, folder=tmp_path / "run")
        assert result.report.audit.dead == 0
    sinks = SINKS[name]
    for sink, topic in topics_of(log, sinks).items():
        rows = rows_of(log, topic)
        assert is_enough(sinks[sink], rows)
        check(sinks[sink], rows, len(early) + len(late))


@pytest.mark.parametrize("name", marked(LEAVING))
def test_as_many_leave_as_published(name: str, session: Any, own_runs: Path) -> None:
    result = penstock.run(name, RATE[name], session=session, seconds=10, warm_up=0)
    audit, operators = result.report.audit, result.report.operators
    assert (audit.lost, audit.duplicated, audit.dead) == (0, 0, 0)
    assert audit.emitted > 0
    senders = [stream.sender for stream in builtin_pipeline(name).inputs("sink")]
    # of the first batch, which begins the report, what the operators did is not told
    left, entered = sum(operators[sender].sent for sender in senders), operators["X1"].received
    assert left == LEAVING[name] * entered > 0


@pytest.mark.parametrize("name", marked(SINKS))
def test_what_is_sparks_own_can_be_measured(name: str, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its samples come, and a trial of them goes: small, for what it says of time does not matter here."""
    monkeypatch.setattr(own_operators, "MOST_ROWS", 200)
    monkeypatch.setattr(own_operators, "COUNTED_BATCHES", 1)
    subject = subject_of(name, None)
    wanted = {
        *subject.logic,
        *(name for name, each in subject.pipeline.operators.items() if each.aggregate is not None),
    }
    taken = take_samples(session, subject.pipeline, subject.logic, wanted, {})
    assert taken.code
    own = {each for each in wanted if each not in subject.logic or subject.logic[each].per is Per.DATAFRAME}
    assert set(taken.sparks_own) == own
    for operator, of_operator in taken.sparks_own.items():
        own_operators.measure_sparks_own(session, operator, of_operator.apply, of_operator.inputs, of_operator.mode)
