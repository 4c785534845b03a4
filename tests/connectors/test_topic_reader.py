"""The fused source of topics, asked as Spark asks it; no Spark runs."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from log_contract import numbered
from penstock.base.errors import BadInputError
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.connectors.log_contract import GoneError, LogError
from penstock.connectors.offsets import Piece

pytest.importorskip("pyspark.sql.streaming.datasource")

from penstock.engines.fused.sources import topic_source
from penstock.engines.fused.sources.topic_notices import is_source_away, lost_messages
from penstock.engines.fused.sources.topic_source import TopicReader

START, PLANNED = {"t": {"0": 0}}, {"t": {"0": 10}}


def filled(folder: Path, messages: int) -> None:
    log = EmbeddedLog(folder / "log")
    log.create("t", 1)
    producer = log.producer()
    producer.send("t", numbered(0, messages))
    producer.close()


@pytest.fixture
def made_anew(tmp_path: Path) -> Path:
    """A topic of which ten messages were read, and which has four now."""
    filled(tmp_path, 10)
    rmtree(tmp_path / "log" / "topics" / "t")
    filled(tmp_path, 4)
    return tmp_path


def reader(folder: Path, **more: str) -> TopicReader:
    given = {"penstock.format": "log", "path": str(folder / "log"), "subscribe": "t", **more}
    return TopicReader({"given": json.dumps(given), "who": "source 's'", "slots": "1", "folder": str(folder)})


def pieces(partitions: Any) -> list[Piece]:
    return [piece for partition in partitions for piece in partition.pieces]


def test_a_topic_that_was_made_anew_stops_the_query(made_anew: Path) -> None:
    stops = reader(made_anew)
    for ask in (lambda: stops.latestOffset(PLANNED), lambda: stops.partitions(START, PLANNED)):
        with pytest.raises(GoneError, match="topic 't', partition 0 ends at offset 4, and it was read up to 10"):
            ask()


def test_a_topic_that_was_made_anew_is_read_from_its_first_message_where_going_on_was_chosen(made_anew: Path) -> None:
    goes_on = reader(made_anew, failOnDataLoss="false")
    end = goes_on.latestOffset(PLANNED)
    assert end == {"t": {"0": 4}}
    assert pieces(goes_on.partitions(PLANNED, end)) == [Piece("t", 0, 0, 4)]
    # a batch that was planned before, and is run again, has nothing left: what is there belongs to the next
    assert pieces(goes_on.partitions(START, PLANNED)) == []
    (note,) = lost_messages(made_anew).notes
    assert "topic and partition t/0: it went back" in note


def test_a_batch_is_no_larger_than_the_source_says(tmp_path: Path) -> None:
    filled(tmp_path, 10)
    (tmp_path / topic_source.MOST_ROWS).write_text("7")
    assert reader(tmp_path).latestOffset(START) == {"t": {"0": 7}}
    assert reader(tmp_path, maxOffsetsPerTrigger="3").latestOffset(START) == {"t": {"0": 3}}
    with pytest.raises(BadInputError, match="maxOffsetsPerTrigger: expected a number of at least 1, found 'few'"):
        reader(tmp_path, maxOffsetsPerTrigger="few")


def test_a_log_that_is_away_is_seen_in_the_folder_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, 10)

    def away(*_: object) -> None:
        raise LogError("away")

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedLog, "spans", away)
        assert reader(tmp_path).latestOffset(START) == START
        assert is_source_away(tmp_path)
    # whoever goes on takes away what another process left
    assert reader(tmp_path).latestOffset(START) == PLANNED
    assert not is_source_away(tmp_path)


def test_what_a_task_finds_gone_is_in_the_folder_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, 10)
    read = EmbeddedLog.read

    def forgetting(self: EmbeddedLog, topic: str, partition: int, first: int, end: int) -> Any:
        if first < 4:
            raise GoneError(topic, partition, first, 4)
        return read(self, topic, partition, first, end)

    goes_on = reader(tmp_path, failOnDataLoss="false")
    (planned,) = goes_on.partitions(START, PLANNED)
    monkeypatch.setattr(EmbeddedLog, "read", forgetting)
    monkeypatch.setattr(topic_source, "ignore_interrupts", lambda: None)
    assert sum(batch.num_rows for batch in goes_on.read(planned)) == 6
    assert lost_messages(tmp_path).counts == {"t/0": 4}
