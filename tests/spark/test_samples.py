"""What operators get in their pipeline, kept for trials of them alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

import penstock
from penstock.api import find_pipeline
from penstock.dataflow.logic import Logic, OnError
from penstock.dataflow.pipeline import Pipeline
from penstock.measuring import subject_of
from penstock.running import logic_of
from penstock.spark.query import RunFailedError
from penstock.spark.samples import MOST_TUPLES, Payload, repeated, sample, sampling_steps, take_samples

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # pyspark's own


def order(row: dict[str, Any]) -> dict[str, Any]:
    return {"order": row["value"], "lines": ["a", "b"]}


def check(row: dict[str, Any]) -> dict[str, Any] | None:
    return None if row["order"] % 2 else {**row, "checked": True}


def split(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for line in row["lines"]:
        yield {"line": line, "value": row["order"]}


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def shop(*, first: Logic | None = None, last: Logic | None = None) -> Pipeline:
    built = penstock.pipeline("shop").source("orders", logic=first or Logic(order))
    return (
        built.then("check", logic=Logic(check))
        .then("split", logic=Logic(split))
        .then("price", logic=last or Logic(same))
        .sink("out")
        .build()
    )


def sampled(pipeline: Pipeline, *wanted: str, most: int = 64) -> dict[str, list[Payload]]:
    return sample(sampling_steps(pipeline, logic_of(pipeline), set(wanted)), most)


def test_every_operator_gets_what_those_before_it_send() -> None:
    found = sampled(shop(), "check", "split", "price", most=4)
    assert [one.fields for one in found["check"]] == [{"order": n, "lines": ["a", "b"]} for n in range(4)]
    # odd orders are filtered
    assert [one.fields["order"] for one in found["split"]] == [0, 2]
    assert all(one.fields["checked"] for one in found["split"])
    # two lines each; `value` is still the number of the order, and nothing else had one
    assert [(one.fields["line"], one.fields["value"]) for one in found["price"]] == [
        ("a", 0),
        ("b", 0),
        ("a", 2),
        ("b", 2),
    ]
    assert [one.numbered for one in found["price"]] == [True] * 4
    assert not any(one.numbered for one in found["check"])


def test_nothing_runs_that_is_not_needed() -> None:
    def never(row: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError(f"called for {row}")

    pipeline = shop(last=Logic(never, on_error=OnError.STOP))
    steps = sampling_steps(pipeline, logic_of(pipeline), {"check", "split"})
    assert "code of price" not in {step.operator for step in steps}
    assert set(sample(steps, 8)) == {"check", "split"}


def test_an_operator_that_nothing_comes_to_has_no_sample() -> None:
    assert set(sampled(shop(first=Logic(lambda row: {"order": 1, **row})), "check", "split")) == {"check"}


def test_a_sample_is_what_came_before_code_changed_it() -> None:
    def takes_out(row: dict[str, Any]) -> dict[str, Any]:
        return {"line": row.pop("line")}

    assert all("line" in one.fields for one in sampled(shop(last=Logic(takes_out)), "price", "out")["price"])


def test_nothing_comes_out_of_an_aggregation() -> None:
    counting = {"key": "word", "outputs": {"count": "count"}, "fields": "word string"}
    pipeline = (
        penstock.pipeline("words")
        .source("s")
        .then("before", logic=Logic(same))
        .then("count", aggregate=counting)
        .then("after", logic=Logic(same))
        .sink("o")
        .build()
    )
    assert set(sampled(pipeline, "before", "after")) == {"before"}


def test_code_that_stops_its_pipeline_ends_the_sample() -> None:
    def picky(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == 40:
            raise ValueError("forty")
        return order(row)

    found = sampled(shop(first=Logic(picky, on_error=OnError.STOP)), "check")
    assert len(found["check"]) == 32
    # with dead letters all but that one
    assert len(sampled(shop(first=Logic(picky)), "check")["check"]) == 63


def test_what_cannot_be_kept_is_left_out() -> None:
    def mixed(row: dict[str, Any]) -> dict[str, Any]:
        return {"order": row["value"], "lines": threading.Lock() if row["value"] % 2 else []}

    assert len(sampled(shop(first=Logic(mixed)), "check", most=8)["check"]) == 4


def test_trials_repeat_a_sample_with_new_numbers() -> None:
    fields = repeated([Payload({"value": 0, "a": 1}, numbered=True), Payload({"b": 2}, numbered=False)])
    assert [fields(n) for n in (0, 1, 2, 3)] == [{"value": 0, "a": 1}, {"b": 2}, {"value": 2, "a": 1}, {"b": 2}]
    # code may change what it gets
    fields(1).clear()
    assert fields(1) == {"b": 2}


def test_samples_are_taken_in_a_worker(session: Any, tmp_path: Path) -> None:
    rows = [{"order": n, "lines": ["x"]} for n in range(10)]
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"""
name: from-files
operators:
  orders: {{kind: source, files: "{tmp_path}/*.jsonl"}}
  check: {{model: check}}
  sink: {{kind: sink}}
streams: [{{from: orders, to: check}}, {{from: check, to: sink}}]
"""
    (tmp_path / "p.yaml").write_text(text)
    pipeline = find_pipeline(tmp_path / "p.yaml")
    found = take_samples(session, pipeline, {"check": Logic(check)}, ["check"], {})
    payloads: list[Payload] = cloudpickle.loads(found["check"])
    # the file holds no more than ten
    assert [one.fields for one in payloads] == rows
    assert len(payloads) < MOST_TUPLES


def cannot_open() -> None:
    raise OSError("no such server")


def test_what_cannot_be_opened_is_said(session: Any) -> None:
    pipeline = shop(first=Logic(lambda row, _: row, open=cannot_open))
    with pytest.raises(RunFailedError, match=r"no tuple came through pipeline 'shop': .*no such server"):
        take_samples(session, pipeline, logic_of(pipeline), ["check"], {})


def test_which_operators_need_a_sample() -> None:
    # the source has code; its own code gets numbers
    assert set(subject_of(shop(), None).sampled(["orders", "check", "price"])) == {"check", "price"}
    # reference operators need nothing but a number, and neither does what stands behind a plain source
    linear = subject_of("linear", None)
    assert linear.sampled(linear.code) == {}
    assert linear.models_run_for(["pi"]) == {"pi"}
    behind = (
        penstock.pipeline("p").source("s").then("a", logic=Logic(same)).then("b", logic=Logic(same)).sink("o").build()
    )
    subject = subject_of(behind, None)
    assert subject.sampled(["a", "b"]) == {"b": "b"}
    # a tuple for `check` needs the blob before it
    mixed = penstock.pipeline("p").source("s").then("blob", model="azure_blob").then("b", logic=Logic(same)).sink("o")
    assert subject_of(mixed.build(), ["b"]).models_run_for(["b"]) == {"azure_blob", "b"}
