"""The formula of a fused run, set right by what the whole pipeline took."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import penstock
from penstock.dataflow.pipeline import Gain
from penstock.engines.fused.preparation import unmeasured_ends
from penstock.modelling.fingerprint import shape_of
from penstock.modelling.library import models_document, parse_models, rehearsals_of
from penstock.modelling.model import MeasuredOn, Model, Point, Rehearsal, RehearsedBatches
from penstock.planning.prediction.fused import FusedSetup, fused_setup, rows_of_batch
from penstock.planning.prediction.rehearsed import Correction, correction_by, correction_for, rehearsed_cpu_seconds


def batches(tuples: int, seconds: float, cpu_seconds: float = 0.0) -> RehearsedBatches:
    return RehearsedBatches(tuples=tuples, seconds=seconds, cpu_seconds=cpu_seconds)


def rehearsal(small: RehearsedBatches, large: RehearsedBatches, slots: int = 1) -> Rehearsal:
    return Rehearsal(pipeline="p", slots=slots, threads={"work": 1}, small=small, large=large)


def formula(tuples: int) -> float:
    return 0.1 + 0.001 * tuples


def test_what_spark_needs_for_a_tuple_is_added() -> None:
    # the formula says 0.2 and 1.1 s; 0.35 and 1.7 were seen: 1.35 s for 900 tuples where 0.9 were said, so 0.5 ms more
    # each, and 0.35 - 0.2 - 100 x 0.0005 = 0.1 s for any batch
    seen = correction_by(rehearsal(batches(100, 0.35), batches(1000, 1.7)), formula)
    assert (seen.factor, seen.batch_seconds, seen.tuple_seconds) == pytest.approx((1.0, 0.1, 0.0005))
    assert seen.applied(formula(1000), 1000, 1) == pytest.approx(1.7)
    # more threads make the code twice as fast, and Spark no faster
    assert seen.applied(0.1 + 0.5, 1000, 1) == pytest.approx(0.1 + 0.5 + 0.1 + 0.5)


def test_on_two_slots_a_tuple_took_a_slot_twice_as_long() -> None:
    seen = correction_by(rehearsal(batches(100, 0.35), batches(1000, 1.7), slots=2), formula)
    assert seen.tuple_seconds == pytest.approx(0.001)
    assert seen.applied(formula(1000), 1000, 2) == pytest.approx(1.7)


def test_a_whole_that_is_faster_than_its_parts_makes_them_so() -> None:
    # 0.45 s for 900 tuples where 0.9 were said
    seen = correction_by(rehearsal(batches(100, 0.2), batches(1000, 0.65)), formula)
    assert (seen.factor, seen.batch_seconds, seen.tuple_seconds) == pytest.approx((0.5, 0.1, 0.0))
    assert seen.applied(formula(550), 550, 1) == pytest.approx(0.425)


def test_batches_that_took_no_time_are_not_believed() -> None:
    seen = correction_by(rehearsal(batches(100, 0.5), batches(1000, 0.4)), formula)
    assert seen.factor == pytest.approx(0.05)
    assert seen.applied(1.0, 1, 1) >= 0.05


def test_between_slots_that_were_rehearsed() -> None:
    one, four = Correction(1.0, 0.1, 0.001, 50.0), Correction(0.7, 0.4, 0.004, 40.0)
    known = [(4, four), (1, one)]
    assert correction_for(1, known) == one
    assert correction_for(9, known) == four
    middle = correction_for(2, known)
    assert middle is not None
    assert (middle.factor, middle.batch_seconds, middle.tuple_seconds) == pytest.approx((0.9, 0.2, 0.002))
    assert middle.pace == 50.0
    assert correction_for(3, []) is None
    assert correction_for(3, [(2, one)]) == one


def test_slower_cores_need_longer_for_it() -> None:
    slower = Correction(0.9, 0.1, 0.002, 50.0).slowed(1.5)
    assert (slower.factor, slower.batch_seconds, slower.tuple_seconds) == pytest.approx((0.9, 0.15, 0.003))


def test_the_cpu_of_a_tuple_is_the_slope() -> None:
    # 1.9 s of CPU for 900 tuples more
    seen = rehearsal(batches(100, 0.2, 0.4), batches(1000, 1.0, 2.2))
    assert rehearsed_cpu_seconds(seen) == pytest.approx(0.002)


def test_small_batches_are_smaller() -> None:
    with pytest.raises(ValueError, match=r"small\.tuples"):
        rehearsal(batches(100, 0.2), batches(100, 0.3))


ON = MeasuredOn(cores=2, batch_seconds=1.0, batch_overhead_ms=100, batch_cpu_ms=0)
POINT = Point(threads=1, rate=1000.0, cpu=1.0, memory=0.0, operator_cpu=1.0, busy=1.0)
SEEN = rehearsal(batches(100, 0.35, 0.2), batches(1000, 1.7, 2.0))
PIPELINE = penstock.pipeline("p").source("in").then("work", logic=lambda row: row).sink("out").build()


def model(*rehearsals: Rehearsal, name: str = "p/work") -> Model:
    return Model(name, (POINT,), ON.model_copy(update={"rehearsals": rehearsals}))


def test_a_run_is_predicted_as_its_rehearsal_went() -> None:
    def setup(known: Model, slots: int = 1) -> FusedSetup:
        return fused_setup(PIPELINE, None, {"in": None, "work": known, "out": None}, slots, 1e9, 2)

    plain = setup(model())
    assert plain.batch_seconds(1000) == pytest.approx(1.1)
    seen = setup(model(SEEN))
    assert (seen.batch_seconds(100), seen.batch_seconds(1000)) == pytest.approx((0.35, 1.7))
    # 2 ms of CPU a tuple, of which its code has 1
    assert seen.sparks_cpu_seconds == pytest.approx(0.001)
    # batches hold two seconds of work: 1.5 ms each
    assert seen.most_rows == rows_of_batch(seen, 2.0) == 1333
    # what two slots need is not known: as much as one, each; four slots share two cores
    assert setup(model(SEEN), 2).batch_seconds(1000) == pytest.approx(0.1 + 0.1 + max(0.5, 1.0) + 0.25)
    assert setup(model(SEEN), 4).batch_seconds(1000) == pytest.approx(0.1 + 0.1 + 1.0 + 0.25)


def test_only_a_rehearsal_of_this_pipeline_as_it_is_counts() -> None:
    def known(first: Model, second: Model) -> int:
        built = penstock.pipeline("p").source("in").then("work", logic=lambda row: row)
        pipeline = built.then("more", logic=lambda row: row).sink("out").build()
        return len(rehearsals_of(pipeline, {"in": None, "work": first, "more": second, "out": None}))

    both = SEEN.model_copy(update={"threads": {"work": 1, "more": 2}})
    assert known(model(both), model(both, name="p/more")) == 1
    # one was measured anew since
    assert known(model(both), model(name="p/more")) == 0
    # the pipeline had one operator then
    assert known(model(SEEN), model(SEEN, name="p/more")) == 0
    other = both.model_copy(update={"pipeline": "q"})
    assert known(model(other), model(other, name="p/more")) == 0
    assert rehearsals_of(PIPELINE, {"in": None, "work": None, "out": None}) == []


def shop(weight: float = 1.0, selectivity: float = 1.0, **sink: Any) -> penstock.Pipeline:
    built = penstock.pipeline("p").source("in", format="json", options={"path": "there"}, schema="x long")
    return built.then("work", logic=lambda row: row, weight=weight).sink("out", selectivity=selectivity, **sink).build()


def test_a_rehearsal_of_other_streams_or_files_does_not_count() -> None:
    parquet: Any = {"format": "parquet", "options": {"path": "out"}}
    seen = SEEN.model_copy(update={"shape": shape_of(shop(**parquet))})

    def counts(pipeline: penstock.Pipeline) -> bool:
        return bool(rehearsals_of(pipeline, {"in": None, "work": model(seen), "out": None}))

    assert counts(shop(**parquet))
    # elsewhere, and saying what comes through, it is the same
    assert counts(shop(format="parquet", options={"path": "elsewhere"}))
    assert counts(shop(selectivity=0.5, **parquet))
    assert not counts(shop(weight=0.5, **parquet))
    assert not counts(shop())
    assert not counts(shop(format="csv", options={"path": "out"}))
    assert not counts(shop(format="parquet", options={"path": "out", "compression": "none"}))
    more_files = shop(**parquet).operators["in"].model_copy(update={"options": {"maxFilesPerTrigger": 8}})
    others = [operator for name, operator in shop(**parquet).operators.items() if name != "in"]
    assert not counts(penstock.Pipeline.of("p", [more_files, *others], shop().streams))
    # a sink that was not tried then is named again
    new_sink = shop(format="csv", options={"path": "out"})
    setup = fused_setup(new_sink, None, {"in": None, "work": model(seen), "out": None}, 1, 1e9, 2)
    notes = unmeasured_ends(new_sink, setup.demands, rehearsed=setup.correction is not None)
    assert any("sink 'out' needs to write is in no model" in note for note in notes)
    # one of before, which does not say, goes by its operators
    assert rehearsals_of(shop(), {"in": None, "work": model(SEEN), "out": None})


def test_the_order_of_a_pipeline_is_not_its_shape() -> None:
    def built(*names: str) -> penstock.Pipeline:
        pipeline = penstock.pipeline("p").source("in")
        for name in names:
            pipeline = pipeline.then(name, logic=lambda row: row, reads="in").sink(f"of-{name}", reads=name)
        return pipeline.build()

    assert shape_of(built("a", "b")) == shape_of(built("b", "a")) != shape_of(built("a", "c"))


def test_files_carry_rehearsals_and_older_ones_are_read() -> None:
    document = models_document([model(SEEN)])
    assert parse_models(document, "file") == [model(SEEN)]
    document["models"]["p/work"]["measured_on"]["passing_us"] = 1.5
    assert parse_models(document, "file") == [model(SEEN)]


def test_slots_alone_are_faster_than_slots_that_share_the_machine() -> None:
    gains = {"work": Gain(1.0, 0.0)}
    setup = FusedSetup(gains, {"work": model()}, {"work": 1}, 4, 2, 1000, 0.1, 0.0, correction=Correction())
    assert setup.rate() == pytest.approx(1000 / (0.1 + 0.5))
    assert setup.slots_rate() == pytest.approx(1000 / (0.1 + 0.25))
    at_half = replace(setup, correction=Correction(tuple_seconds=0.001)).at_pace(1.0)
    assert at_half.correction == Correction(tuple_seconds=0.001)


def test_a_fused_run_has_the_fewest_slots_that_keep_the_rate() -> None:
    plain, seen = (penstock.ModelLibrary.of([known]) for known in (model(), model(SEEN)))
    assert penstock.plan(PIPELINE, 900, models=plain).forecast.slots == 1
    # a batch of 2,666 tuples on two slots: 0.2 s, 2 ms of the two cores each, and 0.5 ms of a slot: 3.5325 s, so that
    # two slots do 754.7/s
    assert penstock.plan(PIPELINE, 500, models=seen).forecast.slots == 1
    assert penstock.plan(PIPELINE, 900, models=seen).forecast.slots == 3


def test_headroom_counts_run_fused_too() -> None:
    seen = penstock.ModelLibrary.of([model(SEEN)])
    # two slots do 754.7/s as above: enough for 640, but not for what that is to be a part of
    assert penstock.plan(PIPELINE, 640, models=seen).forecast.slots == 2
    assert penstock.plan(PIPELINE, 640, models=seen, utilisation=0.64).forecast.slots == 3


def test_a_plan_says_what_it_does_run_fused() -> None:
    plan = penstock.plan(PIPELINE, 500, models=penstock.ModelLibrary.of([model()]))
    assert plan.slots_used == 1
    # 0.1 s for any batch, 1 ms a tuple: 2,000 are two seconds of work. At 500/s a batch takes T = 0.1 + 0.001 x 500 T,
    # so 0.2 s, and a tuple waits for it for up to as long
    fused = plan.document()["prediction"]["fused"]
    assert fused["rate"] == pytest.approx(2000 / 2.1)
    assert fused["latency_ms"] == pytest.approx({"p50": 300.0, "p95": 390.0, "p99": 398.0})
    # batches a second apart: 500 tuples take 0.6 s
    slower = penstock.plan(PIPELINE, 500, models=penstock.ModelLibrary.of([model()]), batch_interval_ms=1000)
    assert slower.document()["prediction"]["fused"]["latency_ms"]["p50"] == pytest.approx(1100.0)


def test_a_plan_of_which_not_all_is_measured_says_nothing_of_running_fused() -> None:
    declared = penstock.pipeline("d").source("in").then("work", threads=1, cpu=10, memory_mb=10).sink("out").build()
    assert penstock.plan(declared, 10).document()["prediction"]["fused"] is None
