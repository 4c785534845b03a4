"""What operators get in their pipeline, kept for trials of them alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import BadInputError, RunFailedError
from penstock.dataflow.logic import Logic, OnError, Per
from penstock.dataflow.pipeline import Pipeline
from penstock.inputs.finders import find_pipeline, logic_of
from penstock.modelling.fingerprint import fingerprint
from penstock.modelling.model import MeasuredOn
from penstock.profiling.profiler import Profile, profile_settings
from penstock.profiling.replay import LEAST_ROWS, Replay, ReplayFiles, replayed_bytes
from penstock.profiling.samples import MORE_SAMPLES, OperatorSample, SampledFlow, Taken, sample, take_samples, up_to
from penstock.profiling.subject import subject_of
from penstock.report.listener import Listener
from penstock.runtime.steps import Read, Step
from penstock.spark.internals.plans import struct_of_arrow
from penstock.spark.region_function import DUE_COLUMN, ID_COLUMN

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


def numbers(count: int) -> dict[int, pa.Table]:
    ids = np.arange(count)
    return {-1: pa.table({ID_COLUMN: ids, DUE_COLUMN: ids / 10, "value": ids})}


def chain(*codes: tuple[str, Logic]) -> tuple[Step, ...]:
    return tuple(Step(name, code, reads=(Read(place - 1),)) for place, (name, code) in enumerate(codes))


def shop_steps() -> tuple[Step, ...]:
    return chain(("orders", Logic(order)), ("check", Logic(check)), ("split", Logic(split)), ("price", Logic(same)))


def test_every_operator_gets_what_those_before_it_send() -> None:
    found = sample(shop_steps(), numbers(4))
    assert found["orders"].rows.to_pylist() == [{"value": n} for n in range(4)]
    orders = found["check"].rows.sort_by("order").to_pylist()
    assert orders == [{"order": n, "lines": ["a", "b"]} for n in range(4)]
    # odd orders are filtered
    assert sorted(found["split"].rows["order"].to_pylist()) == [0, 2]
    # two lines each; `value` is still the number of the order, and nothing between had one
    lines = sorted((row["value"], row["line"]) for row in found["price"].rows.to_pylist())
    assert lines == [(0, "a"), (0, "b"), (2, "a"), (2, "b")]
    assert {name: one.numbered for name, one in found.items()} == {
        "orders": True,
        "check": False,
        "split": False,
        "price": True,
    }
    # all come through, every second one, two lines of each
    flows = [found[name].flow for name in ("orders", "check", "split")]
    assert flows == [SampledFlow(4, 1.0), SampledFlow(4, 0.5), SampledFlow(2, 2.0)]
    # what each sends was seen
    assert found["check"].sends is not None
    assert found["check"].sends.names == ["order", "lines", "checked"]


def test_code_that_stops_its_pipeline_ends_the_sample() -> None:
    def picky(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == 40:
            raise ValueError("forty")
        return order(row)

    schema = "order bigint, lines array<string>"
    sends = pa.schema([("order", pa.int64()), ("lines", pa.list_(pa.string()))])
    # all of the first 32 that go in at once; of the 32 with the one that stops, those that other threads had done
    # by then
    for on_error, fewest in ((OnError.STOP, 32), (OnError.DEAD_LETTER, 63)):
        first = Step("orders", Logic(picky, schema=schema, on_error=on_error), schema=sends)
        then = Step("check", Logic(same), reads=(Read(0),), schema=sends)
        orders = set(sample((first, then), numbers(64))["check"].rows["order"].to_pylist())
        assert fewest <= len(orders) <= 63
        assert set(range(32)) <= orders <= set(range(64)) - {40}


def test_code_through_which_nothing_comes_must_say_what_it_sends() -> None:
    def never(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(f"not {row['value']}")

    with pytest.raises(
        BadInputError, match=r"operator 'a': no sample tuple came through it: ValueError: not 0.*schema="
    ):
        sample(chain(("a", Logic(never))), numbers(8))


def test_few_tuples_are_enough_to_see_columns_where_they_come_through() -> None:
    def rare(row: dict[str, Any]) -> dict[str, Any] | None:
        return {"late": row["value"]} if row["value"] > 50 else None

    found = sample(chain(("rare", Logic(rare)), ("next", Logic(same))), numbers(64))
    assert sorted(found["next"].rows["late"].to_pylist()) == list(range(51, 64))


def shop(*, first: Logic | None = None, last: Logic | None = None) -> Pipeline:
    built = penstock.pipeline("shop").source("orders", logic=first or Logic(order))
    return (
        built.then("check", logic=Logic(check))
        .then("split", logic=Logic(split))
        .then("price", logic=last or Logic(same))
        .sink("out")
        .build()
    )


def test_nothing_runs_that_is_not_needed() -> None:
    needed = up_to(shop(), {"check"})
    assert list(needed.operators)[:2] == ["orders", "check"]
    # a sink in place of all that is behind
    assert len(needed.operators) == 3
    assert [(stream.sender, stream.receiver) for stream in needed.streams][:1] == [("orders", "check")]


def test_a_sample_is_repeated_and_numbers_go_on() -> None:
    replay = Replay(OperatorSample(pa.table({"value": [0, 1, 2], "a": ["x", "y", "z"]}), numbered=True))
    # 3 rows are repeated to at least LEAST_ROWS; a cut in the middle of that is two pieces
    size = 3 * -(-LEAST_ROWS // 3)
    pieces = list(replay.rows(size - 2, 4))
    assert [piece.num_rows for piece in pieces] == [2, 2]
    rows = [row for piece in pieces for row in piece.to_pylist()]
    assert [row["value"] for row in rows] == [size - 2, size - 1, size, size + 1]
    assert [row["a"] for row in rows] == ["y", "z", "x", "y"]
    plain = Replay(OperatorSample(pa.table({"value": [7, 8]})))
    assert [row["value"] for piece in plain.rows(1, 3) for row in piece.to_pylist()] == [8, 7, 8]


def test_wide_rows_are_not_repeated_beyond_some_megabytes() -> None:
    def held(rows: int, width: int) -> tuple[int, int]:
        given = OperatorSample(pa.table({"body": [b"x" * width] * rows}))
        pieces = list(Replay(given).rows(0, 70_000))
        assert sum(piece.num_rows for piece in pieces) == 70_000
        return max(piece.num_rows for piece in pieces), replayed_bytes(given)

    assert held(256, 4)[0] == LEAST_ROWS
    # 2.56 MB: six times, not 256 times; the rows of a sample that is larger are there once
    rows, size = held(256, 10_000)
    assert rows == 6 * 256
    assert 15e6 < size < 16 * 2**20
    assert held(40, 1_000_000)[0] == 40


def doubled(frame: Any) -> Any:
    return frame.selectExpr("order * 2 AS order")


def test_samples_are_taken_in_a_worker_and_through_what_is_sparks_own(session: Any, tmp_path: Path) -> None:
    rows = [{"order": n, "lines": ["x"]} for n in range(10)]
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"""
name: from-files
operators:
  orders: {{kind: source, files: "{tmp_path}/*.jsonl"}}
  check: {{model: check}}
  twice: {{model: twice}}
  after: {{model: after}}
  sink: {{kind: sink}}
