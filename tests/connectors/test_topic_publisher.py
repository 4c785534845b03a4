"""What a placed run stages is sent once its epoch is committed; nothing of it needs Spark."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pytest

from log_contract import values_of
from penstock.connectors.commit import Output
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.connectors.log_contract import LogError, NotTakenError
from penstock.connectors.staged_sinks import STAGED_SCHEMA, TopicPublisher, TopicSink, fill
from penstock.connectors.storage import storage


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    made = EmbeddedLog(tmp_path / "log")
    made.create("out", 1)
    return made


def staged(tmp_path: Path, epoch: int, *files: bytes) -> list[Output]:
    """A file with a message for each of `files`."""
    folder = str(tmp_path / "staging")
    options = {"path": str(tmp_path / "log")}
    sink = TopicSink(format="log", options=options, topic="out", producer="run-0", staging=folder)
    outputs = []
    for number, value in enumerate(files):
        table = pa.table([[None], [value]], schema=STAGED_SCHEMA)
        path = f"{epoch}-{number}.arrow"
        storage(folder).write(path, partial(fill, table))
        outputs.append(Output(sink=sink.place, staged=path, final=str(epoch), rows=1))
    return outputs


def publisher(outputs: list[Output]) -> TopicPublisher:
    made = TopicPublisher()
    made.add(outputs)
    return made


def test_what_was_sent_is_deleted_and_sent_once(tmp_path: Path, log: EmbeddedLog) -> None:
    outputs = staged(tmp_path, 3, b"a", b"b")
    for _ in range(2):  # whoever resumes the run does it again
        publisher(outputs).begin()
    assert values_of(log, "out") == [b"a", b"b"]
    assert storage(str(tmp_path / "staging")).list(".") == ["run-0.sent"]


def test_what_was_sent_is_known_though_the_log_forgets_it(tmp_path: Path, log: EmbeddedLog) -> None:
    outputs = staged(tmp_path, 3, b"a")
    publisher(outputs).publish()
    rmtree(tmp_path / "log" / "producers")  # as Kafka forgets the offsets of a group
    later = publisher(outputs)  # whoever resumes the run
    later.add(staged(tmp_path, 4, b"b"))
    later.publish()
    assert values_of(log, "out") == [b"a", b"b"]


def test_what_a_log_never_takes_stops_at_once_and_other_options_help(
    tmp_path: Path, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = staged(tmp_path, 3, b"too large")
    transactional = EmbeddedLog.transactional

    def refusing(self: EmbeddedLog, name: str, topic: str) -> object:
        if self._folder == tmp_path / "log":
            raise NotTakenError("too large")
        return transactional(self, name, topic)

    monkeypatch.setattr(EmbeddedLog, "transactional", refusing)
    stopped = publisher(outputs)
    with pytest.raises(NotTakenError, match="too large"):
        stopped.begin()
    assert stopped.waits
    other = EmbeddedLog(tmp_path / "other")
    other.create("out", 1)
    now = TopicSink.of(outputs[0].sink).model_copy(update={"options": {"path": str(tmp_path / "other")}})
    resumed = TopicPublisher([now])
    resumed.add(outputs)
    resumed.publish()
    assert not resumed.waits
    assert values_of(other, "out") == [b"too large"]


@pytest.mark.parametrize("gone", [0, 1])
def test_where_the_number_was_forgotten_and_what_was_staged_is_gone_nothing_is_sent(
    tmp_path: Path, log: EmbeddedLog, caplog: pytest.LogCaptureFixture, gone: int
) -> None:
    outputs = staged(tmp_path, 3, b"a", b"b")
    storage(str(tmp_path / "staging")).delete(outputs[gone].staged)
    with caplog.at_level(logging.WARNING):
        publisher(outputs).begin()
    (said,) = caplog.messages
    assert "no epoch is known to be sent under 'run-0', and what epoch 3 staged is gone" in said
    assert "\n" not in said
    with pytest.raises(LogError, match="what epoch 3 staged is gone"):
        publisher(outputs).publish()
    assert values_of(log, "out") == []
