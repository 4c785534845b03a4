"""A commit waits for what the one before it names: which sink it waits for is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connectors.checkpoint import FolderCheckpoint
from penstock.connectors.commit import Commit, Output
from penstock.connectors.log_contract import LogError, NotTakenError
from penstock.connectors.staged_sinks import TopicPublisher, TopicSink
from penstock.engines.placed.conductor import Committer, SinkAwayError, unsent_note
from penstock.engines.placed.endpoints import NotSentError
from penstock.engines.placed.flow.instructions import WriteCommit


class AwayPublisher(TopicPublisher):
    """Of sinks that are not reached."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def publish(self) -> None:
        raise self._error


def waiting_at_a_topic(folder: Path) -> Commit:
    sink = TopicSink(format="log", options={}, topic="parsed", producer="r-0", staging=str(folder))
    outputs = (Output(sink=sink.place, staged="s", final="1", rows=1),)
    return Commit(run="r", conductor=1, generation=1, epoch=1, plan="p", outputs=outputs)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LogError("Kafka at h:1: no answer"), "topic sink 'parsed' cannot be written: Kafka at h:1: no answer"),
        (NotSentError("sink 'table': connection refused"), "sink 'table': connection refused"),
    ],
)
def test_a_sink_that_is_away_is_named(tmp_path: Path, error: OSError, said: str) -> None:
    before = waiting_at_a_topic(tmp_path)
    committer = Committer(FolderCheckpoint(tmp_path), before, [AwayPublisher(error)])
    with pytest.raises(SinkAwayError) as raised:
        committer.commit(WriteCommit(before, 1, "p", ()), [])
    assert str(raised.value) == said


@pytest.mark.parametrize("error", [LogError("away"), NotTakenError("too large")])
def test_what_is_not_sent_when_a_run_is_over_is_said(tmp_path: Path, error: Exception) -> None:
    publisher = AwayPublisher(error)
    Committer(FolderCheckpoint(tmp_path), waiting_at_a_topic(tmp_path), [publisher]).close()
    note = unsent_note([publisher], "runs/r")
    assert note == "the last epoch is committed and not in its sinks yet: resume the run to send it (runs/r)"
    assert unsent_note([TopicPublisher()], "runs/r") is None


def test_what_a_sink_will_never_take_is_not_waited_for(tmp_path: Path) -> None:
    before = waiting_at_a_topic(tmp_path)
    committer = Committer(FolderCheckpoint(tmp_path), before, [AwayPublisher(NotTakenError("too large"))])
    with pytest.raises(NotTakenError, match="too large"):
        committer.commit(WriteCommit(before, 1, "p", ()), [])
