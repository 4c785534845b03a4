"""A session the user has is never adopted: it is refused before anything is started or changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext

import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError
from penstock.engines.fused.query import MOST_BYTES, MOST_ROWS, NO_LOOK
from penstock.spark.session.embedded import end_session, start_session
from penstock.spark.session.java import find_java
from penstock.spark.session.user_session import checked_session


def test_a_session_of_the_user_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    theirs = object()
    monkeypatch.setattr(SparkContext, "_active_spark_context", theirs)
    with pytest.raises(BadInputError, match="has a Spark session already, which is left alone"):
        start_session(1, tmp_path / "java.log")
    assert SparkContext._active_spark_context is theirs
    assert not (tmp_path / "java.log").exists()


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        ("pyspark.sql.connect.session", "a Spark Connect session cannot carry what a run needs"),
        ("my.session", "expected a SparkSession, found SparkSession"),
    ],
)
def test_a_session_that_will_not_do_is_refused(module: str, complaint: str) -> None:
    theirs = type("SparkSession", (), {"__module__": module})()
    with pytest.raises(BadInputError, match=f"^session: {complaint}"):
        checked_session(theirs)


def test_a_java_process_that_was_there_before_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    gateway = SimpleNamespace(proc=None, shutdown=lambda: calls.append("shut down"))
    context = SimpleNamespace(_gateway=gateway, master="local[2]", applicationId="theirs")
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    end_session(cast("Any", SimpleNamespace(sparkContext=context, stop=lambda: calls.append("stopped"))))
    assert calls == ["stopped"]
    assert SparkContext._gateway is gateway


SUBMITTED = """
import sys
import penstock
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
p = penstock.pipeline("submitted").source("in", format="json", options={"path": sys.argv[1]}, schema="n bigint")
p.then("same", logic=lambda row: row, schema="n bigint").sink("out", parquet=sys.argv[2])
report = penstock.run(p, session=spark, until_end=True).report
assert report.engine_cpu is not None
assert spark.range(3).count() == 3
"""


def rows(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text("".join(f'{{"n": {n}}}\n' for n in range(100)))


def test_a_session_whose_java_was_there_before_is_run_on(
    session: Any, tmp_path: Path, own_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.sparkContext._gateway, "proc", None)
    rows(tmp_path)
    p = penstock.pipeline("p").source("in", format="json", options={"path": str(tmp_path / "in")}, schema="n bigint")
    p.then("same", logic=lambda row: row, schema="n bigint").sink("out", parquet=str(tmp_path / "out"))
    report = penstock.run(p, session=session, slots=2, until_end=True).report
    assert report.engine_cpu is not None
    assert sorted(pq.read_table(tmp_path / "out")["n"].to_pylist()) == list(range(100))


@pytest.mark.parametrize(("columns", "is_looked_at"), [("value", False), ("value, 'text' AS text", True)])
def test_spark_need_not_look_at_the_bytes_of_rows_of_fixed_width(
    session: Any, own_runs: Path, columns: str, is_looked_at: bool
) -> None:
    def numbers(spark: Any) -> Any:
        stream = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=10, numPartitions=1)
        return stream.load().selectExpr(*columns.split(", "))

    p = penstock.pipeline("p").source("in", frame=numbers)
    p.then("same", logic=lambda table: table.select(["value"]), per="arrow", schema="value bigint").sink("out")
    handle = penstock.start(p, session=session, slots=2)
    try:
        watch = Stopwatch()
        while not session.streams.active and watch.seconds() < 60:
            pause(0.05)
        (query,) = session.streams.active
        looks = query._jsq.streamingQuery().sparkSessionForStream().conf().get(MOST_BYTES, None) != NO_LOOK
    finally:
        handle.kill()
    assert looks == is_looked_at
    assert session.conf.get(MOST_BYTES, None) is None
    assert session.conf.get(MOST_ROWS) == "1000000"


@pytest.mark.long("a session of Spark of its own, started cold")
def test_a_session_of_spark_submit_is_run_on_and_left_as_it_was(tmp_path: Path) -> None:
    rows(tmp_path)
    (tmp_path / "application.py").write_text(SUBMITTED)
    submit = Path(sys.executable).with_name("spark-submit")
    settings = ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]
    places = [str(tmp_path / name) for name in ("application.py", "in", "out")]
    submitted = subprocess.run(
        [str(submit), "--master", "local[2]", *settings, *places],
        env={
            **os.environ,
            "JAVA_HOME": str(Path(find_java()).resolve().parent.parent),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYSPARK_PYTHON": sys.executable,
            "PENSTOCK_RUNS": str(tmp_path / "runs"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert submitted.returncode == 0, submitted.stdout
    assert sorted(pq.read_table(tmp_path / "out")["n"].to_pylist()) == list(range(100))
