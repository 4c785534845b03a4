"""Operators fused into one function, without Spark: what becomes of every tuple."""

from __future__ import annotations

import threading
from collections import ChainMap, OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row

from penstock.dataflow.logic import Logic, OnError, Per
from penstock.spark.calls import StoppedError
from penstock.spark.segment import Result, Segment, Step, rows_per_look
from penstock.spark.tuples import Tuple


def entering(count: int) -> list[Tuple]:
    return [Tuple(number, 0.0, 0, {"value": number}) for number in range(count)]


def alone(logic: Logic, count: int, threads: int = 1) -> Result:
    segment = Segment([Step("work", logic, threads, ((-1, 0),)), Step("out", None, 1, ((0, 0),), delivers=True)])
    try:
        return segment.process(entering(count))
    finally:
        segment.close()


def values(result: Result) -> list[Any]:
    return [item.payload["value"] for item in result.delivered["out"]]


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": 2 * row["value"]}


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_map_keeps_the_order_with_any_number_of_threads(threads: int) -> None:
    assert values(alone(Logic(double), 100, threads)) == [2 * number for number in range(100)]


def test_filter_and_flat_map() -> None:
    def code(row: dict[str, Any]) -> list[dict[str, Any]] | None:
        return None if row["value"] % 3 else [{"value": row["value"]}, {"value": -row["value"]}]

    result = alone(Logic(code), 10)
    # 0, 3, 6, 9 pass, each as two; the other six are filtered.
    assert values(result) == [0, 0, 3, -3, 6, -6, 9, -9]
    assert sorted(item.id for item in result.filtered) == [1, 2, 4, 5, 7, 8]
    assert len({(item.id, item.path) for item in result.delivered["out"]}) == 8


