"""Code that hangs, kills its worker or fails too often: named, put aside, and the rest delivered."""

from __future__ import annotations

import ctypes
import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer

import penstock
from penstock.base.errors import RunFailedError
from penstock.cli.reports import print_report

pytestmark = pytest.mark.usefixtures("own_runs")


def numbers(folder: Path, count: int) -> dict[str, Any]:
    folder.mkdir()
    (folder / "0.json").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(count)))
    return {"format": "json", "options": {"path": str(folder)}, "schema": "n bigint"}


def test_code_that_hangs_and_code_that_kills_its_worker(session: Any, tmp_path: Path) -> None:
    """Of 1,000 tuples one exits the process, one crashes it in C, one never returns."""

    def exit_at_500(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 500:
            os._exit(1)
        return row

    def crash_at_700(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 700:
            ctypes.string_at(0)
        return row

    def hang_at_100(row: dict[str, Any]) -> dict[str, Any]:
        while row["n"] == 100:
            time.sleep(0.05)
        return row

    p = penstock.pipeline("poison").source("in", **numbers(tmp_path / "in", 1000))
    p.then("exits", logic=exit_at_500, schema="n bigint")
    p.then("crashes", logic=crash_at_700, schema="n bigint")
    p.then("hangs", logic=hang_at_100, schema="n bigint", timeout_seconds=0.5)
    p.sink("out", parquet=str(tmp_path / "out"))
    result = penstock.run(
        p, session=session, slots=2, until_end=True, dead_letters=tmp_path / "dead", max_dead_letter_ratio=0.002
    )

    dead = [json.loads(line) for file in (tmp_path / "dead").glob("*.json") for line in file.read_text().splitlines()]
    told = {(line["operator"], json.loads(line["row"])["n"]): line["error"] for line in dead}
    assert set(told) == {("exits", 500), ("crashes", 700), ("hangs", 100)}
    assert told["exits", 500] == told["crashes", 700] == "killed its worker"
    assert "0.5 s" in told["hangs", 100]
    left = sorted(row["n"] for row in pq.read_table(tmp_path / "out").to_pylist())
    assert left == [n for n in range(1000) if n not in {100, 500, 700}]
    assert result.report.audit.dead == 3
    # 3 of 1,000, where 2 may
    assert (result.report.max_dead_letter_ratio, result.report.verdict) == (0.002, "too many tuples died")


def test_a_run_in_which_too_many_tuples_die_is_not_stable(
    session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 of 100 tuples; the limit is 1 of 100."""

    def picky(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] % 50 == 0:
            raise ValueError(f"cannot take {row['value']}")
        return row

    p = penstock.pipeline("picky").source("load").then("picky", logic=picky, schema="value bigint").sink("out")
    result = penstock.run(p, 500, session=session, slots=2, seconds=2.0, warm_up=0.5)
    audit = result.report.audit
    assert audit.dead == -(-audit.emitted // 50)
    assert (audit.lost, audit.duplicated) == (0, 0)
    assert not result.report.stable
    assert result.report.first_errors[0] == "operator 'picky', tuple 0: ValueError: cannot take 0"
    with pytest.raises(typer.Exit) as ended:
        print_report(result, json=False)
    assert ended.value.exit_code == 1
    assert "cannot take 0" in capsys.readouterr().out


def test_code_that_asks_to_stop_ends_the_run_and_nothing_of_its_batch_is_left(session: Any, tmp_path: Path) -> None:
    def stops(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 50:
            raise ValueError("that will do")
        return row

    p = penstock.pipeline("stopping").source("in", **numbers(tmp_path / "in", 100))
    p.then("stops", logic=stops, schema="n bigint", on_error="stop")
    p.sink("out", parquet=str(tmp_path / "out"))
    with pytest.raises(RunFailedError, match=r"operator 'stops'.*ValueError: that will do") as failed:
        penstock.run(p, session=session, slots=2, until_end=True)
    assert "\n" not in str(failed.value)
    assert list((tmp_path / "out").iterdir()) == []
