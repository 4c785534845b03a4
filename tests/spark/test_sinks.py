"""What sinks write, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.dataflow.logic import Logic
from penstock.errors import BadInputError
from penstock.spark.calls import DeadLetter
from penstock.spark.segment import Result, StepCount
from penstock.spark.sinks import Ends, Sample, Sink, TaskName, ends_of
from penstock.spark.tuples import Tuple

TASK = TaskName("run", 3, 1)


def delivered(*payloads: dict[str, Any]) -> Result:
    items = [Tuple(number, 0.0, 0, payload) for number, payload in enumerate(payloads)]
    return Result(delivered={"out": items}, counts={"out": StepCount(len(items), len(items))})


def written(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "run-000000003-00001.parquet").to_pylist()
    return rows


def test_parquet_has_all_columns_and_the_id(tmp_path: Path) -> None:
    result = delivered({"a": 1}, {"a": 2.5, "b": "x"})
    assert Ends((Sink("out", str(tmp_path)),)).take(result, TASK) == []
    assert written(tmp_path) == [{"a": 1.0, "b": None, "penstock_id": 0}, {"a": 2.5, "b": "x", "penstock_id": 1}]
    assert [path.name for path in tmp_path.iterdir()] == ["run-000000003-00001.parquet"]


def test_a_task_that_is_run_again_replaces_its_file(tmp_path: Path) -> None:
    ends = Ends((Sink("out", str(tmp_path)),))
    ends.take(delivered({"a": 1}, {"a": 2}), TASK)
    ends.take(delivered({"a": 3}), TASK)
    assert written(tmp_path) == [{"a": 3, "penstock_id": 0}]
    ends.take(delivered(), TASK)
    assert list(tmp_path.iterdir()) == []


def test_a_declared_schema_decides(tmp_path: Path) -> None:
    sink = Sink("out", str(tmp_path), schema=pa.schema([("a", pa.int32()), ("b", pa.string())]))
    Ends((sink,)).take(delivered({"a": 1, "more": 5}), TASK)
    table = pq.read_table(tmp_path)
    assert table.schema.names == ["a", "b", "penstock_id"]
    assert table.schema.field("a").type == pa.int32()


@pytest.mark.parametrize("schema", [pa.schema([("a", pa.int64())]), None])
def test_what_does_not_fit_becomes_a_dead_letter_of_the_sink(tmp_path: Path, schema: pa.Schema | None) -> None:
    result = delivered({"a": 1}, {"a": "two"}, {"a": 3})
    Ends((Sink("out", str(tmp_path), schema=schema),)).take(result, TASK)
    assert [row["a"] for row in written(tmp_path)] == [1, 3]
    assert [item.id for item in result.delivered["out"]] == [0, 2]
    assert [(letter.operator, letter.tuple.id) for letter in result.dead] == [("out", 1)]
    assert (result.counts["out"].sent, result.counts["out"].dead) == (2, 1)


def test_dead_letters_as_json_lines(tmp_path: Path) -> None:
    odd: dict[Any, Any] = {(1, 2): 3}
    letters = [
        DeadLetter("x", Tuple(7, 0.0, 0, {"v": {1, 2}}), "ValueError: no"),
        DeadLetter("y", Tuple(8, 0.0, 0, odd), "bad"),
    ]
    Ends(dead_letters=str(tmp_path)).take(Result(dead=letters), TASK)
    rows = [json.loads(line) for line in (tmp_path / "run-000000003-00001.jsonl").read_text().splitlines()]
    assert rows[0] == {"operator": "x", "id": 7, "payload": {"v": "{1, 2}"}, "error": "ValueError: no"}
    assert rows[1]["payload"] == "{(1, 2): 3}"


def test_the_console_shows_few_of_a_task_and_few_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    result = delivered(*({"a": number} for number in range(100)))
    shown = Ends((Sink("out", console=True),)).take(result, TASK)
    assert shown == [("out", '{"a": 0}'), ("out", '{"a": 1}'), ("out", '{"a": 2}')]
    printed: list[str] = []
    sample = Sample(lambda _, text: printed.append(text))
    for _ in range(10):
        sample.take(shown)
    assert len(printed) == 5
    monkeypatch.setattr("penstock.clock.Stopwatch.seconds", lambda _: 1.0)
    sample.take(shown)
    assert len(printed) == 8


def test_only_files_of_committed_batches_stay(tmp_path: Path) -> None:
    names = (
        "run-000000001-00000.parquet",
        "run-000000002-00000.parquet",
        ".run-000000001-00001-x.parquet",
        "other-1.parquet",
    )
    for name in names:
        (tmp_path / name).touch()
    Ends((Sink("out", str(tmp_path)),)).settle("run", [0, 1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other-1.parquet", "run-000000001-00000.parquet"]


def test_the_schema_is_that_of_the_operator_before_the_sink(tmp_path: Path) -> None:
    built = (
        penstock.pipeline("p")
        .source("s")
        .then("a")
        .sink("x", parquet=str(tmp_path))
        .then("b", reads="s")
        .sink("y", reads=["a", "b"], parquet=str(tmp_path))
        .sink("z", reads="a")
        .build()
    )
    logic = {"a": Logic(dict, schema="n bigint"), "b": Logic(dict)}
    read = pa.schema([("n", pa.int64())])
    ends = ends_of(built, logic, None, {"n bigint": read}.__getitem__)
    # of two senders that do not say the same, nothing is taken; z only counts
    assert [(sink.name, sink.schema) for sink in ends.sinks] == [("x", read), ("y", None)]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInputError, match="file/out: cannot be written"):
        Ends((Sink("out", str(tmp_path / "file" / "out")),)).make_folders()


def test_what_a_killed_task_left_half_written_goes(tmp_path: Path) -> None:
    for name in ("run-a-000000001-00000.parquet", ".run-a-000000002-00000-x.parquet", ".other-1.parquet"):
        (tmp_path / name).touch()
    Ends((Sink("out", str(tmp_path)),)).sweep("run")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other-1.parquet", "run-a-000000001-00000.parquet"]
