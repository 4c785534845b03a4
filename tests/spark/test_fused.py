"""Pipelines end to end on real Spark: nothing lost, nothing twice."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic, OnError
from penstock.running import execute
from penstock.spark.fused import FusedRun, Hooks, RunFailedError, run_fused

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # pyspark's own


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def odd_only(row: dict[str, Any]) -> dict[str, Any] | None:
    return row if row["value"] % 2 else None


def not_a_hundred(row: dict[str, Any]) -> dict[str, Any]:
    if row["value"] % 100 == 99:
        raise ValueError(f"{row['value']} is not liked")
    return row


def slow(row: dict[str, Any]) -> dict[str, Any]:
    threading.Event().wait(0.01)
    return row


DIAMOND = (
    penstock.pipeline("diamond")
    .source("s")
    .then("a", model="pi")
    .then("b", reads="s", model="pi")
    .then("join", reads=["a", "b"], model="pi")
    .sink("out")
    .build()
)
CHAIN = penstock.pipeline("chain").source("s").then("a", model="pi").sink("out").build()


def test_every_tuple_is_delivered_filtered_or_a_dead_letter(session: Any) -> None:
    logic = {"a": Logic(odd_only), "b": Logic(not_a_hundred), "join": Logic(same)}
    run = FusedRun(DIAMOND, logic, {"a": 2, "b": 1, "join": 3}, Load.constant(400), slots=2, most_rows=500)
    report = execute(session, run, seconds=4, warm_up=1, hooks=Hooks())
    audit = report.audit
    assert audit.emitted > 800
    assert (audit.lost, audit.duplicated) == (0, 0)
    # a drops the even half; b chokes on one in a hundred
    assert abs(audit.filtered - audit.emitted / 2) <= 1
    assert abs(audit.dead - audit.emitted / 100) <= 1
    assert report.operators["join"].received == report.operators["out"].received
    assert [slot.number for slot in report.slots] == [0, 1]
    assert report.others_cpu is not None
    assert 0 <= report.others_cpu < 1


def test_an_overload_shows_as_backlog_in_bounded_batches(session: Any) -> None:
    run = FusedRun(CHAIN, {"a": Logic(slow)}, {"a": 1}, Load.constant(2000), slots=2, most_rows=60)
    sizes: list[int] = []
    report = run_fused(session, run, seconds=5, warm_up=1, watch=lambda batch: sizes.append(batch.tuples))
    assert max(sizes) <= 60
    assert not report.stable
    assert report.backlog > 1000
    # two slots of one thread at 10 ms a tuple
    assert report.sustained_rate < 200
    assert (report.audit.lost, report.audit.duplicated) == (0, 0)


def dies_once(row: dict[str, Any]) -> dict[str, Any]:
    flag = Path(os.environ["PENSTOCK_TEST_FLAG"])
    if row["value"] == 150 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return row


def test_a_killed_worker_loses_and_doubles_nothing(session: Any, tmp_path: Path) -> None:
    flag = tmp_path / "died"
    run = FusedRun(
        CHAIN,
        {"a": Logic(dies_once)},
        {"a": 2},
        Load.constant(300),
        slots=2,
        most_rows=300,
        environment={"PENSTOCK_TEST_FLAG": str(flag)},
    )
    report = run_fused(session, run, seconds=5, warm_up=1)
    assert flag.exists()
    assert report.audit.emitted > 300
    assert (report.audit.lost, report.audit.duplicated) == (0, 0)


def test_code_that_may_stop_the_pipeline_does(session: Any) -> None:
    run = FusedRun(
        CHAIN, {"a": Logic(not_a_hundred, on_error=OnError.STOP)}, {"a": 1}, Load.constant(500), slots=2, most_rows=500
    )
    with pytest.raises(RunFailedError, match="99 is not liked"):
        run_fused(session, run, seconds=10, warm_up=1)
