"""The whole pipeline as a profile runs it in the end: ends of ours, two sizes of batches."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.dataflow.logic import Logic, Per
from penstock.inputs.finders import logic_of
from penstock.profiling import rehearsal
from penstock.profiling.rehearsal import RehearsalSpec, files_of_batch, has_settled, rehearsable, rehearse
from penstock.profiling.samples import OperatorSample

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # pyspark's own

WAIT_SECONDS = 0.004


def wait(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(WAIT_SECONDS)
    return row


@pytest.mark.long("it compares times, and waits for Java to compile")
def test_two_sizes_of_batches_tell_what_a_tuple_takes(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "WARM_SECONDS", 4.0)  # of a tuple that waits Java has little to compile
    pipeline = penstock.pipeline("p").source("load").then("wait", logic=Logic(wait, schema="value long"))
    built = pipeline.sink("out").build()
    seen = rehearse(session, RehearsalSpec(built, logic_of(built), {"wait": 1}, 1, 30, 180, 1000.0), lambda: None)
    assert (seen.pipeline, seen.slots, seen.threads) == ("p", 1, {"wait": 1})
    assert (seen.small.tuples, seen.large.tuples) == (30, 180)
    each = (seen.large.seconds - seen.small.seconds) / 150
    # it waits for 4 ms; the rest is the machine, which others use too: they may hold up a small batch as well
    assert 0.7 * WAIT_SECONDS < each < 3 * WAIT_SECONDS
    assert seen.small.seconds > 30 * WAIT_SECONDS
    assert 0 < seen.small.cpu_seconds < seen.small.seconds * 4
    assert not session.streams.active


@pytest.mark.parametrize(
    ("each", "settled"),
    [
        ([9, 8, 7, 6, 5, 5, 5], False),  # seven batches are not two spans
        ([9, 8, 7, 6, 5, 5, 5, 5], False),  # 5 after 7.5
        ([9, 8, 7, 6, 6, 6, 5, 5, 5, 5], False),  # 5 after 6
        ([9, 8, 7, 6, 5, 5, 5, 5, 5, 5, 5, 5], True),
        ([5, 5, 9, 5, 4.9, 4.8, 5, 4.8], True),  # 4.85 after 5: one that was held up changes nothing
        ([5, 5, 5, 5, 8, 8, 8, 8], True),  # slower is not Java's doing
    ],
)
def test_when_batches_become_no_faster(each: list[float], settled: bool) -> None:
    assert has_settled(each) is settled


@pytest.mark.parametrize(
    ("options", "slots", "files"),
    [
        ({}, 2, 2),
        ({"maxFilesPerTrigger": "4"}, 1, 4),
        ({"MAXFILESPERTRIGGER": "1"}, 2, 2),
        ({"maxFilesPerTrigger": "500"}, 1, 16),
    ],
)
def test_batches_hold_as_many_files_as_the_users(options: dict[str, str], slots: int, files: int) -> None:
    assert files_of_batch(options, slots) == files


@pytest.mark.parametrize(("per", "orders"), [(Per.ROW, 128), (Per.DATAFRAME, 512)])
def test_keys_are_new_where_spark_may_keep_state_by_them(per: Per, orders: int, tmp_path: Path) -> None:
    built = penstock.pipeline("p").source("in", format="parquet", options={"path": "there"}, schema="order long")
    pipeline = built.then("work", logic=Logic(wait, per, schema="order long")).sink("out").build()
    sample = OperatorSample(pa.table({"order": list(range(128))}))
    spec = RehearsalSpec(pipeline, logic_of(pipeline), {}, 1, 10, 256, 1e6, {"in": sample})
    no_session: Any = None
    rehearsal._Inputs(no_session, spec, tmp_path).feed()  # two batches are ahead
    read = [order for file in tmp_path.glob("in-*/*/*.parquet") for order in pq.read_table(file)["order"].to_pylist()]
    assert (len(read), len(set(read))) == (512, orders)


def test_so_many_files_of_a_batch_are_what_the_source_says(tmp_path: Path) -> None:
    options: dict[str, str | int] = {"path": "there", "maxFilesPerTrigger": 4}
    built = penstock.pipeline("p").source("in", format="parquet", options=options, schema="x long").sink("out").build()
    spec = RehearsalSpec(built, {}, {}, 1, 40, 400, 1e6, {"in": OperatorSample(pa.table({"x": [1, 2, 3]}))})
    no_session: Any = None
    inputs = rehearsal._Inputs(no_session, spec, tmp_path)
    assert inputs.pipeline.operators["in"].options["maxFilesPerTrigger"] == 4


def shout(row: dict[str, Any]) -> dict[str, Any]:
    return {"word": row["word"].upper(), "number": row["number"]}


def test_files_of_the_user_are_neither_read_nor_written(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "WARM_SECONDS", 1.0)  # nothing here is about times
    there, out = tmp_path / "there", tmp_path / "out"
    built = (
        penstock.pipeline("p")
        .source("in", format="csv", options={"path": str(there), "header": True}, schema="word string, number long")
        .then("shout", logic=Logic(shout, schema="word string, number long"))
        .sink("out", format="json", options={"path": str(out)})
        .build()
    )
    sample = OperatorSample(pa.table({"word": ["a", "b", "c"] * 10, "number": list(range(30))}))
    part = RehearsalSpec(built, logic_of(built), {"shout": 1}, 2, 40, 400, 1e6, {"in": sample})
    seen = rehearse(session, part, lambda: None)
    assert (seen.small.tuples, seen.large.tuples) == (40, 400)
    assert not there.exists()
    assert not out.exists()
    assert rehearsable(built, {"in": sample}) is None
    assert rehearsable(built, {}) == "no tuple of source 'in' was seen"


def test_of_several_sources_nobody_knows_what_a_tuple_is() -> None:
    built = penstock.pipeline("p")
    for name in ("a", "b"):
        built = built.source(name, format="json", options={"path": name}, schema="x long")
    built = built.then("both", logic=Logic(wait, schema="x long"), reads=["a", "b"])
    pipeline = built.sink("out", reads="both").build()
    assert rehearsable(pipeline, {}) == "it has several sources"
