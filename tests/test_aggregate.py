"""Aggregations as they are declared: what fits together, and what is said about what does not."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.base.errors import BadInputError
from penstock.dataflow.aggregate import Aggregate
from penstock.dataflow.code import parse_pipeline, pipeline_document


def test_keys_fields_and_calls_are_read() -> None:
    made = Aggregate(
        key=("user", "country"),
        outputs={"n": "count", "spent": "sum(amount)"},
        fields="user string, country string, amount double",
        window_seconds=60.0,
        slide_seconds=10.0,
        emit="closed",
    )
    assert made.keys == ("user", "country")
    assert made.columns == {"user": "string", "country": "string", "amount": "double"}
    assert made.calls() == {"n": ("count", ()), "spent": ("sum", ("amount",))}


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("long", "bigint"),
        ("INTEGER", "int"),
        ("short", "smallint"),
        ("byte", "tinyint"),
        ("real", "float"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("decimal(10, 2)", "decimal(10,2)"),
        ("numeric(5)", "decimal(5,0)"),
        ("dec", "decimal(10,0)"),
    ],
)
def test_types_have_the_names_spark_gives_them(word: str, kind: str) -> None:
    made = Aggregate(key="word", outputs={"n": "sum(x)"}, fields=f"word string, x {word}, y double")
    assert made.columns == {"word": "string", "x": kind, "y": "double"}


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"outputs": {"n": "reflect('java.lang.Runtime')"}}, "outputs.n: expected a function of count, sum"),
        ({"outputs": {"n": "java_method(word)"}}, "outputs.n: expected a function of"),
        ({"outputs": {"n": "sum"}}, "sum needs a field"),
        ({"outputs": {"n": "sum(price)"}}, "'price' is not one of the fields"),
        ({"outputs": {"n": "count(word, word)"}}, "count takes at most 1 field"),
        ({"outputs": {"n": "ranking_3"}}, "ranking_3 needs a field"),
        ({"outputs": {"n": "ranking_0(word)"}}, "outputs.n: expected a function of"),
        ({"outputs": {"n": "ranking_3(word, n)"}, "fields": "word string, n int"}, "takes a whole number and a string"),
        ({"outputs": {"n": "ranking_3(n, word)"}, "fields": "word string, n double"}, "takes a whole number"),
        ({"outputs": {"n": "ranking_3(n)"}, "fields": "word string, n int"}, "or a string with rankings"),
        ({"outputs": {"word": "count"}}, "a key has that name"),
        ({"outputs": {}}, "at least one output"),
        ({"key": "letter"}, "key 'letter' is not one of the fields"),
        ({"fields": "word strnig"}, "expected 'NAME TYPE, ...'"),
        ({"fields": "word string; drop"}, "expected 'NAME TYPE, ...'"),
        ({"fields": "word decimal(39,2)"}, "expected 'NAME TYPE, ...' with a type of decimal(DIGITS,BEHIND), string"),
        ({"fields": "word decimal(3,4)"}, "found 'word decimal(3,4)'"),
        ({"fields": "word array<string>"}, "found 'word array<string>'"),
        ({"emit": "closed"}, "need window_seconds"),
        ({"window_seconds": 1.0, "slide_seconds": 2.0}, "at most window_seconds"),
        ({"key": ()}, "expected a key, a window, or both"),
    ],
)
def test_what_does_not_fit_is_named(fields: dict[str, Any], complaint: str) -> None:
    given = {"key": "word", "outputs": {"n": "count"}, "fields": "word string", **fields}
    with pytest.raises(BadInputError, match="pipeline 'p'") as caught:
        penstock.pipeline("p").source("s").then("a", aggregate=given)
    assert complaint in str(caught.value)


def test_an_aggregation_has_no_code_and_is_no_end() -> None:
    given = {"key": "word", "outputs": {"n": "count"}, "fields": "word string"}
    with pytest.raises(BadInputError, match="has an aggregate and code"):
        penstock.pipeline("p").source("s").then("a", aggregate=given, run="module:code")
    with pytest.raises(BadInputError, match="only operators aggregate"):
        penstock.pipeline("p").source("s").sink("a", aggregate=given)  # type: ignore[call-arg] # that is what is wrong


def test_it_survives_being_written_and_read() -> None:
    given = {"key": "word", "outputs": {"n": "count"}, "fields": "word string", "window_seconds": 5.0}
    made = penstock.pipeline("p").source("s").then("a", aggregate=given).sink("out").build()
    assert parse_pipeline(pipeline_document(made), "again") == made


def test_without_a_model_it_is_planned_as_one_thread_of_fixed_demand() -> None:
    plan = penstock.plan("word-count", rate=100)
    count = next(one for one in plan.allocation.operators if one.name == "count")
    assert count.threads == 1
    assert not count.is_end
