"""What is staged for a topic is found again wherever it is staged, and is sent once though the log forgets it."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from log_contract import values_of
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.connectors.topic_address import parse_log
from penstock.engines.fused.sinks.topic_writer import TopicWriter
from penstock.spark.internals.checkpoint import OWNER, first_owner, owner_of


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    made = EmbeddedLog(tmp_path / "log")
    made.create("out", 1)
    return made


def writer(session: Any, tmp_path: Path, checkpoint: str) -> TopicWriter:
    address = parse_log(f"log:{tmp_path / 'log'}")
    return TopicWriter(session, "sink 'out'", address, {"topic": "out"}, "owner-out", checkpoint)


@pytest.mark.parametrize("place", ["{}/a b%20c", "viewfs://mounted/folder"])
def test_staged_rows_are_read_from_where_they_were_listed(
    session: Any, tmp_path: Path, log: EmbeddedLog, place: str
) -> None:
    # a file system that pyarrow does not know
    session.sparkContext._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.mounted.link./folder", f"file:{tmp_path}")
    rows = session.range(2).selectExpr("CAST(id AS string) AS value")
    writer(session, tmp_path, f"{place.format(tmp_path)}/checkpoint").write(rows, 0)
    assert sorted(values_of(log, "out")) == [b"0", b"1"]


def test_a_batch_that_was_sent_and_forgotten_is_not_sent_again(session: Any, tmp_path: Path, log: EmbeddedLog) -> None:
    rows = session.range(2).selectExpr("CAST(id AS string) AS value")
    checkpoint = str(tmp_path / "checkpoint")
    writer(session, tmp_path, checkpoint).write(rows, 0)
    rmtree(tmp_path / "log" / "producers")  # as Kafka forgets the offsets of a group
    writer(session, tmp_path, checkpoint).write(rows, 0)
    assert len(values_of(log, "out")) == 2


def test_the_name_of_a_checkpoint_is_gone_with_it(session: Any, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    first = owner_of(session, str(checkpoint), "run")
    assert owner_of(session, str(checkpoint), "another-run") == first
    rmtree(checkpoint)
    assert owner_of(session, str(checkpoint), "run") != first
    # of an earlier version, in which sinks knew the run's name
    (checkpoint / OWNER).unlink()
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "0").touch()
    assert owner_of(session, str(checkpoint), "run") == "run"
    assert owner_of(session, str(checkpoint), "another-run") == "run"


def test_a_checkpoint_without_batches_gets_a_name_of_its_own() -> None:
    assert (first_owner("run", -1, "5f0c"), first_owner("run", 0, "5f0c")) == ("run-5f0c", "run")
