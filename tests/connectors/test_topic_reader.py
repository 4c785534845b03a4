"""The fused source of topics, asked as Spark asks it; no Spark runs."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from log_contract import numbered
from penstock.connectors.log.contract import GoneError
from penstock.connectors.log.embedded import EmbeddedLog
from penstock.connectors.log.offsets import Piece

pytest.importorskip("pyspark.sql.streaming.datasource")

from penstock.spark.fused.lost_messages import lost_messages
from penstock.spark.fused.topic_source import TopicReader

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
