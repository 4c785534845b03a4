"""Where a pipeline is cut into regions of code, with Spark's own operators between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.dataflow.code import code_of
from penstock.dataflow.logic import Per
from penstock.dataflow.regions import LOAD_ENTRY, Region, cut, unaudited_by

if TYPE_CHECKING:
    from penstock.dataflow.builder import PipelineBuilder
    from penstock.dataflow.regions import Cut


def same(row: Any) -> Any:
    return row


def cut_of(builder: PipelineBuilder) -> Cut:
    pipeline = builder.build()
    code = {name: code_of(operator) for name, operator in pipeline.operators.items()}
    coded = {name for name, logic in code.items() if logic is not None}
    return cut(pipeline, coded, {n for n, logic in code.items() if logic is not None and logic.per is Per.DATAFRAME})


def test_a_chain_of_code_is_one_region_with_its_sink() -> None:
    found = cut_of(penstock.pipeline("p").source("s").then("a", logic=same).then("b", logic=same).sink("out"))
    assert found.regions == (Region(("a", "b", "out"), (LOAD_ENTRY,), ("out",)),)


def test_sparks_own_operators_cut() -> None:
    builder = penstock.pipeline("p").source("s", format="rate").then("a", logic=same)
    found = cut_of(builder.then("w", logic=same, per="dataframe").then("b", logic=same).sink("out"))
    assert found.regions == (Region(("a",), ("s",), ("a",)), Region(("b", "out"), ("w",), ("out",)))
    assert found.spark_operators == ("w",)


def test_no_path_leaves_a_region_and_comes_back() -> None:
    # a feeds b directly and by way of Spark's own w: b cannot be in a's region
    builder = penstock.pipeline("p").source("s", format="rate").then("a", logic=same)
    builder.then("w", logic=same, per="dataframe").then("b", reads=["w", "a"], logic=same).sink("out")
    found = cut_of(builder)
    assert found.regions == (Region(("a",), ("s",), ("a",)), Region(("b", "out"), ("w", "a"), ("out",)))


def test_a_sink_of_two_regions_stands_outside_unless_it_has_code() -> None:
    def make(**fields: Any) -> PipelineBuilder:
        builder = penstock.pipeline("p").source("x", format="rate").source("y", format="rate")
        builder.then("a", reads="x", logic=same).then("b", reads="y", logic=same)
        return builder.sink("out", reads=["a", "b"], **fields)

    assert cut_of(make()).regions == (Region(("a",), ("x",), ("a",)), Region(("b",), ("y",), ("b",)))
    assert cut_of(make(logic=same)).regions[2] == Region(("out",), ("a", "b"), ("out",))


def test_the_load_is_one_entry_however_many_read_it() -> None:
    builder = penstock.pipeline("p").source("x").source("y", logic=same)
    builder.then("a", reads="x", logic=same).then("b", reads="y", logic=same).sink("out", reads=["a", "b"])
    assert cut_of(builder).regions == (Region(("y", "a", "b", "out"), (LOAD_ENTRY,), ("out",)),)


def test_a_branch_to_a_sink_and_to_sparks_own_has_two_exits() -> None:
    builder = penstock.pipeline("p").source("s").then("a", logic=same).sink("raw")
    builder.then("w", reads="a", logic=same, per="dataframe").sink("out")
    assert cut_of(builder).regions == (Region(("a", "raw"), (LOAD_ENTRY,), ("a", "raw")),)


SPARKS = {"logic": same, "per": "dataframe"}
CODE = {"logic": same}


@pytest.mark.parametrize(
    ("source", "first", "left", "right", "divided"),
    [
        # all in one region, by number of the load
        ({}, CODE, CODE, CODE, set()),
        # without numbers: a batch that is run again for one of the sinks would be divided otherwise
        ({"format": "rate"}, CODE, CODE, CODE, {"first"}),
        # one way is Spark's own: it divides for both
        ({}, CODE, CODE, SPARKS, {"first"}),
        ({"format": "rate"}, CODE, CODE, SPARKS, {"first"}),
        ({"format": "rate"}, SPARKS, CODE, SPARKS, {"first"}),
        # two regions that read what Spark made
        ({"format": "rate"}, SPARKS, CODE, CODE, {"first"}),
    ],
)
def test_weighted_streams_are_divided_by_one_rule(
    source: dict[str, Any], first: dict[str, Any], left: dict[str, Any], right: dict[str, Any], divided: set[str]
) -> None:
    builder = penstock.pipeline("p").source("s", **source).then("first", **first)
    builder.then("left", reads="first", weight=0.5, **left).then("right", reads="first", weight=0.5, **right)
    made = cut_of(builder.sink("lefts", reads="left").sink("rights", reads="right"))
    assert made.divided == divided
    homes = [made.region_of(name) for name in ("first", "left", "right")]
    assert (len(set(homes)) == 1) is not bool(divided)


def test_rows_are_counted_to_divide_them_where_one_sink_gets_all() -> None:
    def make(**sinks: str) -> Cut:
        builder = penstock.pipeline("p").source("s", format="rate").then("first", logic=same)
        for way in ("left", "right"):
            builder.then(way, reads="first", weight=0.5, logic=same)
        builder.then("both", reads=["left", "right"], logic=same).then("own", logic=same, per="dataframe")
        for sink, sender in sinks.items():
            builder.sink(sink, reads=sender)
        return cut_of(builder)

    assert make(out="own").divided == frozenset()
    assert make(out="own", other="own").divided == {"first"}


def test_a_region_worked_out_twice_does_not_count_rows_to_divide_them() -> None:
    def make(**source: Any) -> Cut:
        builder = penstock.pipeline("p").source("s", **source).then("first", logic=same)
        for way in ("left", "right"):
            builder.then(way, reads="first", weight=0.5, logic=same)
            builder.then(f"{way}_own", reads=way, logic=same, per="dataframe")
        return cut_of(builder.sink("out", reads=["left_own", "right_own"]))

    assert make().divided == frozenset()
    counted = make(format="rate")
    assert counted.divided == {"first"}
    assert [region.operators for region in counted.regions] == [("first",), ("left",), ("right",)]


def test_a_sink_that_takes_a_part_beside_sparks_own_stands_outside() -> None:
    builder = penstock.pipeline("p").source("s").then("a", logic=same).sink("part", weight=0.5)
    builder.then("w", reads="a", weight=0.5, logic=same, per="dataframe").sink("out", reads="w")
    assert cut_of(builder).regions == (Region(("a",), (LOAD_ENTRY,), ("a",)),)


def test_tuples_that_only_spark_reads_are_not_told_apart() -> None:
    def first_reader(builder: PipelineBuilder) -> str | None:
        return unaudited_by(builder.build(), ["w"])

    behind = penstock.pipeline("p").source("s").then("w", logic=same, per="dataframe").then("a", logic=same)
    assert first_reader(behind.sink("out")) == "w"
    assert first_reader(penstock.pipeline("p").source("s").then("w", aggregate=COUNT).sink("out")) == "w"
    before = penstock.pipeline("p").source("s").then("a", logic=same).then("w", logic=same, per="dataframe")
    assert first_reader(before.sink("out")) is None
    # code beside it gets all of them, or only a part
    both = penstock.pipeline("p").source("s").then("w", logic=same, per="dataframe")
    assert first_reader(both.then("a", reads="s", logic=same).sink("out", reads=["w", "a"])) is None
    part = penstock.pipeline("p").source("s").then("w", logic=same, per="dataframe", weight=0.5)
    assert first_reader(part.then("a", reads="s", weight=0.5, logic=same).sink("out", reads=["w", "a"])) == "w"
    # the user's own source has no ids
    own = penstock.pipeline("p").source("s", format="rate").then("w", logic=same, per="dataframe")
    assert first_reader(own.sink("out")) is None


COUNT = {"key": "k", "outputs": {"n": "count"}, "fields": "k string"}
