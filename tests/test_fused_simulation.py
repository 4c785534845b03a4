"""Fused runs in simulated time: batches one after the other, as Spark makes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.pipeline import Gain
from penstock.modelling.model import MeasuredOn, Model, Point
from penstock.planning.prediction.fused import FusedSetup
from penstock.report.report import Audit, summarise
from penstock.simulation.fused_run import FusedScenario, simulate_fused

OVERHEAD = 0.5
# measured with batches of 1 s of work: a tuple takes 1/10 s * 1 / (1 + 0.5) = 1/15 s without the overhead
MODEL = Model(
    "m",
    (Point(threads=1, rate=10, cpu=0.6, memory=0.1),),
    MeasuredOn(batch_seconds=1.0, slot_memory_mb=1000, base_memory_mb=50),
)
EACH = 1 / 15


def setup(most_rows: int = 20, slots: int = 1, cores: int | None = None) -> FusedSetup:
    return FusedSetup(
        gains={"a": Gain(1.0, 0.0)},
        demands={"a": MODEL},
        threads={"a": 1},
        slots=slots,
        cores=cores or slots,
        most_rows=most_rows,
        overhead_seconds=OVERHEAD,
        batch_cpu_seconds=0.0,
    )


def scenario(due: list[float], seconds: float = 60.0, given: FusedSetup | None = None) -> FusedScenario:
    return FusedScenario(given or setup(), np.array(due), seconds, 0.1, {"a": 1.0})


def test_one_tuple_waits_for_the_next_look() -> None:
    (batch,) = simulate_fused(scenario([0.25]))
    # taken in at 0.3, the next multiple of 0.1; committed after the overhead and 1/15 s of work
    assert batch.latencies.tolist() == pytest.approx([0.05 + OVERHEAD + EACH])
    assert batch.finished == pytest.approx(0.3 + OVERHEAD + EACH)
    assert batch.operators["a"].received == 1
    assert batch.operators["a"].busy_seconds == pytest.approx(EACH)
    # C / I = 0.6 / 10 s of CPU for a tuple
    assert batch.slots[0].cpu_seconds == pytest.approx(0.06)


def test_what_waits_is_taken_in_together_and_bounded() -> None:
    # 3 at once; the second batch begins when the first is done, at 0.1 + 0.5 + 3/15 = 0.8
    first, second, third = simulate_fused(scenario([0.05] * 3 + [0.5] * 25))
    assert [batch.tuples for batch in (first, second, third)] == [3, 20, 5]
    assert first.finished == pytest.approx(0.8)
    assert second.backlog == 5
    assert second.finished == pytest.approx(0.8 + 0.5 + 20 / 15)


def test_an_overload_does_what_the_formula_predicts() -> None:
    given = setup()
    batches = simulate_fused(scenario(np.arange(0, 60, 0.01).tolist(), given=given))
    report = summarise(batches, 100.0, 10.0, Audit(0, 0, 0, 0, 0))
    # 20 tuples every 0.5 + 20/15 s
    assert report.sustained_rate == pytest.approx(20 / (0.5 + 20 / 15))
    assert report.sustained_rate == pytest.approx(given.rate())
    assert not report.stable


def test_slots_share_a_batch_and_the_cores() -> None:
    alone = setup(most_rows=20, slots=2)
    # each slot gets 10: 0.5 + 10/15 s
    assert alone.batch_seconds(20) == pytest.approx(0.5 + 10 / 15)
    # 19 are shared 10 to 9, and the longer part counts
    assert alone.batch_seconds(19) == alone.batch_seconds(20)
    # 20 tuples of 0.06 s of CPU take one core 1.2 s, which is more, beside the 0.5 s of any batch
    assert setup(most_rows=20, slots=2, cores=1).batch_seconds(20) == pytest.approx(0.5 + 1.2)


def test_a_round_that_is_not_full_takes_as_long_as_its_threads_do() -> None:
    # 4 threads do 20 tuples/s and 2 do 16: a full round takes 4/20 s, one of two tuples 2/16; no engine in the trials
    model = Model("m", (Point(threads=2, rate=16, cpu=0, memory=0), Point(threads=4, rate=20, cpu=0, memory=0)))
    given = FusedSetup({"a": Gain(1.0, 0.0)}, {"a": model}, {"a": 4}, 1, 1, 8, 0.0, 0.0)
    assert given.batch_seconds(8) == pytest.approx(2 * 4 / 20)
    assert given.batch_seconds(6) == pytest.approx(4 / 20 + 2 / 16)
    assert given.batch_seconds(2) == pytest.approx(2 / 16)


@given(
    st.lists(st.floats(0, 30), min_size=1, max_size=200).map(sorted),
    st.integers(1, 30),
    st.integers(1, 3),
)
def test_every_tuple_is_in_one_batch_and_batches_do_not_overlap(due: list[float], rows: int, slots: int) -> None:
    given = setup(most_rows=rows, slots=slots)
    batches = simulate_fused(scenario(due, seconds=1e6, given=given))
    assert sum(batch.tuples for batch in batches) == len(due)
    shortest = OVERHEAD + EACH
    before = 0.0
    for batch in batches:
        assert 1 <= batch.tuples <= rows
        assert batch.latencies.min() >= shortest - 1e-9
        assert batch.finished - given.batch_seconds(batch.tuples) >= before - 1e-9
        before = batch.finished
