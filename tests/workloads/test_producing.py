from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.clock import now
from penstock.base.errors import BadInputError
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.workloads.applications.messages import (
    MESSAGES,
    THRESHOLD,
    batch_reading,
    feed_line,
    gateway_line,
    is_event_batch,
    reading_line,
)
from penstock.workloads.producer import (
    Produced,
    producer_load,
    producer_spec,
    target_of,
)


def read(log: EmbeddedLog, topic: str) -> list[tuple[int, dict[str, object], int]]:
    rows = []
    for partition, span in log.spans(topic).items():
        for batch in log.read(topic, partition, span.first, span.end):
            for value, time_ms in zip(batch["value"].to_pylist(), batch["time_ms"].to_pylist(), strict=True):
                rows.append((partition, json.loads(value), time_ms))
    return rows


def test_messages_reach_the_topic_once_stamped_with_when_they_were_sent(tmp_path: Path) -> None:
    began = now()
    made = penstock.produce(
        {"to": f"log:{tmp_path}/t", "data": "tweets", "rate": 2000, "messages": 1000, "partitions": 2}
    )
    assert made.messages == made.due == 1000
    rows = read(EmbeddedLog(tmp_path), "t")
    assert sorted(int(str(row["id"])) for _, row, _ in rows) == list(range(1000))
    for _, row, time_ms in rows:
        sent = float(str(row.pop("sent")))
        assert began <= sent <= now()
        assert time_ms == int(sent * 1000)
        assert row == MESSAGES["tweets"](int(str(row["id"])))


def test_a_message_without_the_field_has_no_key_and_a_slip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"user": "u", "n": 1}\n{"n": 2}\n{"user": null, "n": 3}\n')
    given = {"to": f"log:{tmp_path}/log/t", "rows": str(tmp_path / "in.jsonl"), "rate": 1000, "messages": 3}
    penstock.produce({**given, "partitions": 1, "key": "user"})
    (batch,) = EmbeddedLog(tmp_path / "log").read("t", 0, 0, 3)
    assert batch["key"].to_pylist() == [b"u", None, None]
    with pytest.raises(BadInputError, match="key: messages have no field 'usr'; did you mean 'user'"):
        penstock.produce({**given, "key": "usr"})


def test_every_partition_has_its_own_producer(tmp_path: Path) -> None:
    given = {"to": f"log:{tmp_path}/t", "data": "batches", "rate": "batches:10,0.2,1000", "messages": 30}
    made = penstock.produce({**given, "partitions": 3, "each_partition": True, "batch_length": 10, "event_share": 1})
    assert made.messages == 90
    rows = read(EmbeddedLog(tmp_path), "t")
    for partition in range(3):
        mine = [row for where, row, _ in rows if where == partition]
        assert [row["id"] for row in mine] == list(range(30))
        assert {row["source"] for row in mine} == {f"s{partition}"}
        assert [row["last"] for row in mine] == [n % 10 == 9 for n in range(30)]


