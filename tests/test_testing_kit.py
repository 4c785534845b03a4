"""`penstock.testing`: the public fakes and builders."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import testing
from penstock.testing.schema_words import schema_of_words

PAGE = Path(__file__).parents[1] / "docs" / "testing-your-pipeline.md"


def orders(**fields: Any) -> penstock.PipelineBuilder:
    p = penstock.pipeline("orders").source("events", format="json", schema="user string, amount double", **fields)

    @p.operator(reads="events", schema="user string, cents long")
    def cents(row: dict[str, Any]) -> dict[str, Any] | None:
        if row["amount"] < 0:
            raise ValueError("negative")
        return {"user": row["user"], "cents": round(row["amount"] * 100)} if row["amount"] else None

    return p.sink("store", reads="cents", format="json", options={"path": "out"})


def test_rows_go_through_filters_and_dead_letters() -> None:
    # 3.2 is 320 cents, 0 is filtered, -1 raises
    output = testing.run_rows(orders(), [{"user": name, "amount": x} for name, x in (("a", 3.2), ("b", 0), ("c", -1))])
    assert output.sinks == {"store": [{"user": "a", "cents": 320}]}
    assert [(dead.operator, dead.error) for dead in output.dead] == [("cents", "ValueError: negative")]
    assert '"c"' in output.dead[0].row


@pytest.mark.parametrize(
    ("per", "code"),
    [
        ("pandas", lambda frame: frame.assign(n=frame.n + 1)),
        ("map-in-pandas", lambda frames: (frame.assign(n=frame.n + 1) for frame in frames)),
        ("arrow", lambda table: table.set_column(0, "n", [[n + 1 for n in table["n"].to_pylist()]])),
        ("row", lambda row: {"n": row["n"] + 1}),
    ],
)
def test_every_kind_of_code_runs_with_and_without_a_schema(per: str, code: Any) -> None:
    for schema in ("n long", None):
        add = penstock.logic(per=per, schema=schema)(code)
        p = penstock.pipeline("p").source("numbers").then("add", logic=add).sink("out")
        assert testing.run_rows(p, [{"n": 1}, {"n": 41}]).sinks == {"out": [{"n": 2}, {"n": 42}]}


def test_several_sources_and_sinks_are_told_apart_by_name() -> None:
    p = penstock.pipeline("p").source("left").source("right")
    p.then("both", reads=["left", "right"], logic=lambda row: row, schema="n long")
    p.sink("first", reads="both").sink("second", reads="both")
    output = testing.run_rows(p, {"left": [{"n": 1}], "right": [{"n": 2}]})
    assert {name: sorted(row["n"] for row in rows) for name, rows in output.sinks.items()} == {
        "first": [1, 2],
        "second": [1, 2],
    }


@pytest.mark.parametrize(
    ("builder", "rows", "message"),
    [
        (
            penstock.pipeline("p").source("in").then("count", logic=lambda frame: frame, per="dataframe").sink("out"),
            [],
            "operator 'count' needs Spark",
        ),
        (orders(), {"event": []}, "rows: no source named 'event'; "),
        (penstock.pipeline("p").source("a").source("b").sink("out", reads=["a", "b"]), [], "by name: a, b"),
        (orders(), [{"user": "a", "amount": "much"}], "rows of 'events' do not fit its schema"),
    ],
)
def test_bad_input_is_one_line(builder: penstock.PipelineBuilder, rows: Any, message: str) -> None:
    with pytest.raises(penstock.BadInputError, match=re.escape(message)) as raised:
        testing.run_rows(builder, rows)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "types"),
    [
        ("a long, b string", ["int64", "string"]),
        (
            "`a b`: array<struct<x: int, y decimal(12,2)>> not null",
            ["list<element: struct<x: int32, y: decimal128(12, 2)>>"],
        ),
        ("t timestamp, m map<string, double>", ["timestamp[us, tz=UTC]", "map<string, double>"]),
    ],
)
def test_schemas_in_the_words_of_spark(words: str, types: list[str]) -> None:
    assert [str(field.type) for field in schema_of_words(words, "s")] == types


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("a lon", "unknown type 'lon'; did you mean 'long'?"),
        ("a", "it ends too early"),
        ("a array<int", "expected '>', found 'its end'"),
        ("a long; b long", "expected NAME TYPE, ..."),
        ("a long b", "expected 'its end', found 'b'"),
    ],
)
def test_a_wrong_schema_is_named(words: str, why: str) -> None:
    with pytest.raises(penstock.BadInputError, match=re.escape(f"s: schema '{words}': {why}")):
        schema_of_words(words, "s")


def test_a_flat_model_makes_plans_that_can_be_computed_by_hand() -> None:
    p = penstock.pipeline("p").source("in").then("work", model="work").sink("out").build()
    # 35 rows/s at 10 rows/s per slot are 3 full slots and a part of a fourth; source and sink need no slot here
    plan = penstock.plan(p, 35, models=testing.flat_models({"work": 10}), cluster=testing.cluster(2, slots=4))
    assert {one.name: one.threads for one in plan.allocation.operators}["work"] == 4
    assert {node.rack for node in testing.cluster(4, racks=2).nodes} == {"r1", "r2"}


def test_a_manual_clock_moves_only_when_it_is_moved() -> None:
    clock = testing.ManualClock(10.0)
    clock.advance(2.5)
    assert clock.now() == clock.time == 12.5


def test_every_public_name_is_documented() -> None:
    page = PAGE.read_text("utf-8")
    assert [name for name in dir(testing) if f"`{name}" not in page and f"testing.{name}" not in page] == []


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert blocks
    namespace: dict[str, Any] = {}
    for block in blocks:
        exec(block, namespace)  # noqa: S102 - the page is ours
    tests = [name for name in namespace if name.startswith("test_")]
    assert len(tests) >= 4
    for name in tests:
        namespace[name]()