streams:
  - {{from: orders, to: check}}
  - {{from: check, to: twice}}
  - {{from: twice, to: after}}
  - {{from: after, to: sink}}
"""
    (tmp_path / "p.yaml").write_text(text)
    pipeline = find_pipeline(tmp_path / "p.yaml")
    code = {"check": Logic(check), "twice": Logic(doubled, Per.DATAFRAME), "after": Logic(same)}
    taken = take_samples(session, pipeline, code, {"check", "twice", "after"}, {})
    # the file holds no more than ten; Spark sorts columns by name
    assert sorted(taken.code["check"].rows["order"].to_pylist()) == list(range(10))
    (entering,) = taken.sparks_own["twice"].inputs
    assert sorted(entering.rows["order"].to_pylist()) == [0, 2, 4, 6, 8]
    # behind Spark's own operator: what that made
    assert sorted(taken.code["after"].rows["order"].to_pylist()) == [0, 4, 8, 12, 16]

    def cannot_open() -> None:
        raise OSError("no such server")

    broken = shop(first=Logic(lambda row, _: row, open=cannot_open))
    with pytest.raises(RunFailedError, match=r"no tuple came through pipeline 'shop': .*no such server"):
        take_samples(session, broken, logic_of(broken), {"check"}, {})


@pytest.mark.long("windows take their time")
def test_an_operator_behind_windows_gets_their_watermark(session: Any, tmp_path: Path) -> None:
    """Ranks of counts per window: in a trial only the watermark of the operator before tells that one is over."""
    pipeline = find_pipeline("twitter-sentiment")
    taken = take_samples(session, pipeline, logic_of(pipeline), {"count", "rank", "rank-all"}, {})
    own = taken.sparks_own
    assert set(own) == {"count", "rank", "rank-all"}, {name: each.rows.num_rows for name, each in taken.code.items()}
    for name in ("rank", "rank-all"):
        files = ReplayFiles(session, own[name].inputs[0], tmp_path / name)
        for _ in range(3):
            files.write(40)
        schema = struct_of_arrow(own[name].inputs[0].rows.schema)
        stream = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(files.pattern)
        table = name.replace("-", "_")
        query = own[name].apply(stream).writeStream.format("memory").queryName(table).outputMode(own[name].mode)
        query.option("checkpointLocation", str(tmp_path / f"of-{name}")).trigger(
            availableNow=True
        ).start().awaitTermination(90)
        assert session.table(table).count() > 0
        session.catalog.dropTempView(table)


def test_which_operators_need_a_sample() -> None:
    assert set(subject_of(shop(), None).sampled(["shop/orders", "shop/check"])) == {"shop/orders", "shop/check"}
    # reference operators need nothing but a number
    linear = subject_of("linear", None)
    assert linear.sampled(linear.code) == {}
    assert linear.models_run_for(["pi"]) == {"pi"}
    # with all others known it is run as a whole
    others = set(linear.code) - {"pi"}
    assert linear.models_run_for(["pi"], others) == {"pi", *others}
    # a tuple for `b` needs the blob before it
    mixed = penstock.pipeline("p").source("s").then("blob", model="azure_blob").then("b", logic=Logic(same)).sink("o")
    assert subject_of(mixed.build(), ["b"]).models_run_for(["p/b"]) == {"azure_blob", "b"}


def rare(row: dict[str, Any]) -> dict[str, Any] | None:
    return row if row["value"] == 1000 else None


def test_more_are_sampled_where_a_filter_lets_few_through(session: Any) -> None:
    pipeline = penstock.pipeline("p").source("s").then("rare", logic=Logic(rare, schema="value long"))
    built = pipeline.then("after", logic=Logic(same, schema="value long")).sink("o").build()
    taken = take_samples(session, built, logic_of(built), {"after"}, {})
    assert taken.code["after"].rows.to_pylist() == [{"value": 1000}]
    assert taken.code["rare"].flow == SampledFlow(MORE_SAMPLES, 1 / MORE_SAMPLES)


def test_an_operator_to_which_nothing_comes_is_left_out_and_named(tmp_path: Path) -> None:
    said: list[str] = []

    class Ear(Listener):
        def on_message(self, text: str) -> None:
            said.append(text)

    spark: Any = None  # nothing is left to measure
    built = shop(last=Logic(lambda frame: frame, Per.DATAFRAME))
    subject = subject_of(built, ["split", "price"])
    profile = Profile(tmp_path / "m.json", profile_settings(), MeasuredOn(), {}, [], Ear())
    profile._measure_operators(spark, subject, subject.code, Taken(), {})
    assert [text.partition(":")[0] for text in said] == [
        "no sample tuple came to shop/split",
        "no sample tuple came to shop/price",
    ]
    assert not profile.models


def test_what_an_aggregate_takes_is_measured_like_other_operators_of_sparks() -> None:
    aggregate = {"key": "k", "outputs": {"n": "count"}, "fields": "k string", "window_seconds": 2}
    pipeline = penstock.pipeline("p").source("s").then("a", logic=Logic(same)).then("sum", aggregate=aggregate)
    subject = subject_of(pipeline.sink("o").build(), None)
    assert {model: code.per for model, code in subject.code.items()} == {"p/a": Per.ROW, "p/sum": Per.DATAFRAME}
    assert subject.sampled(["p/sum"]) == {"p/sum": "sum"}
    # a plan, which knows what is declared and nothing else, finds it unchanged
    assert subject.fingerprints(None, {})["p/sum"] == fingerprint(subject.pipeline.operators["sum"])
