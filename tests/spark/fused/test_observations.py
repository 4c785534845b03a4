"""Rows that Spark counts as frames are written, however often a function of the user's looks at them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark import java_gateway

import penstock
from penstock.engines.fused.accounting import BatchShares
from penstock.spark.internals.listeners import PassCounter, is_limited

pytestmark = pytest.mark.usefixtures("own_runs")


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("GlobalLimit 1\n+- LocalLimit 1\n   +- CollectMetrics penstock-5f0c", True),
        ("Tail 3\n+- CollectMetrics penstock-5f0c", True),
        ("Project [GlobalLimit#5, Tail#6L]\n+- CollectMetrics penstock-5f0c", False),
    ],
)
def test_a_pass_that_a_limit_ends_is_seen_by_its_plan(plan: str, expected: bool) -> None:
    assert is_limited(plan) is expected


def test_rows_are_counted_by_the_pass_that_saw_all_of_them(session: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(500)))

    def looks_first(frame: Any, _: int) -> None:
        if not frame.isEmpty():
            frame.show(2)
            frame.write.format("noop").mode("overwrite").save()
            frame.take(3)

    def only_looks(frame: Any, _: int) -> None:
        frame.take(3)

    p = penstock.pipeline("p")
    p.source("in", format="json", options={"path": str(tmp_path / "in")}, schema="n bigint")
    p.then("doubled", reads="in", per="dataframe", logic=lambda df: df.selectExpr("n", "2 * n AS twice"))
    p.then("halved", reads="in", per="dataframe", logic=lambda df: df.selectExpr("n / 2 AS half"))
    p.sink("all", reads="doubled", write=looks_first).sink("some", reads="halved", write=only_looks)
    report = penstock.run(p, session=session, slots=2, until_end=True).report
    assert (report.operators["doubled"].sent, report.operators["all"].received) == (500, 500)
    assert "some" not in report.operators
    assert any(note.startswith("sink 'some': of 1 of its batches no action") for note in report.notes)
    assert not any(note.startswith("sink 'all': of") for note in report.notes)


def test_shares_are_those_of_all_rows(session: Any) -> None:
    ensure_callback_server_started: Any = java_gateway.ensure_callback_server_started
    ensure_callback_server_started(session.sparkContext._gateway)  # queries of ours have one
    shares = BatchShares(PassCounter(session))
    shares.watch({7: ("id", 5.0)})
    frame = shares.observed("out", session.newSession().range(0, 10, 1, 2))
    assert not frame.isEmpty()
    frame.write.format("noop").mode("overwrite").save()
    shares.collect()
    assert shares.last == {7: 0.4}
