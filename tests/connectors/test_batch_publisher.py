"""What a fused run stages is sent once, whoever sends it and however often; nothing of it needs Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.embedded_log import EmbeddedLog
from penstock.connectors.log_contract import LogError
from penstock.connectors.topic_address import parse_log
from penstock.engines.fused.sinks import topic_writer
from penstock.engines.fused.sinks.topic_writer import BatchPublisher


def staged(folder: Path, *values: bytes) -> Path:
    path = folder / f"part-{len(list(folder.iterdir()))}.parquet"
    pq.write_table(pa.table({"key": pa.nulls(len(values), pa.binary()), "value": pa.array(values, pa.binary())}), path)
    return path


def sent(log: EmbeddedLog) -> list[bytes]:
    return [
        value
        for number, span in log.spans("out").items()
        for batch in log.read("out", number, span.first, span.end)
        for value in batch["value"].to_pylist()
    ]


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    made = EmbeddedLog(tmp_path / "log")
    made.create("out", 1)
    return made


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    return tmp_path / "parts"


def publisher(tmp_path: Path) -> BatchPublisher:
    return BatchPublisher(parse_log(f"log:{tmp_path / 'log'}"), "out", "run-sink")


def test_a_batch_that_is_sent_again_is_there_once(tmp_path: Path, log: EmbeddedLog, parts: Path) -> None:
    first = [staged(parts, b"1", b"2"), staged(parts, b"3")]
    mine, other = publisher(tmp_path), publisher(tmp_path)
    mine.publish(first, 0)
    mine.publish(first, 0)
    # whoever goes on with the run finds that it is done, though it staged something else
    other.publish([staged(parts, b"9")], 0)
    other.publish([staged(parts, b"4")], 1)
    # fenced off by then: it takes over again, and finds the batch done
    mine.publish([staged(parts, b"4")], 1)
    assert sent(log) == [b"1", b"2", b"3", b"4"]


def test_a_log_that_is_away_is_waited_for(
    tmp_path: Path, log: EmbeddedLog, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_writer, "RETRY_SECONDS", 0.01)
    transactional, failures = EmbeddedLog.transactional, [2]

    def away(self: EmbeddedLog, name: str, topic: str) -> object:
        if failures[0]:
            failures[0] -= 1
            raise LogError("away")
        return transactional(self, name, topic)

    monkeypatch.setattr(EmbeddedLog, "transactional", away)
    publisher(tmp_path).publish([staged(parts, b"1")], 0)
    assert sent(log) == [b"1"]
    failures[0] = 10**6
    monkeypatch.setattr(topic_writer, "PATIENCE_SECONDS", 0.05)
    with pytest.raises(LogError, match="away"):
        publisher(tmp_path).publish([staged(parts, b"2")], 1)
