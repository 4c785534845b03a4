"""Consumer groups that hear of every commit of a placed run how far it has read (`groupId`)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.connectors.log.address import FORMATS
from penstock.dataflow.endpoints import reading_of
from penstock.spark.fused.told_groups import GroupTeller

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from penstock.connectors.log.offsets import Offsets
    from penstock.dataflow.pipeline import Pipeline
    from penstock.flow.commit import Commit

LAST_SECONDS = 15.0
"""The last commit of a run is told within so long, or not at all."""


class ToldCommits:
    """In a thread of its own: a broker that does not answer holds up nobody. Of commits that come meanwhile the last is
    told, which has all that those before have."""

    def __init__(self, pipeline: Pipeline) -> None:
        readings = {name: reading_of(pipeline.operators[name]) for name in pipeline.sources}
        self._teller = GroupTeller({name: reading for name, reading in readings.items() if reading.format in FORMATS})
        self._changed = threading.Condition()
        self._untold: Mapping[str, Any] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._tell, name="consumer groups", daemon=True)
        if self._teller.readings:
            self._thread.start()

    def committed(self, commit: Commit) -> None:
        with self._changed:
            self._untold = commit.offsets
            self._changed.notify()

    def _tell(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._untold is not None or self._closed)
                offsets, self._untold = self._untold, None
            if offsets is None:
                return
            for source in self._teller.readings:
                self._teller.tell(source, offsets_of(source, offsets))

    def close(self) -> tuple[str, ...]:
        """What is left is told; returns what a report is to say of it."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._teller.readings:
            self._thread.join(LAST_SECONDS)
        if not self._thread.is_alive():
            self._teller.close()
        return self._teller.notes


def offsets_of(source: str, offsets: Mapping[str, Any]) -> Offsets:
    """By topic and partition, of what a commit has by source/TOPIC/PARTITION."""
    own: Offsets = {}
    for key, at in offsets.items():
        if key.count("/") == 2:
            name, topic, partition = key.split("/")
            if name == source:
                own.setdefault(topic, {})[partition] = int(at)
    return own
