"""A commit waits for what the one before it names: which sink it waits for is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connectors.log.contract import LogError
from penstock.connectors.log.publishing import TopicPublisher, TopicSink
from penstock.flow.checkpoint import FolderCheckpoint
from penstock.flow.commit import Commit, Output
from penstock.flow.instructions import WriteCommit
from penstock.spark.placed.committing import Committer, SinkAwayError
from penstock.spark.placed.frame_sinks import NotSentError


class AwayPublisher(TopicPublisher):
    """Of sinks that are not reached."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error

    def publish(self) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LogError("Kafka at h:1: no answer"), "topic sink 'parsed' cannot be written: Kafka at h:1: no answer"),
        (NotSentError("sink 'table': connection refused"), "sink 'table': connection refused"),
    ],
)
def test_a_sink_that_is_away_is_named(tmp_path: Path, error: OSError, said: str) -> None:
    sink = TopicSink(format="log", options={}, topic="parsed", producer="r-0", staging=str(tmp_path))
    before = Commit(
        run="r",
        conductor=1,
        generation=1,
        epoch=1,
        plan="p",
        outputs=(Output(sink=sink.place, staged="s", final="1", rows=1),),
    )
    committer = Committer(FolderCheckpoint(tmp_path), before, [AwayPublisher(error)])
    with pytest.raises(SinkAwayError) as raised:
        committer.commit(WriteCommit(before, 1, "p", ()), [])
    assert str(raised.value) == said
