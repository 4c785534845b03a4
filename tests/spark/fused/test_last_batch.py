"""Windows that are open when the input ends: sent on, or kept for whoever goes on, and said."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyspark
import pytest

import penstock
from penstock.base.errors import RunFailedError
from penstock.dataflow.builder import PipelineBuilder
from penstock.engines.fused.query import CLOSED_BEFORE
from penstock.engines.fused.restartable_query import LastingQuery
from penstock.spark.internals.checkpoint import END_OF_TIME_MS, at_the_end_of_time, is_at_the_end_of_time

ROWS = 500


def test_an_entry_gets_another_watermark_and_keeps_the_rest() -> None:
    entry = 'v1\n{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{"a":"b"}}\n{"logOffset":3}\n-'
    changed = at_the_end_of_time(entry)
    assert changed is not None
    version, about, *offsets = changed.split("\n")
    assert (version, offsets) == ("v1", ['{"logOffset":3}', "-"])
    assert json.loads(about) == {"batchWatermarkMs": END_OF_TIME_MS, "batchTimestampMs": 7, "conf": {"a": "b"}}
    assert is_at_the_end_of_time(changed)
    assert not is_at_the_end_of_time(entry)


@pytest.mark.parametrize("entry", ["", "v1", "v1\n", "v1\n[]\n-", "v1\n{}\n-", "v9\nwhat\n-"])
def test_an_entry_of_another_kind_is_left_alone(entry: str) -> None:
    assert at_the_end_of_time(entry) is None
    assert not is_at_the_end_of_time(entry)


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


def test_a_run_that_died_while_it_closed_its_windows_closes_them_and_takes_in_no_more(
    session: Any, tmp_path: Path, own_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def died(*_: Any) -> None:
        raise RunFailedError("died")

    pipeline, out = windows(tmp_path / "in", tmp_path / "out"), tmp_path / "out"
    with monkeypatch.context() as dying:
        dying.setattr(LastingQuery, "run_last_batch", died)
        with pytest.raises(RunFailedError, match="died"):
            penstock.run(pipeline, session=session, until_end=True)
    [folder] = own_runs.iterdir()
    later = datetime(2026, 1, 2, tzinfo=UTC)
    (tmp_path / "in" / "more.json").write_text(json.dumps({"key": "k0", "ts": later.isoformat()}))
    report = penstock.run(pipeline, session=session, until_end=True, folder=folder).report
    assert counted(out) == ROWS
    # behind the end of time every row is late
    assert report.audit.emitted == 0
    assert CLOSED_BEFORE in report.notes


def stamped(folder: Path, name: str, numbers: range) -> dict[str, Any]:
    """A source of rows with a number (`NAME_n`) and a time, one a second."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    folder.mkdir()
    rows = [{f"{name}_n": n, f"{name}_ts": (start + timedelta(seconds=n)).isoformat()} for n in numbers]
    (folder / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    return {
        "format": "json",
        "options": {"path": str(folder)},
        "schema": f"{name}_n long, {name}_ts timestamp",
        "watermark": (f"{name}_ts", "10 seconds"),
    }


def test_rows_without_a_match_leave_an_outer_join_at_the_end(session: Any, tmp_path: Path, own_runs: Path) -> None:
    """Orders 0 to 99, of which the first 90 are paid: Spark knows of the last ten only when their time is over."""
    p = penstock.pipeline("unpaid")
    p.source("orders", **stamped(tmp_path / "orders", "order", range(100)))
    p.source("payments", **stamped(tmp_path / "payments", "paid", range(90)))
    condition = "order_n = paid_n AND paid_ts BETWEEN order_ts AND order_ts + INTERVAL 5 SECONDS"

    def joined(orders: Any, payments: Any) -> Any:
        from pyspark.sql import functions as f

        return orders.join(payments, f.expr(condition), "left_outer").select("order_n", "paid_n")

    p.then("joined", reads=["orders", "payments"], per="dataframe", logic=joined)
    p.sink("store", format="json", options={"path": str(tmp_path / "out")})
    report = penstock.run(p, session=session, until_end=True).report

    files = (tmp_path / "out").glob("*.json")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted((row["order_n"], row.get("paid_n")) for row in rows if "paid_n" in row) == [(n, n) for n in range(90)]
    assert sorted(row["order_n"] for row in rows if "paid_n" not in row) == list(range(90, 100))
    assert any("rows of a join of streams were still open when it ended, and were closed" in n for n in report.notes)
    assert report.audit.emitted == 190


@pytest.mark.skipif(
    pyspark.__version__.startswith("4.0"),
    reason="pyspark 4.0 fails with this pandas in applyInPandasWithState, also by hand",
)
def test_states_that_wait_for_event_time_are_sent_on_at_the_end(session: Any, tmp_path: Path, own_runs: Path) -> None:
    def count(key: Any, frames: Any, state: Any) -> Any:
        import pandas as pd

        if state.hasTimedOut:
            yield pd.DataFrame({"even": [key[0]], "n": [state.get[0]]})
            state.remove()
        else:
            state.update((sum(len(frame) for frame in frames),))
            state.setTimeoutTimestamp(4_000_000_000_000)

    def counted_by_parity(rows: Any) -> Any:
        grouped = rows.selectExpr("x_n % 2 = 0 AS even", "x_ts").groupBy("even")
        return grouped.applyInPandasWithState(count, "even boolean, n long", "n long", "append", "EventTimeTimeout")

    p = penstock.pipeline("parity").source("rows", **stamped(tmp_path / "in", "x", range(99)))
    p.then("count", per="dataframe", logic=counted_by_parity)
    p.sink("store", format="json", options={"path": str(tmp_path / "out")})
    penstock.run(p, session=session, until_end=True)
    files = (tmp_path / "out").glob("*.json")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted((row["even"], row["n"]) for row in rows) == [(False, 49), (True, 50)]
