"""What a row of an aggregation costs in a placed run: the arithmetic, and what a plan makes of it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock
from adapters import chain, source
from penstock.control.deployment import costlier
from penstock.dataflow.aggregate import Aggregate
from penstock.dataflow.pipeline import Operator
from penstock.modelling.library import ModelLibrary
from penstock.modelling.model import MeasuredOn, Model, Point, as_placed, at_pace
from penstock.profiling.keyed_rows import FEW_ROWS, MANY_ROWS, keyed_seconds, row_seconds_at_peak

COUNTED = Aggregate(key="k", outputs={"n": "count"}, fields="k string")
PIPELINE = chain(source(), Operator(name="count", aggregate=COUNTED))


def measured(keyed_us: float | None) -> Model:
    on = MeasuredOn(keyed_us=keyed_us, slot_memory_mb=3584)
    return Model("count", (Point(threads=1, rate=100_000, cpu=1.0, memory=0.0, operator_cpu=1.0, pace=2.0),), on)


def test_a_batch_takes_a_whole_period_at_the_peak() -> None:
    # b = 1 ms, s = 10 us, P = 10 ms: 9 ms are left for rows, 900 of them in 10 ms, 1 / 90,000 s each
    batch, row = 0.001, 10e-6
    few, many = batch / FEW_ROWS + row, batch / MANY_ROWS + row
    assert row_seconds_at_peak(few, many, 0.01) == pytest.approx(1 / 90_000)
    # nothing for a batch
    assert row_seconds_at_peak(row, row, 0.01) == pytest.approx(row)


def test_rows_of_a_sample_are_aggregated() -> None:
    sample = pa.table({"k": [f"k{number % 7}" for number in range(50)], "more": list(range(50))})
    assert 0 < keyed_seconds(COUNTED, sample) < 1e-3


def test_a_placed_run_does_not_execute_aggregations_as_spark_does() -> None:
    # 20 us a row: 50,000 rows/s in a slot, where Spark does 100,000
    library = ModelLibrary.of([measured(20.0)])
    assert as_placed(measured(20.0)).peak_rate == pytest.approx(50_000)
    assert as_placed(measured(None)) == measured(None)
    plan = penstock.plan(PIPELINE, 80_000, models=library)
    assert plan.allocation.operator("count").threads == 2
    assert plan.predicted_rate == pytest.approx(100_000)
    assert plan.forecast.slots == 1
    assert plan.verdict["unmeasured"] == []


def test_slower_cores_and_dearer_rows_count_for_placed_runs_too() -> None:
    # measured at 2 pieces a second, on cores that do 1
    assert at_pace(measured(20.0), 1.0).measured_on.keyed_us == pytest.approx(40.0)
    dearer = costlier(ModelLibrary.of([measured(20.0)]), PIPELINE, {"count": 3.0})
    assert dearer.get("count").measured_on.keyed_us == pytest.approx(60.0)
