"""A keyed aggregation whose state moves: bundles die, and plans with other bundles take its groups over."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from local_processes import code_of, conductor, laid_out
from test_engine import A, B, C, launcher, turn_for, turn_until, wait

from penstock.dataflow.aggregate import Aggregate
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.engines.placed.bundle.keyed_segment import KeyedCode, KeyedSegment, sample_groups
from penstock.engines.placed.flow.audit import audit, ways_of
from penstock.engines.placed.flow.layout import KEY_GROUPS
from penstock.engines.placed.flow.states import FlowState
from penstock.engines.placed.launchers import LocalLauncher
from penstock.runtime.batch import Batch, Marks
from penstock.runtime.row_values import hash_rows

__all__ = ["launcher"]

WORDS = 37


def word(row: dict[str, Any]) -> dict[str, Any]:
    return {"word": f"w{row['value'] % WORDS}", "amount": float(row["value"])}


def counting() -> Pipeline:
    aggregate = Aggregate(
        key="word",
        outputs={"n": "count", "total": "sum(amount)", "most": "max(amount)"},
        fields="word string, amount double",
    )
    operators = [
        Operator(name="src", kind=Kind.SOURCE),
        Operator(name="split", logic=Logic(word)),
        Operator(name="count", aggregate=aggregate),
        Operator(name="out", kind=Kind.SINK),
    ]
    ways = (("src", "split"), ("split", "count"), ("count", "out"))
    return Pipeline.of("counting", operators, [Stream(sender=a, receiver=b) for a, b in ways])


def test_counts_are_exact_whoever_dies_and_whatever_plan_runs(tmp_path: Path, launcher: LocalLauncher) -> None:
    pipeline = counting()
    code = code_of(pipeline, tmp_path, split=pa.schema([("word", pa.string()), ("amount", pa.float64())]))
    one = laid_out(code, {"src": {A: 1}, "split": {A: 1}, "count": {B: 1}, "out": {C: 1}}, "one")
    three = laid_out(code, {"src": {A: 1}, "split": {A: 1}, "count": {A: 1, B: 1, C: 2}, "out": {C: 1}}, "three")
    run = conductor(tmp_path, one, 800.0, launcher)
    try:
        turn_until(run, lambda: run.run.state is FlowState.FLOWING)
        turn_for(run, 0.6)
        wait(run, run.change(three))
        turn_for(run, 0.6)
        generation = run.run.generation
        os.kill(launcher.processes["count@n1/1"].pid, signal.SIGKILL)
        turn_until(run, lambda: run.run.generation > generation and run.run.state is FlowState.FLOWING)
        turn_for(run, 0.6)
        wait(run, run.change(one))
        turn_for(run, 0.3)
        wait(run, run.drain(end=True))
    finally:
        run.close()
    offset = int(run.run.commit.offsets["src"])
    rows = ds.dataset(tmp_path / "out", format="parquet").to_table().to_pylist()
    last: dict[str, dict[str, Any]] = {}
    for row in rows:
        # a group is sent whenever it changed; its count only grows
        if row["word"] not in last or row["n"] > last[row["word"]]["n"]:
            last[row["word"]] = row
    for number in range(WORDS):
        values = range(number, offset, WORDS)
        found = last[f"w{number}"]
        assert (found["n"], found["total"], found["most"]) == (len(values), sum(values), max(values))
    seen = audit(run.ids, {"src": offset}, ways_of(pipeline, lambda _: 0), made_several=False)
    assert (seen.lost, seen.duplicated) == (0, 0)


def test_groups_of_every_plain_type_add_up_and_are_kept(tmp_path: Path) -> None:
    """As Spark has it: a sum of decimals is one, with ten digits more."""
    aggregate = Aggregate(
        key="price",
        outputs={"n": "count", "total": "sum(price)", "most": "max(at)", "small": "sum(few)", "top": "top_2(price)"},
        fields="price decimal(10,2), at timestamp_ntz, few smallint",
    )
    code = KeyedCode("o", aggregate)
    at = datetime(2030, 1, 2, 3, 4, 5)  # noqa: DTZ001 - a time without a zone is what is kept
    rows = [{"price": Decimal("1.50"), "at": at, "few": 3}, {"price": Decimal("1.50"), "at": at, "few": 4}]
    table = pa.Table.from_pylist(rows, schema=code.takes)
    made = sample_groups(code, table)
    price = Decimal("1.50")
    assert made.schema.field("total").type == pa.decimal128(20, 2)
    expected = {"price": price, "n": 2, "total": 2 * price, "most": at, "small": 7, "top": [price, price]}
    assert made.to_pylist() == [expected]
    # whatever number of digits the sender's column has, it is dealt to the same place
    others = table.set_column(0, "price", table["price"].cast(pa.decimal128(20, 5)))
    first, second = (hash_rows(given.to_batches()[0], ["price"]) for given in (table, others))
    assert list(first) == list(second)

    sent: list[Batch] = []
    segment = KeyedSegment(code, str(tmp_path), "s", {}, (0, KEY_GROUPS), lambda _, batch: sent.append(batch))
    marks = Marks(None, np.arange(2.0))
    segment.feed(Batch(table.to_batches()[0], marks))
    states = segment.snapshot(1).write()["o"]
    again = KeyedSegment(
        code,
        str(tmp_path),
        "s",
        {int(group): path for group, path in states.items()},
        (0, KEY_GROUPS),
        lambda _, batch: sent.append(batch),
    )
    again.feed(Batch(table.to_batches()[0], marks))
    again.flush()
    assert sent[-1].rows.to_pylist()[0]["total"] == 4 * price
