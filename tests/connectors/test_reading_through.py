"""A log that goes away in the middle of a batch: nothing is lost, nothing comes twice, and it is not waited for for
ever. Nothing of it needs Spark to run."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.connectors.embedded_log import EmbeddedLog
from penstock.connectors.log_contract import GoneError, LogError, Span, WentBackError
from penstock.connectors.offsets import Piece

if find_spec("pyspark.sql.streaming.datasource") is None:
    pytest.skip("reading topics ourselves needs pyspark 4.2", allow_module_level=True)

from penstock.engines.fused.sources import topic_source


class BrittleLog(EmbeddedLog):
    """Gives a batch of three messages, and fails; `fails`: as often as that."""

    fails = 0

    def read(self, topic: str, partition: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        for batch in super().read(topic, partition, first, end):
            if not self.fails:
                yield batch
                continue
            yield batch.slice(0, 3)
            self.fails -= 1
            raise LogError("away")


@pytest.fixture
def log(tmp_path: Path) -> BrittleLog:
    log = BrittleLog(tmp_path)
    log.create("t", 1)
    producer = log.producer()
    producer.send("t", [str(number).encode() for number in range(20)], partition=0)
    producer.close()
    return log


def test_a_read_goes_on_behind_the_last_message_that_came(log: BrittleLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_source, "RETRY_SECONDS", 0.0)
    log.fails = 3
    batches = topic_source.read_through(log, Piece("t", 0, 4, 18))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(4, 18))


def test_a_log_that_stays_away_is_given_up(log: BrittleLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_source, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(topic_source, "PATIENCE_SECONDS", -1.0)
    log.fails = 1
    with pytest.raises(LogError, match="away"):
        list(topic_source.read_through(log, Piece("t", 0, 0, 20)))


class ForgettingLog(BrittleLog):
    """Retention takes what is before offset 9 when three messages were read."""

    error: GoneError = GoneError("t", 0, 7, 9)

    def read(self, topic: str, partition: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        for batch in EmbeddedLog.read(self, topic, partition, first, end):
            if first >= 9:
                yield batch
                continue
            yield batch.slice(0, 3)
            raise self.error


@pytest.fixture
def forgetting(log: BrittleLog, tmp_path: Path) -> ForgettingLog:
    return ForgettingLog(tmp_path)


@pytest.mark.parametrize(("end", "read", "gone"), [(12, [4, 5, 6, 9, 10, 11], 2), (8, [4, 5, 6], 1)])
def test_what_retention_took_since_the_batch_was_planned_is_left_out_and_counted(
    forgetting: ForgettingLog, end: int, read: list[int], gone: int
) -> None:
    missed: list[tuple[int, int]] = []
    piece = Piece("t", 0, 4, end)
    batches = topic_source.read_through(forgetting, piece, lambda _piece, first, count: missed.append((first, count)))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == read
    assert missed == [(7, gone)]


def test_what_retention_took_ends_the_run_where_going_on_was_not_chosen(forgetting: ForgettingLog) -> None:
    with pytest.raises(GoneError, match="2 messages from offset 7 on are gone"):
        list(topic_source.read_through(forgetting, Piece("t", 0, 4, 12)))


def test_of_a_log_that_went_back_nothing_more_is_read(forgetting: ForgettingLog) -> None:
    forgetting.error = WentBackError("t", 0, 7, Span(0, 2))
    batches = topic_source.read_through(forgetting, Piece("t", 0, 4, 12), lambda *_: None)
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == [4, 5, 6]
