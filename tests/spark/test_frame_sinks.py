"""Sinks that Spark writes in placed runs: a table by JDBC holds every row once; others at least once, where asked for.

Bundles are plain processes here; the session writes. Derby comes with Spark, and lives in its Java process.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.base.clock import Stopwatch, now
from penstock.base.errors import BadInputError, RunError
from penstock.cluster.topology import Slot
from penstock.connectors.checkpoint import FolderCheckpoint
from penstock.connectors.commit import Commit, Output
from penstock.connectors.staged_sinks import SinkFiles
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.engines.fused.sinks.table_writer import BATCHES
from penstock.engines.fused.sources.readers import struct_of
from penstock.engines.placed.bundle.keyed_segment import plain_schema
from penstock.engines.placed.bundle_plan import Code, lay_out
from penstock.engines.placed.conductor import Conductor, ConductorSetting
from penstock.engines.placed.endpoints import FramePublisher, NotSentError, frame_writers, sinks_of
from penstock.engines.placed.flow.states import Patience
from penstock.engines.placed.launchers import LocalLauncher
from penstock.spark.internals.plans import arrow_of

URL = "jdbc:derby:memory:frames;create=true"
SLOT = Slot("n1", 0)


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def pipeline(**sink: Any) -> Pipeline:
    operators = [
        Operator(name="src", kind=Kind.SOURCE),
        Operator(name="op", logic=Logic(same, schema="value bigint")),
        Operator(name="out", kind=Kind.SINK, **sink),
    ]
    return Pipeline.of("p", operators, [Stream(sender="src", receiver="op"), Stream(sender="op", receiver="out")])


TABLE = pipeline(format="jdbc", options={"url": URL, "dbtable": "numbers"})


@pytest.fixture(autouse=True)
def log_of_derby(session: Any, tmp_path: Path) -> None:
    session.sparkContext._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))


def conductor(session: Any, folder: Path, began: float, launcher: LocalLauncher) -> Conductor:
    frames = f"{folder}/frames"
    sinks = {"out": SinkFiles(frames, "parquet", frame_of="out")}
    code = Code(TABLE, {"op": Logic(same)}, {"op": pa.schema([("value", pa.int64())])}, sinks)
    threads = {SLOT: dict.fromkeys(TABLE.operators, 1)}
    laid_out = lay_out(code, [("src", "op"), ("out",)], threads, lambda _, count: float(count), "p")
    checkpoint = FolderCheckpoint(folder)
    checkpoint.create()
    last = checkpoint.last() or Commit(run="r", conductor=0, generation=0, epoch=0, plan="p")
    publisher = FramePublisher(session, frame_writers(session, TABLE, ["out"], "run"), frames, lambda: None)

    def nowhere(_unusable: object) -> Any:
        raise RunError("nowhere to go")

    patience = Patience(epoch=0.3)
    setting = ConductorSetting(
        "r", checkpoint, "127.0.0.1", Load.constant(300.0), began, nowhere, patience=patience, publishers=[publisher]
    )
    return Conductor(setting, launcher, laid_out, checkpoint.take_over(last, "p"))


def turn_until_epoch(run: Conductor, epoch: int) -> None:
    watch = Stopwatch()
    while run.run.commit.epoch < epoch:
        run.turn()
        assert run.stopped is None, run.stopped
        assert watch.seconds() < 60, run.run.state


def test_a_table_holds_every_row_once_whoever_writes_it(session: Any, tmp_path: Path) -> None:
    began = now()
    launchers = [LocalLauncher(), LocalLauncher()]
    first = conductor(session, tmp_path, began, launchers[0])
    turn_until_epoch(first, 5)
    # a second conductor, beside the first, which goes on and publishes what it has committed until it is fenced
    second = conductor(session, tmp_path, began, launchers[1])
    try:
        turn_until_epoch(second, second.run.commit.epoch + 2)
        while not first.is_over:
            first.turn()
            second.turn(0.0)
        turn_until_epoch(second, second.run.commit.epoch + 2)
        drained = second.drain(end=True)
        while not drained.done():
            second.turn()
    finally:
        first.close()
        second.close()
        for launcher in launchers:
            launcher.close()
    offset = int(second.run.commit.offsets["src"])
    rows = session.read.format("jdbc").options(url=URL, dbtable="numbers").load().collect()
    assert Counter(row["penstock_id"] for row in rows) == Counter(range(offset))
    assert offset > 300
    batches = session.read.format("jdbc").options(url=URL, dbtable=BATCHES).load().collect()
    assert ("run-out", second.run.commit.epoch) in {tuple(row) for row in batches}
    # what the first staged for an epoch that it could not commit is nobody's; all else is gone
    left = [path.name for path in (tmp_path / "frames" / "_staged").iterdir()]
    assert all(name.startswith("r-1-1-") for name in left)


class _Failing:
    """A sink of the user's that takes nothing at first."""

    exactly_once = False

    def __init__(self) -> None:
        self.got: list[tuple[int, int]] = []
        self.is_well = False

    def prepare(self) -> None: ...
    def close(self) -> None: ...

    def write(self, frame: Any, batch: int) -> None:
        if not self.is_well:
            raise ValueError("the database is away")
        self.got.append((batch, frame.count()))


def test_an_epoch_that_a_sink_does_not_take_waits_and_the_next_is_not_committed(session: Any, tmp_path: Path) -> None:
    (tmp_path / "_staged").mkdir()
    pq.write_table(pa.table({"value": [1, 2, 3]}), tmp_path / "_staged" / "a.parquet")
    writer = _Failing()
    publisher = FramePublisher(session, {"out": writer}, str(tmp_path), lambda: None)
    publisher.add([Output(sink="frame:out", staged="_staged/a.parquet", final="7", rows=3)])
    with pytest.raises(NotSentError, match="sink 'out': ValueError: the database is away"):
        publisher.publish()
    writer.is_well = True
    publisher.publish()
    publisher.publish()
    assert writer.got == [(7, 3)]


@pytest.mark.parametrize(
    "words",
    [
        "a string, b int",
        "a LONG",
        "a bigint ,b double, c float",
        "a boolean, b binary, c date, d timestamp",
        "x integer",
        "a short, b byte, c real, d smallint, e decimal",
    ],
)
def test_plain_schemas_are_what_spark_says(session: Any, words: str) -> None:
    assert session is not None
    assert plain_schema(words) == arrow_of(struct_of(words, "test"))


@pytest.mark.parametrize(
    "words", ["a array<int>", "a int not null", "`a b` int", "a decimal(3,2)", "a int, a int", "a"]
)
def test_what_is_not_plain_is_left_to_spark(words: str) -> None:
    assert plain_schema(words) is None


def test_a_sink_that_cannot_commit_by_epoch_is_refused_or_chosen(tmp_path: Path) -> None:
    for own in (pipeline(write=f"{__name__}:same"), pipeline(format="mongodb", options={"path": "x"})):
        with pytest.raises(BadInputError, match=r"^sink 'out': .* cannot commit by epoch: .*--at-least-once"):
            sinks_of(own, None)
        files, _ = sinks_of(own, None, at_least_once=True)
        assert files["out"].frame_of == "out"
    for once in ("csv", "orc", "delta"):
        assert sinks_of(pipeline(format=once, options={"path": str(tmp_path)}), None)[0]["out"].frame_of == "out"