@pytest.mark.parametrize("threads", [1, 3])
def test_what_raises_becomes_a_dead_letter_and_the_others_go_on(threads: int) -> None:
    def code(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == 4:
            raise ValueError("four\nis not liked")
        return row

    result = alone(Logic(code), 6, threads)
    assert values(result) == [0, 1, 2, 3, 5]
    assert [(letter.tuple.id, letter.error) for letter in result.dead] == [(4, "ValueError: four")]
    assert result.counts["work"].dead == 1


def test_code_that_changes_its_tuple_does_not_change_it_for_another_branch() -> None:
    def marks(row: dict[str, Any]) -> dict[str, Any]:
        row["marked"] = True
        return row

    steps = [
        Step("first", Logic(marks), 1, ((-1, 1),)),
        Step("second", Logic(lambda row: {"seen": sorted(row)}), 1, ((-1, 2),)),
        Step("plain", None, 1, ((-1, 3),), delivers=True),
        Step("marked", None, 1, ((0, 0),), delivers=True),
        Step("seen", None, 1, ((1, 0),), delivers=True),
    ]
    segment = Segment(steps)
    result = segment.process(entering(1))
    segment.close()
    found = {name: [item.payload for item in items] for name, items in result.delivered.items()}
    assert found == {"plain": [{"value": 0}], "marked": [{"value": 0, "marked": True}], "seen": [{"seen": ["value"]}]}


def test_code_that_yields_is_a_flat_map_and_may_raise_on_the_way() -> None:
    def code(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for part in range(row["value"]):
            yield {"value": 10 // (3 - part)}

    result = alone(Logic(code), 5)
    # 1: 10 // 3; 2: 10 // 2 too; 3: 10 // 1 too; 4 divides by zero when it has yielded three already
    assert values(result) == [3, 3, 5, 3, 5, 10]
    assert [item.id for item in result.filtered] == [0]
    assert [(letter.tuple.id, letter.error.split(":")[0]) for letter in result.dead] == [(4, "ZeroDivisionError")]


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (5, "TypeError: expected a dict, None or several dicts, got int"),
        ("text", "TypeError: expected a dict, None or several dicts, got str"),
        ([{"value": 1}, 2], "TypeError: expected dicts, got one int among them"),
        (("value", 1), "TypeError: expected dicts, got one str among them"),
    ],
)
def test_what_is_no_tuple_becomes_a_dead_letter(made: object, error: str) -> None:
    result = alone(Logic(lambda _: made), 1)
    assert result.delivered.get("out", []) == []
    assert [letter.error for letter in result.dead] == [error]


@pytest.mark.parametrize("made", [OrderedDict(value=7), Row(value=7), [Row(value=7)], ChainMap({"value": 7})])
def test_other_mappings_and_rows_of_spark_do_for_a_dict(made: object) -> None:
    result = alone(Logic(lambda _: made), 1)
    assert [item.payload for item in result.delivered["out"]] == [{"value": 7}]
    assert type(result.delivered["out"][0].payload) is dict


def test_or_stops_the_pipeline_by_choice() -> None:
    def code(row: dict[str, Any]) -> dict[str, Any]:
        return {"value": 1 // row["value"]}

    with pytest.raises(StoppedError, match="operator 'work', tuple 0: ZeroDivisionError"):
        alone(Logic(code, on_error=OnError.STOP), 3)


def test_a_batch_call_that_raises_loses_only_the_tuples_that_offend() -> None:
    def code(frame: Any) -> Any:
        if (frame["value"] == 5).any():
            raise ValueError("five")
        return frame.assign(value=frame["value"] * 10)

    result = alone(Logic(code, per=Per.PANDAS), 8)
    assert values(result) == [0, 10, 20, 30, 40, 60, 70]
    assert [letter.tuple.id for letter in result.dead] == [5]


def test_pandas_code_may_filter_and_repeat_rows_by_their_index() -> None:
    def code(frame: Any) -> Any:
        return frame.loc[[0, 0, 2]]

    result = alone(Logic(code, per=Per.PANDAS), 3)
    assert values(result) == [0, 0, 2]
    assert [item.id for item in result.filtered] == [1]


def test_functions_written_for_map_in_pandas_fit_as_they_are() -> None:
    def code(frames: Any) -> Any:
        for frame in frames:
            yield frame[frame["value"] > 2]

    assert values(alone(Logic(code, per=Per.MAP_IN_PANDAS), 5)) == [3, 4]


def test_arrow_code() -> None:
    def code(table: Any) -> Any:
        import pyarrow.compute as pc

        return table.set_column(0, "value", pc.add(table["value"], 1))

    assert values(alone(Logic(code, per=Per.ARROW), 4, threads=2)) == [1, 2, 3, 4]


def test_every_thread_opens_once_and_all_are_closed() -> None:
    opened: list[object] = []
    closed: list[object] = []
    barrier = threading.Barrier(2, timeout=10)
    met = threading.Event()

    def make() -> object:
        handle = object()
        opened.append(handle)
        return handle

    def code(row: dict[str, Any], handle: object) -> dict[str, Any]:
        assert handle in opened
        if not met.is_set():
            barrier.wait()
        return row

    segment = Segment([Step("work", Logic(code, open=make, close=closed.append), 2, ((-1, 0),))])
    both = segment.process(entering(2))
    met.set()
    more = segment.process(entering(50))
    segment.close()
    assert (both.dead, more.dead) == ([], [])
    assert len(opened) == 2
    assert sorted(map(id, closed)) == sorted(map(id, opened))


def test_a_diamond_delivers_every_copy_on_a_path_of_its_own() -> None:
    same = Logic(lambda row: row)
    segment = Segment(
        [
            Step("a", same, 1, ((-1, 1),)),
            Step("b", same, 1, ((-1, 2),)),
            Step("join", same, 1, ((0, 3), (1, 4))),
            Step("out", None, 1, ((2, 0),), delivers=True),
        ]
    )
    result = segment.process(entering(3))
    assert [item.id for item in result.delivered["out"]] == [0, 1, 2, 0, 1, 2]
    assert len({(item.id, item.path) for item in result.delivered["out"]}) == 6
    assert result.counts["join"].received == 6


@pytest.mark.parametrize(
    ("rows", "seconds", "next_rows"),
    [(1, 0.001, 2), (8, 0.02, 8), (8, 0.05, 4), (1, 3.0, 1), (1024, 0.001, 1024)],
)
def test_rows_until_the_next_look_at_the_pace(rows: int, seconds: float, next_rows: int) -> None:
    # looks are about 20 ms apart
    assert rows_per_look(rows, seconds) == next_rows
