"""Pipelines of every shape as one query: what is in the sinks is what plain Python makes of the same input."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from processes import rows_in, until
from pyspark.sql import functions

import penstock
from penstock.dataflow.aggregate import Aggregate
from penstock.report.listener import Listener

pytestmark = pytest.mark.usefixtures("own_runs")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return found


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("*.json")) for line in file.read_text().splitlines()]


def write_input(folder: Path, rows: list[dict[str, Any]], files: int = 3) -> Path:
    folder.mkdir()
    for number in range(files):
        text = "\n".join(json.dumps(row) for row in rows[number::files])
        (folder / f"{number}.json").write_text(text + "\n")
    return folder


class Shown(Listener):
    def __init__(self) -> None:
        self.tuples: list[tuple[str, dict[str, Any]]] = []

    def on_tuple(self, sink: str, text: str) -> None:
        self.tuples.append((sink, json.loads(text)))


def test_tasks_that_write_several_partitions_count_all_of_them(session: Any, tmp_path: Path) -> None:
    rows = [{"n": n} for n in range(300)]
    p = penstock.pipeline("coalesced")
    p.source("in", format="json", options={"path": str(write_input(tmp_path / "in", rows))}, schema="n bigint")
    p.then("same", logic=lambda row: row, schema="n bigint")
    p.sink("out", write=lambda frame, _: frame.coalesce(1).write.mode("append").parquet(str(tmp_path / "out")))
    report = penstock.run(p, session=session, slots=2, until_end=True).report
    assert sorted(row["n"] for row in rows_of(tmp_path / "out")) == list(range(300))
    assert (report.audit.emitted, report.operators["same"].received) == (300, 300)


def test_every_kind_of_code_in_one_chain(session: Any, tmp_path: Path) -> None:
    rows = [{"n": n, "user": f"u{n % 4}"} for n in range(3000)]
    p = penstock.pipeline("mixed")
    p.source(
        "events",
        format="json",
        options={"path": str(write_input(tmp_path / "in", rows))},
        schema="n bigint, user string",
    )

    @p.operator(reads="events", schema="n bigint, user string, part int")
    def split(row: dict[str, Any]) -> Any:
        n = row["n"]
        if n % 7 == 0:
            return None
        if n % 500 == 3:
            raise ValueError(f"no {n}")
        return [{**row, "part": part} for part in range(2 if n % 5 == 0 else 1)]

    @p.operator(reads="split", per="pandas", schema="n bigint, user string, part int, doubled bigint")
    def double(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(doubled=frame.n * 2)

    @p.operator(reads="double", per="arrow", schema="n bigint, user string, doubled bigint")
    def drop_part(table: pa.Table) -> pa.Table:
        return table.drop_columns(["part"])

    @p.operator(reads="drop_part", per="map-in-pandas", schema="n bigint, user string, doubled bigint")
    def keep_even(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame[frame.n % 2 == 0]

    @p.operator(reads="keep_even", per="dataframe")
    def shout(frame: Any) -> Any:
        return frame.selectExpr("n", "upper(user) AS user", "doubled + 1 AS odd")

    @p.operator(reads="shout", schema="n bigint, user string, odd bigint, seen boolean")
    def mark(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "seen": True}

    p.sink("store", reads="mark", format="parquet", options={"path": str(tmp_path / "out")})
    result = penstock.run(p, session=session, slots=2, until_end=True, dead_letters=tmp_path / "dead")

    expected = Counter(
        (n, f"U{n % 4}", 2 * n + 1, True)
        for n in range(3000)
        if n % 7 and n % 500 != 3 and n % 2 == 0
        for _ in range(2 if n % 5 == 0 else 1)
    )
    assert Counter((r["n"], r["user"], r["odd"], r["seen"]) for r in rows_of(tmp_path / "out")) == expected
    dead = lines_of(tmp_path / "dead")
    died = {n for n in range(3000) if n % 7 and n % 500 == 3}
    assert {json.loads(line["row"])["n"] for line in dead} == died
    assert {(line["operator"], line["error"][:13]) for line in dead} == {("split", "ValueError: n")}
    assert len(dead) == len(died) == result.report.audit.dead
    assert result.report.audit.emitted == 3000


def test_weighted_diamond_with_several_sinks(session: Any, tmp_path: Path) -> None:
    """Every tuple takes one of the two ways (0.3 and 0.7), all of them come together again; a third sink sees all."""
    p = penstock.pipeline("diamond").source("load").then("a", logic=lambda row: row)
    p.then("left", reads="a", weight=0.3, logic=lambda row: {**row, "way": "left"}, schema="value bigint, way string")
    p.then("right", reads="a", weight=0.7, logic=lambda row: {**row, "way": "right"}, schema="value bigint, way string")
    p.then("join", reads=["left", "right"], logic=lambda row: row, schema="value bigint, way string")
    p.sink("joined", reads="join", parquet=str(tmp_path / "joined"), console=True)
    p.sink("lefts", reads="left", format="json", options={"path": str(tmp_path / "lefts")})
    p.sink("all", reads="a", parquet=str(tmp_path / "all"))
    shown = Shown()
    result = penstock.run(p, 2000, session=session, slots=2, listener=shown, seconds=2.5, warm_up=0.5)

    audit = result.report.audit
    everything = list(range(audit.emitted))
    joined = rows_of(tmp_path / "joined")
    assert (audit.lost, audit.duplicated, audit.dead) == (0, 0, 0)
    assert audit.emitted >= 200  # a batch at least: how many come is up to the machine
    assert sorted(row["value"] for row in joined) == everything
    assert sorted(row["value"] for row in rows_of(tmp_path / "all")) == everything
    lefts = sorted(row["value"] for row in lines_of(tmp_path / "lefts"))
    assert lefts == sorted(row["value"] for row in joined if row["way"] == "left")
    # 0.3 of n tuples, within four standard deviations of as many throws of a coin
    n = len(everything)
    assert abs(len(lefts) - 0.3 * n) < 4 * (0.3 * 0.7 * n) ** 0.5
    assert {sink for sink, _ in shown.tuples} == {"joined"}
    assert all(set(row) == {"value", "way"} for _, row in shown.tuples)


def test_weighted_streams_into_sparks_own_operators(session: Any, tmp_path: Path) -> None:
    """Weights of 0.25 and 0.75 divide what a file holds: every row goes one way."""
    rows = [{"n": n} for n in range(4000)]
    p = penstock.pipeline("forked")
    p.source("in", format="json", options={"path": str(write_input(tmp_path / "in", rows))}, schema="n bigint")
    p.then("few", reads="in", weight=0.25, per="dataframe", logic=lambda frame: frame.selectExpr("n", "'few' AS way"))
    p.then("most", reads="in", weight=0.75, per="dataframe", logic=lambda frame: frame.selectExpr("n", "'most' AS way"))
    p.sink("out", reads=["few", "most"], parquet=str(tmp_path / "out"))
    penstock.run(p, session=session, slots=2, until_end=True)

    found = rows_of(tmp_path / "out")
    assert sorted(row["n"] for row in found) == list(range(4000))
    few = sum(row["way"] == "few" for row in found)
    assert abs(few - 1000) < 4 * (0.25 * 0.75 * 4000) ** 0.5


@pytest.mark.parametrize("first", ["source", "code", "spark"])
def test_weighted_streams_into_code_and_into_sparks_own(session: Any, tmp_path: Path, first: str) -> None:
    """0.3 to code, 0.3 to Spark's own operator, 0.4 to a sink: every row goes one way, whoever divides. Rows that are
    alike count each."""
    rows = [{"n": n} for n in range(3000)] * 2
    p = penstock.pipeline("forked")
    p.source("source", format="json", options={"path": str(write_input(tmp_path / "in", rows))}, schema="n bigint")
    p.then("code", reads="source", logic=lambda row: row, schema="n bigint")
    p.then("spark", reads="source", per="dataframe", logic=lambda frame: frame.where("n >= 0"))
    p.then("called", reads=first, weight=0.3, logic=lambda row: row, schema="n bigint")
    p.then("own", reads=first, weight=0.3, per="dataframe", logic=lambda frame: frame.selectExpr("n"))
    for sink in ("called", "own"):
        p.sink(f"{sink}_out", reads=sink, parquet=str(tmp_path / sink))
    p.sink("rest", reads=first, weight=0.4, parquet=str(tmp_path / "rest"))
    for other in {"code", "spark"} - {first}:
        p.sink(f"{other}_out", reads=other)
    result = penstock.run(p, session=session, slots=2, until_end=True)

    assert result.report.audit.emitted == 6000
    parts = [Counter(row["n"] for row in rows_of(tmp_path / way)) for way in ("called", "own", "rest")]
    assert sum(parts, Counter()) == Counter(dict.fromkeys(range(3000), 2))
    sizes = [len(part) for part in parts]
    assert sizes == pytest.approx([900, 900, 1200], abs=4 * (0.4 * 0.6 * 3000) ** 0.5)


def test_weighted_load_into_code_and_into_sparks_own(session: Any, tmp_path: Path) -> None:
    p = penstock.pipeline("forked").source("load")
    p.then("called", reads="load", weight=0.5, logic=lambda row: row, schema="value bigint")
    p.then("own", reads="load", weight=0.5, per="dataframe", logic=lambda frame: frame.selectExpr("value"))
    p.sink("out", reads=["called", "own"], parquet=str(tmp_path / "out"))
    result = penstock.run(p, 2000, session=session, slots=2, seconds=2, warm_up=0.5)
    assert sorted(row["value"] for row in rows_of(tmp_path / "out")) == list(range(result.report.audit.emitted))


def test_windows_over_due_time_are_closed_once_and_whole(session: Any, tmp_path: Path) -> None:
    """1,000 tuples/s over windows of 0.5 s and two keys: 250 tuples to each key of a window that is whole."""
    p = penstock.pipeline("windows").source("load")
    p.then("key", logic=lambda row: {"key": row["value"] % 2}, schema="key bigint")
    counting = Aggregate(key="key", outputs={"n": "count"}, fields="key bigint", window_seconds=0.5, emit="closed")
    p.then("count", aggregate=counting)
    p.then("out_row", logic=lambda row: row)
    p.sink("out", parquet=str(tmp_path / "out"))
    handle = penstock.start(p, 1000, session=session, slots=2)
    until(lambda: rows_in(tmp_path / "out") >= 6)
    result = handle.stop()

    table = pq.read_table(tmp_path / "out")
    windows = sorted(set(table["window_start"].to_pylist()))
    assert table.num_rows == 2 * len(windows)  # each key once in every window
    whole = table.filter(pc.is_in(table["window_start"], pa.array(windows[1:])))
    assert set(whole["n"].to_pylist()) == {250}
    assert (result.report.audit.lost, result.report.audit.duplicated) == (0, 0)
    assert pc.sum(table["n"]).as_py() <= result.report.audit.emitted


def test_groups_told_with_every_change(session: Any, tmp_path: Path) -> None:
    rows = [{"user": f"u{n % 4}", "amount": n} for n in range(900)]
    p = penstock.pipeline("updates")
    source = write_input(tmp_path / "in", rows)
    p.source(
        "in", format="json", options={"path": str(source), "maxFilesPerTrigger": 1}, schema="user string, amount long"
    )
    spent = Aggregate(key="user", outputs={"n": "count", "spent": "sum(amount)"}, fields="user string, amount bigint")
    p.then("spent", aggregate=spent)
    p.sink("out", parquet=str(tmp_path / "out"))
    penstock.run(p, session=session, slots=2, until_end=True)

    last: dict[str, tuple[int, int]] = {}
    for row in sorted(rows_of(tmp_path / "out"), key=lambda row: row["n"]):
        last[row["user"]] = row["n"], row["spent"]
    assert last == {f"u{k}": (225, sum(range(k, 900, 4))) for k in range(4)}
    assert len(rows_of(tmp_path / "out")) == 3 * 4  # every file has some of every user


def test_no_audit_is_claimed_where_spark_reads_the_load(session: Any) -> None:
    def shown(row: dict[str, Any]) -> dict[str, Any]:
        return {"n": row["n"], "text": str(row["n"])}

    p = penstock.pipeline("unaudited").source("load")
    p.then("even", per="dataframe", logic=lambda frame: frame.where("value % 2 = 0").selectExpr("value AS n"))
    p.then("show", logic=shown, schema="n long, text string", selectivity=0.5).sink("out")
    with pytest.raises(penstock.PenstockError, match="operator 'even' is Spark's own and reads the source"):
        penstock.run(p, 500, session=session, seconds=2, warm_up=0.5, audit=True)
    report = penstock.run(p, 500, session=session, slots=2, seconds=2, warm_up=0.5).report
    assert report.audit.emitted > 500
    assert (report.audit.lost, report.audit.duplicated) == (None, None)
    assert any(note.startswith("ids are not audited: operator 'even'") for note in report.notes)


def test_the_load_beside_a_source_that_stands_first(session: Any, tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", [{"n": n} for n in range(30)])
    p = penstock.pipeline("beside").source("files", format="json", options={"path": str(source)}, schema="n bigint")
    p.source("load")
    p.then("of_files", reads="files", logic=lambda row: {"value": row["n"]}, schema="value bigint")
    p.then("of_load", reads="load", logic=lambda row: row, schema="value bigint")
    p.sink("a", reads="of_files", parquet=str(tmp_path / "a")).sink("b", reads="of_load", parquet=str(tmp_path / "b"))
    audit = penstock.run(p, 500, session=session, slots=2, seconds=2, warm_up=0.5, audit=False).report.audit
    assert sorted(row["value"] for row in rows_of(tmp_path / "a")) == list(range(30))
    assert sorted(row["value"] for row in rows_of(tmp_path / "b")) == list(range(audit.emitted))


def test_two_sources_into_one_operator_count_once(session: Any, tmp_path: Path) -> None:
    p = penstock.pipeline("two")
    for name in ("x", "y"):
        source = write_input(tmp_path / name, [{"n": n} for n in range(40)])
        p.source(name, format="json", options={"path": str(source)}, schema="n bigint")
    p.then("both", reads=["x", "y"], logic=lambda row: row, schema="n bigint").sink("out")
    assert penstock.run(p, session=session, slots=2, until_end=True).report.audit.emitted == 80


def test_sinks_behind_one_operator_of_sparks_share_its_state(session: Any, tmp_path: Path) -> None:
    rows = [{"n": n, "at": f"2026-01-01T00:{n // 10:02d}:{n % 10:02d}Z"} for n in range(60)]
    p = penstock.pipeline("shared")
    source = {"path": str(write_input(tmp_path / "in", rows))}
    p.source("in", format="json", options=source, schema="n bigint, at timestamp", watermark=("at", "1 minute"))
    p.then("same", logic=lambda row: row, schema="n bigint, at timestamp")
    p.then("count", per="dataframe", logic=lambda df: df.groupBy(functions.window("at", "1 minute")).count())
    for name in ("a", "b"):
        p.sink(name, reads="count", format="json", options={"path": str(tmp_path / name)})
    folder = tmp_path / "run"
    result = penstock.run(p, session=session, slots=2, until_end=True, folder=folder, dead_letters=tmp_path / "dead")
    for name in ("a", "b"):
        assert [line["count"] for line in lines_of(tmp_path / name)] == [10] * 4
    assert [state.name for state in (folder / "checkpoint" / "state").glob("[0-9]*")] == ["0"]
    assert result.report.operators["count"].sent == 4
    assert any(note.startswith("2 groups are still open") for note in result.report.notes)
