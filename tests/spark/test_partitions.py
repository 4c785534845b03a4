"""Into how many tasks Spark divides its own operators: as many as there are slots, and as its checkpoint says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.report.listener import Listener
from penstock.runs import environment as sessions
from penstock.runs.config import RunConfig
from penstock.spark.internals.checkpoint import partitions_in, partitions_of
from penstock.spark.internals.settings import PARTITIONS
from penstock.spark.session import cluster, embedded
from penstock.spark.session.embedded import partitions_for


@pytest.mark.parametrize(
    ("slots", "can_grow", "partitions"), [(1, False, 2), (2, False, 2), (8, False, 8), (1, True, 2), (8, True, 16)]
)
def test_a_partition_for_every_slot(slots: int, can_grow: bool, partitions: int) -> None:
    assert partitions_for(slots, can_grow=can_grow) == partitions


@pytest.mark.parametrize(
    ("master", "settings", "partitions"),
    [
        (None, {}, "6"),
        ("spark://h:1", {}, "12"),
        (None, {PARTITIONS: "5"}, "5"),
        ("spark://h:1", {PARTITIONS: "5"}, "5"),
    ],
)
def test_sessions_have_one_for_every_slot_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str | None, settings: dict[str, str], partitions: str
) -> None:
    class _StartedError(Exception):
        pass

    def start(_master: str, _log: Path, _name: str, given: dict[str, str], *_: Any, **__: Any) -> Any:
        raise _StartedError(given[PARTITIONS])

    monkeypatch.setattr(embedded, "configured_session", start)
    monkeypatch.setattr(cluster, "start_fused_session", start)
    config = RunConfig(master=master, settings=settings)
    with (
        pytest.raises(_StartedError, match=f"^{partitions}$"),
        sessions.spark_session(config, 6, tmp_path / "java.log", "name", Listener()),
    ):
        pass


@pytest.mark.parametrize("entry", ["", "v1", "v1\n{", "v1\n[]", "v1\n{}", 'v1\n{"conf":{}}\n-'])
def test_an_entry_that_does_not_say(entry: str) -> None:
    assert partitions_in(entry) is None


def test_a_query_has_the_partitions_its_checkpoint_began_with(session: Any, tmp_path: Path) -> None:
    assert partitions_of(session, str(tmp_path)) == 2
    (tmp_path / "offsets").mkdir()
    about = {"batchWatermarkMs": 0, "conf": {PARTITIONS: "7"}}
    (tmp_path / "offsets" / "3").write_text(f"v1\n{json.dumps(about)}\n-")
    assert partitions_of(session, str(tmp_path)) == 7
