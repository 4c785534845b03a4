"""Windows that are open when the input ends: sent on, or kept for whoever goes on, and said."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.dataflow.builder import PipelineBuilder
from penstock.spark.fused.last_batch import END_OF_TIME_MS, at_the_end_of_time

ROWS = 500


def test_an_entry_gets_another_watermark_and_keeps_the_rest() -> None:
    entry = 'v1\n{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{"a":"b"}}\n{"logOffset":3}\n-'
    changed = at_the_end_of_time(entry)
    assert changed is not None
    version, about, *offsets = changed.split("\n")
    assert (version, offsets) == ("v1", ['{"logOffset":3}', "-"])
    assert json.loads(about) == {"batchWatermarkMs": END_OF_TIME_MS, "batchTimestampMs": 7, "conf": {"a": "b"}}


@pytest.mark.parametrize("entry", ["", "v1", "v1\n", "v1\n[]\n-", "v1\n{}\n-", "v9\nwhat\n-"])
def test_an_entry_of_another_kind_is_left_alone(entry: str) -> None:
    assert at_the_end_of_time(entry) is None


def windows(folder: Path, out: Path) -> PipelineBuilder:
    """Rows of every second in two windows in a row: of ten seconds by key, then of a minute."""
    from pyspark.sql import functions as f

    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [{"key": f"k{n % 3}", "ts": (start + timedelta(seconds=n)).isoformat()} for n in range(ROWS)]
    folder.mkdir()
    (folder / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    made = penstock.pipeline("windows").source(
        "rows",
        format="json",
        options={"path": str(folder)},
        schema="key string, ts timestamp",
        watermark=("ts", "30 seconds"),
    )
    made.then(
        "tens", per="dataframe", logic=lambda rows: rows.groupBy(f.window("ts", "10 seconds"), "key").count()
    ).then(
        "minutes",
        per="dataframe",
        logic=lambda tens: tens.groupBy(f.window(f.window_time("window"), "1 minute")).agg(f.sum("count").alias("n")),
    )
    return made.sink("store", format="json", options={"path": str(out)})


def counted(out: Path) -> int:
    return sum(json.loads(line)["n"] for file in out.glob("*.json") for line in file.read_text().splitlines())


def test_every_row_is_in_a_window_when_nobody_will_go_on(session: Any, tmp_path: Path, own_runs: Path) -> None:
    result = penstock.run(windows(tmp_path / "in", tmp_path / "out"), session=session, until_end=True)
    assert counted(tmp_path / "out") == ROWS
    assert any("were still open when it ended, and were sent on" in note for note in result.report.notes)


def test_a_folder_keeps_open_windows_and_says_so(session: Any, tmp_path: Path, own_runs: Path) -> None:
    pipeline, out = windows(tmp_path / "in", tmp_path / "out"), tmp_path / "out"
    result = penstock.run(pipeline, session=session, until_end=True, folder=tmp_path / "run")
    assert counted(out) < ROWS
    assert any("groups are still open" in note for note in result.report.notes)
    # more comes in, and the windows go on where they were
    later = datetime(2026, 1, 2, tzinfo=UTC)
    (tmp_path / "in" / "more.json").write_text(json.dumps({"key": "k0", "ts": later.isoformat()}))
    penstock.run(pipeline, session=session, until_end=True, folder=tmp_path / "run")
    assert counted(out) == ROWS