def test_files_appear_whole_and_rows_of_files_go_round(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n')
    out = tmp_path / "out"
    made = penstock.produce({"to": f"files:{out}", "rows": str(tmp_path / "*.jsonl"), "rate": 500, "messages": 5})
    assert made.messages == 5
    lines = [json.loads(line) for file in sorted(out.iterdir()) for line in file.read_text().splitlines()]
    assert [row["a"] for row in lines] == [1, 2, 1, 2, 1]


def test_two_producers_share_a_folder(tmp_path: Path) -> None:
    specs = [
        {"to": f"files:{tmp_path}", "data": "tweets", "rate": 100, "messages": 5, "first": first} for first in (0, 5)
    ]
    targets = [target_of(producer_spec(spec)) for spec in specs]  # both look at what is there before either writes
    for number, target in enumerate(targets):
        target.send([b'{"from": %d}' % number], None, None, 0)
    for target in targets:
        target.close()
    assert sorted(file.read_text() for file in tmp_path.iterdir()) == ['{"from": 0}\n', '{"from": 1}\n']


def test_rows_of_tables_become_messages(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,cents\nx,1\ny,\n")
    at = pa.array([1_700_000_000_000], pa.timestamp("ms", tz="UTC"))
    pq.write_table(pa.table({"name": ["z"], "raw": [b"\x00\xff"], "at": at}), tmp_path / "b.parquet")
    (tmp_path / "c.jsonl").write_text('{"name": "j"}\n')
    out = tmp_path / "out"
    penstock.produce({"to": f"files:{out}", "rows": str(tmp_path / "?.*"), "rate": 500, "messages": 4})
    rows = [json.loads(line) for file in sorted(out.iterdir()) for line in file.read_text().splitlines()]
    assert [{key: value for key, value in row.items() if key != "sent"} for row in rows] == [
        {"name": "x", "cents": 1},
        {"name": "y"},
        {"name": "z", "raw": "AP8=", "at": "2023-11-14T22:13:20.000Z"},
        {"name": "j"},
    ]


@pytest.mark.parametrize(("name", "text"), [("a.csv", ""), ("a.csv", "x,y\n1\n"), ("a.parquet", "no table")])
def test_tables_that_cannot_be_read_are_said(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInputError, match=f"{name}: cannot be read: "):
        penstock.produce({"to": f"files:{tmp_path}/out", "rows": str(tmp_path / name), "rate": 1, "messages": 1})


def test_a_rate_that_cannot_be_kept_is_said(tmp_path: Path) -> None:
    made = penstock.produce({"to": f"log:{tmp_path}/t", "data": "tweets", "rate": 5e6, "seconds": 0.3, "partitions": 1})
    assert not made.kept
    assert made.document()["kept"] is False
    assert made.due == 1_500_000 > made.messages
    assert made.asked_rate == 5e6


def test_a_number_of_messages_is_no_excuse_for_being_late(tmp_path: Path) -> None:
    # due within 10 ms; making and writing them takes seconds
    given = {"to": f"log:{tmp_path}/t", "data": "tweets", "rate": 5e6, "messages": 50_000, "partitions": 1}
    made = penstock.produce(given)
    assert made.messages == made.due == 50_000
    assert made.asked_rate == pytest.approx(5e6)
    assert made.late_seconds == pytest.approx(made.seconds - 0.01)
    assert not made.kept


@pytest.mark.parametrize(
    ("messages", "seconds", "late", "kept"),
    [
        (1000, 10.0, 0.0, True),
        (1000, 9.0, 0.0, True),  # whoever is stopped before the end was not late
        (1000, 10.9, 0.9, True),  # 5 % of 10 s, and 0.5 s
        (1000, 11.1, 1.1, False),
        (940, 10.0, 0.0, False),
    ],
)
def test_a_rate_is_kept_if_the_last_message_is_not_late(messages: int, seconds: float, late: float, kept: bool) -> None:
    made = Produced(messages, 1000, seconds, 10.0, 0.0)
    assert made.late_seconds == pytest.approx(late)
    assert made.kept is kept
    assert made.asked_rate == 100.0


def test_rates_over_time() -> None:
    low = producer_load("on-off:100,2,3,10")
    assert [low.due(2), low.due(5), low.due(7)] == [200, 230, 430]
    batches = producer_load("batches:80,60,1000")
    assert [batches.due(0.08), batches.due(60), batches.due(60.2)] == [80, 80, 160]
    sine = producer_load("sine:100,50,60")
    # over a whole period the mean; over the first half 100 * 30 + 50 * 60 / pi = 3955
    assert sine.due(60) == 6000
    assert sine.due(30) == pytest.approx(3955, abs=3)
    assert producer_load("steps:10x5,10x20").due(20) == 250
    for wrong in ("sine:10,20,60", "batches:0,1", "batches:80,1,0", "batches:80,1,nan", "on-off:1,2,3,4,5", "often"):
        with pytest.raises(BadInputError):
            producer_load(wrong)


def test_event_batches_are_events_by_their_own_number() -> None:
    events = [batch for batch in range(1000) if is_event_batch(batch, 0.5)]
    assert 400 < len(events) < 600
    for batch in range(20):
        rows = [batch_reading(batch * 80 + place, 3, 80, 0.5) for place in range(80)]
        above = sum(row["reading"] > THRESHOLD for row in rows)
        assert (above >= 0.8 * 80) == (batch in events)
        assert [row["last"] for row in rows].count(True) == 1


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"to": "log:x/t", "rate": 1}, "expected one of data"),
        ({"to": "log:x/t", "rate": 1, "data": "tweet"}, "did you mean 'tweets'"),
        ({"to": "nowhere", "rate": 1, "data": "tweets"}, "expected kafka:HOST:PORT/TOPIC"),
        ({"to": "log:x/t", "rate": 1, "data": "tweets", "sped": 3}, "unknown key 'sped'"),
        ({"to": "log:x/t", "rate": "steps:5x10,5x0", "data": "tweets"}, "give seconds or messages"),
        ({"to": "log:x/t", "rate": 1, "rows": "none/*.x"}, "no line in any file"),
        ({"to": "files:x", "rate": 1, "data": "tweets", "retention_seconds": 5}, "only topics forget"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(
    given: dict[str, object], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match=complaint):
        penstock.produce(given)


def test_a_topic_forgets_what_is_old_however_little_it_holds(tmp_path: Path) -> None:
    given = {"to": f"log:{tmp_path}/t", "data": "tweets", "rate": 100, "partitions": 1}
    made = penstock.produce({**given, "messages": 160, "retention_seconds": 0.4})
    span = EmbeddedLog(tmp_path).spans("t")[0]
    assert span.end == made.messages == 160
    assert span.first > 0
    assert span.messages >= 10  # those of the last 0.4 s are there
    # it goes for a topic that is there already, too
    del given["partitions"]
    penstock.produce({**given, "messages": 10, "retention_seconds": 1000})
    assert EmbeddedLog(tmp_path).spans("t")[0].end == 170


def test_a_topic_must_be_there(tmp_path: Path) -> None:
    EmbeddedLog(tmp_path).create("orders", 1)
    with pytest.raises(BadInputError, match="no topic 'order'; did you mean 'orders'"):
        penstock.produce({"to": f"log:{tmp_path}/order", "data": "tweets", "rate": 1})


def sent_lines(folder: Path, **spec: object) -> list[tuple[int, str]]:
    penstock.produce({"to": f"log:{folder}/t", "rate": 100_000, **spec})
    log = EmbeddedLog(folder)
    return [
        (partition, value.decode())
        for partition, span in log.spans("t").items()
        for batch in log.read("t", partition, span.first, span.end)
        for value in batch["value"].to_pylist()
    ]


def test_lines_are_sent_as_they_are(tmp_path: Path) -> None:
    lines = sent_lines(tmp_path / "one", data="gateway-lines", messages=40, partitions=1)
    assert [line for _, line in lines] == [gateway_line(number) for number in range(40)]
    feed = sent_lines(tmp_path / "feed", data="feed-lines", messages=10, partitions=1)
    assert [line for _, line in feed] == [feed_line(number) for number in range(10)]
    assert all(line.count(",") == 3 for _, line in (*lines, *feed))


def test_every_partition_is_a_gateway(tmp_path: Path) -> None:
    given = {"data": "gateway-lines", "messages": 20, "partitions": 3, "each_partition": True, "batch_length": 5}
    lines = sent_lines(tmp_path, **given)
    assert lines == [(gateway, reading_line(number, gateway, 5, 0.5)) for gateway in range(3) for number in range(20)]


def test_lines_have_no_key(tmp_path: Path) -> None:
    given = {"to": f"log:{tmp_path}/t", "data": "feed-lines", "rate": 1, "messages": 1, "partitions": 1}
    with pytest.raises(BadInputError, match="lines, whose fields have no names"):
        penstock.produce({**given, "key": "user"})
