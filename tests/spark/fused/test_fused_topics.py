"""Fused runs from topics into topics, on the embedded log: no broker is needed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

import penstock
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.connectors.topic_address import parse_log
from penstock.engines.fused.sinks.topic_writer import TopicWriter
from topic_runs import double, doubling, fill, lost_and_doubled

pytestmark = pytest.mark.skipif(
    find_spec("pyspark.sql.streaming.datasource") is None, reason="reading topics ourselves needs pyspark 4.2"
)


def test_every_message_is_there_once_and_the_next_run_goes_on_behind_it(
    session: Any, tmp_path: Path, own_runs: Path
) -> None:
    address = parse_log(f"log:{tmp_path / 'log'}")
    log = EmbeddedLog(tmp_path / "log")
    fill(log, 0, 5_000)
    pipeline = doubling(address, groupId="readers")
    report = penstock.run(pipeline, session=session, until_end=True, folder=tmp_path / "run")
    assert lost_and_doubled(log, 5_000) == (0, 0)
    assert report.report.operators["double"].received == 5_000
    assert sum(log.group_offsets("readers", "in").values()) == 5_000
    fill(log, 5_000, 6_000)
    penstock.run(pipeline, session=session, until_end=True, folder=tmp_path / "run")
    assert lost_and_doubled(log, 6_000) == (0, 0)
    assert not list((tmp_path / "run").glob("checkpoint-topics/*/*/*.parquet"))


def test_a_batch_that_dies_after_some_parts_were_sent_is_sent_once(
    session: Any, tmp_path: Path, own_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies when its parts are in the topic and the checkpoint does not know it yet. Whoever goes on with the
    checkpoint does so in another folder, as a run of another name."""
    address = parse_log(f"log:{tmp_path / 'log'}")
    log = EmbeddedLog(tmp_path / "log")
    fill(log, 0, 2_000)
    write = TopicWriter.write
    given: dict[str, Any] = {"session": session, "until_end": True, "checkpoint": str(tmp_path / "checkpoint")}

    def dying(self: TopicWriter, frame: Any, batch: int) -> None:
        write(self, frame, batch)
        raise penstock.BadInputError("died here")

    with monkeypatch.context() as patched:
        patched.setattr(TopicWriter, "write", dying)
        with pytest.raises(penstock.PenstockError):
            penstock.run(doubling(address), folder=tmp_path / "run", **given)
    penstock.run(doubling(address), folder=tmp_path / "other", **given)
    assert lost_and_doubled(log, 2_000) == (0, 0)


def test_a_run_whose_checkpoint_was_removed_sends_everything_anew(session: Any, tmp_path: Path, own_runs: Path) -> None:
    """And the name of its folder may have blanks and percent signs."""
    address = parse_log(f"log:{tmp_path / 'log'}")
    log = EmbeddedLog(tmp_path / "log")
    fill(log, 0, 200)
    folder = tmp_path / "a run%20 of mine"
    for _ in range(2):
        penstock.run(doubling(address), session=session, until_end=True, folder=folder)
        rmtree(folder / "checkpoint")
    assert lost_and_doubled(log, 200) == (0, 200)


def test_messages_that_do_not_parse_go_to_a_topic(session: Any, tmp_path: Path, own_runs: Path) -> None:
    address = parse_log(f"log:{tmp_path / 'log'}")
    log = EmbeddedLog(tmp_path / "log")
    fill(log, 0, 10)
    log.create("letters", 1)
    producer = log.producer()
    producer.send("in", [b"no number"])
    producer.close()
    penstock.run(
        doubling(address), session=session, until_end=True, folder=tmp_path / "run", dead_letters=f"{address}/letters"
    )
    assert lost_and_doubled(log, 10) == (0, 0)
    (batch,) = log.read("letters", 0, 0, 10)
    assert b"invalid literal for int()" in batch["value"][0].as_py()


def test_retention_that_ran_past_the_offsets_stops_or_is_counted(session: Any, tmp_path: Path, own_runs: Path) -> None:
    address = parse_log(f"log:{tmp_path / 'log'}")
    log = EmbeddedLog(tmp_path / "log", segment_bytes=1_000)
    fill(log, 0, 0, partitions=1)
    offsets = '{"in": {"0": 0}}'
    log.create("in", 1, retention_seconds=3600)
    for _ in range(3):
        producer = log.producer()
        producer.send("in", [b"1"] * 200, times_ms=[1000] * 200)
        producer.close()
    gone = log.spans("in")[0].first
    assert gone > 0
    with pytest.raises(penstock.PenstockError, match=f"{gone:,} messages from offset 0 on are gone"):
        penstock.run(
            doubling(address, startingOffsets=offsets), session=session, until_end=True, folder=tmp_path / "stops"
        )
    report = penstock.run(
        doubling(address, startingOffsets=offsets, failOnDataLoss="false"),
        session=session,
        until_end=True,
        folder=tmp_path / "goes-on",
    )
    assert any(f"in/0: {gone:,} messages were gone unread" in note for note in report.report.notes)


def test_what_is_wrong_is_one_line(session: Any, tmp_path: Path, own_runs: Path) -> None:
    address = parse_log(f"log:{tmp_path / 'log'}")
    EmbeddedLog(tmp_path / "log").create("inn", 1)
    with pytest.raises(penstock.BadInputError, match="no topic 'in'; did you mean 'inn'"):
        penstock.run(doubling(address), session=session, until_end=True, folder=tmp_path / "run")
    built = penstock.pipeline("p").source("in", format="log", options={"path": str(tmp_path / "log")})
    built.then("double", logic=double, schema="value binary").sink("end")
    with pytest.raises(penstock.PenstockError, match="expected the option subscribe"):
        penstock.run(built, session=session, until_end=True, folder=tmp_path / "other")
