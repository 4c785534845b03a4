"""What is said about a run, and what is settled before one: without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import penstock
from penstock.api.runs import run
from penstock.base.errors import BadInputError
from penstock.cli.live import LiveListener
from penstock.cli.reports import print_report
from penstock.dataflow.load import Load, parse_load
from penstock.dataflow.pipeline import Pipeline
from penstock.engines.fused.preparation import check_ends, path_on_disk, prepare
from penstock.modelling.library import ModelLibrary
from penstock.modelling.model import MeasuredOn, Model, Point
from penstock.pictures.drawings import draw_run
from penstock.planning.files import write_plan
from penstock.planning.prediction.forecast import RunForecast
from penstock.report.figures import RecentBatches
from penstock.report.listener import Progress
from penstock.report.report import Audit, BatchObservation, OperatorObservation, SlotObservation, history, summarise
from penstock.report.result import PlacedResult, RunResult, TriedRate
from penstock.report.totals import disturbance
from penstock.runs.config import RunConfig

NOTHING_LOST = Audit(0, 0, 0, 0, 0)


def batch(finished: float, tuples: int = 100, latency: float = 0.5, backlog: int = 0) -> BatchObservation:
    return BatchObservation(
        finished,
        tuples,
        backlog,
        np.full(tuples, latency),
        {"a": OperatorObservation(tuples, tuples, 0, 0, 0.4)},
        [SlotObservation(0, 0.2, 0.5, 100.0), SlotObservation(1, 0.1, 0.5, 90.0)],
    )


def result(**more: Any) -> RunResult:
    batches = [batch(1000 + n, latency=0.2 * n, backlog=20 * n) for n in range(1, 9)]
    report = summarise(batches, 120.0, 2.0, NOTHING_LOST, began=1000.0)
    return RunResult("p", 2, {"a": 1}, 110.0, report, Load.constant(120), **more)


def test_the_history_has_every_batch() -> None:
    first, second = history([batch(1002.0), batch(1004.0, tuples=60, latency=0.25, backlog=7)], began=1000.0)
    assert (first.seconds, first.rate, first.p50, first.p95) == (2.0, 50.0, 0.5, 0.5)
    assert (second.seconds, second.rate, second.backlog, second.p50) == (4.0, 30.0, 7, 0.25)
    empty = BatchObservation(1003.0, 0, 0, np.array([]), {}, ())
    assert history([empty], 1000.0)[0].p50 is None


def test_figures_while_a_run_goes_on() -> None:
    recent = RecentBatches(Load.constant(120), seconds=20)
    assert recent.figures() is None
    recent.add(batch(1000.0))
    assert recent.figures() is None
    for second in range(1, 5):
        recent.add(batch(1000.0 + second, backlog=second))
    figures = recent.figures()
    assert figures is not None
    assert (figures.seconds, figures.offered, figures.sustained, figures.backlog) == (4.0, 120.0, 100.0, 4)
    assert figures.latency_ms == {"p50": 500.0, "p95": 500.0}
    # 0.4 busy and 0.2 (0.1) CPU seconds in every second
    assert figures.busy == {"a": pytest.approx(0.4)}
    assert [cpu for cpu, _ in figures.slots.values()] == pytest.approx([0.2, 0.1])
    assert [memory for _, memory in figures.slots.values()] == [100.0, 90.0]


def test_a_jump_of_the_load_is_seen_before_it_is_an_average() -> None:
    recent = RecentBatches(parse_load("steps:15x70,60x210"), seconds=None)
    for second in range(21):
        recent.add(batch(1000.0 + second))
    figures = recent.figures()
    assert figures is not None
    assert figures.offered == 210.0


def test_without_a_load_what_is_left_waiting_has_arrived_too() -> None:
    recent = RecentBatches(None, seconds=None)
    for second in range(11):
        recent.add(batch(1000.0 + second, backlog=40 * second))
    figures = recent.figures()
    assert figures is not None
    # 100 are taken in every second, and 40 more wait
    assert (figures.offered, figures.recent) == (140.0, 100.0)


def test_the_live_view_says_it_all() -> None:
    from rich.console import Console

    recent = RecentBatches(Load.constant(120), seconds=20)
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    listener = LiveListener(console)
    with console.file:
        listener.on_progress(Progress("starting Spark"))
        console.print(listener.view())
        listener.on_progress(Progress("cases", 3, 12, seconds_left=7))
        console.print(listener.view())
        for second in range(5):
            recent.add(batch(1000.0 + second))
        figures = recent.figures()
        assert figures is not None
        listener.on_figures(figures)
        console.print(listener.view())
    text = console.export_text()
    for words in (
        "starting Spark",
        "25 %",
        "at most 7 s left",
        "4 of 20 s",
        "offered 120",
        "sustained 100",
        "backlog 0",
        "p95 500 ms",
        "a 40.0 %",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("more", "error"),
    [
        # 100 tuples every second while 120 are offered: the most it can do is 100, predicted 110
        ({}, 0.1),
        ({"searched": True, "highest_rate": 88.0}, 0.25),
        ({"searched": True, "highest_rate": None}, 0.1),
    ],
)
def test_the_error_of_the_prediction(more: dict[str, Any], error: float) -> None:
    assert result(**more).rate_error == pytest.approx(error)


def test_what_python_prints_of_a_result() -> None:
    lines = str(result(searched=True, highest_rate=88.0)).splitlines()
    assert lines[0] == "p fused on 2 slots: offered 120, sustained 100 tuples/s (falls behind) over 6.0 s"
    # 110 predicted / 88 seen
    assert lines[1] == "predicted  at most 110 tuples/s (error +25.0 %)"
    assert lines[2].startswith("latency    p50 ")
    assert lines[3].startswith("ids        ")


def test_no_error_where_the_most_was_not_measured() -> None:
    kept_up = summarise([batch(1000 + n) for n in range(9)], 100.0, 2.0, NOTHING_LOST)
    assert kept_up.stable
    plain = RunResult("p", 2, {}, 110.0, kept_up, Load.constant(100))
    assert plain.rate_error is None
    assert RunResult("p", 2, {}, 110.0, kept_up, Load.constant(100), searched=True).rate_error == pytest.approx(0.1)
    assert RunResult("p", 2, {}, None, kept_up, Load.constant(100), searched=True).rate_error is None


def test_what_was_to_be_expected_of_slower_cores() -> None:
    # 4 pieces in 2 ms and 2 in 1 ms of every batch: 2,000 a second, where the models saw 2,500
    batches = [
        replace(batch(1000 + n, latency=0.2 * n), slots=[SlotObservation(0, 0.2, 0.5, 100.0, 4, 0.002)])
        for n in range(1, 9)
    ]
    batches[5] = replace(batches[5], slots=[SlotObservation(0, 0.2, 0.5, 100.0, 2, 0.001)])
    report = summarise(batches, 120.0, 2.0, NOTHING_LOST)
    assert report.pace == pytest.approx(2000)
    found = RunResult(
        "p", 1, {"a": 1}, 110.0, report, Load.constant(120), models_pace=2500.0, rate_at_pace=lambda p: p / 20
    )
    assert found.pace == pytest.approx(0.8)
    assert found.predicted_rate_at_pace == pytest.approx(100)
    assert found.document()["predicted_rate_at_pace"] == pytest.approx(100)
    # 100 tuples a second were taken in
    assert found.rate_error == pytest.approx(0.1)
    assert found.rate_error_at_pace == pytest.approx(0)
    assert result().report.pace is None
    assert result(models_pace=2500.0, rate_at_pace=float).predicted_rate_at_pace is None
    assert replace(found, models_pace=None).predicted_rate_at_pace is None


def test_a_run_beside_others_says_so() -> None:
    assert disturbance(0.1) == []
    (note,) = disturbance(0.234)
    assert "used 23 % of it meanwhile" in note


def test_the_document_of_a_search() -> None:
    tried = (TriedRate(104.0, False, 104.0, saturated=True), TriedRate(98.8, True, 98.7, saturated=False))
    document = result(searched=True, highest_rate=98.8, tried=tried, plan_rates={"shuffle": 80.0}).document()
    assert document["highest_rate"] == 98.8
    assert [row["saturated"] for row in document["tried"]] == [True, False]
    assert document["plan_predicted_rate"] == {"shuffle": 80.0}
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert "highest_rate" not in result().document()


def test_a_picture_of_a_run(tmp_path: Path) -> None:
    draw_run(result(), tmp_path / "run.svg")
    text = (tmp_path / "run.svg").read_text()
    for words in (
        "p on 2 slots",
        "offered 120/s, sustained 100/s (falls behind)",
        "predicted, at most 110",
        "tuples waiting",
    ):
        assert words in text
    draw_run(result(), tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == text


def test_what_is_far_above_is_named_and_not_drawn(tmp_path: Path) -> None:
    report = result().report
    loads = (Load.constant(5e6), Load.on_off(150, 2, 1), Load(((3.0, 50.0), (2.0, 130.0))))
    for number, load in enumerate(loads):
        draw_run(RunResult("p", 1, {}, 9000.0, report, load), tmp_path / f"{number}.svg")
        text = (tmp_path / f"{number}.svg").read_text()
        assert "off the chart" in text
        assert (">offered<" in text) == (number > 0)


def test_nothing_to_draw(tmp_path: Path) -> None:
    nothing = RunResult("p", 1, {}, None, summarise([], 1.0, 1.0, NOTHING_LOST), Load.constant(1))
    with pytest.raises(BadInputError, match="no batch was finished"):
        draw_run(nothing, tmp_path / "run.png")


def test_the_rate_of_whole_batches_over_two_seconds() -> None:
    from penstock.pictures.run_charts import smoothed

    moments = history([batch(1000 + at, tuples=30) for at in (0.5, 1.5, 2.5, 4.5, 5.0)], began=1000.0)
    # 90 tuples in 2.5 s, 30 in 2 s, 30 in the last half
    assert smoothed(moments) == ([2.5, 4.5, 5.0], [36.0, 15.0, 60.0])


def test_a_plan_says_rate_slots_and_threads(tmp_path: Path) -> None:
    plan = penstock.plan("linear", 100)
    write_plan(plan, tmp_path / "plan.json")
    for given in (plan, tmp_path / "plan.json", str(tmp_path / "plan.json")):
        job = prepare(given)
        # as the verdict says: 7 slots do for the placement, but batches leave slots less time, and memory
        assert (job.slots, job.load) == (plan.forecast.slots, Load.constant(100))
        assert job.threads == plan.forecast.threads
        assert job.plan_rates is not None
        assert job.plan_rates["shuffle"] == pytest.approx(80)
        assert job.predicted_rate is not None
        # a node of the catalogue has 28 GB for 8 slots
        assert job.slot_memory_mb == 3584
    assert prepare("linear", RunConfig(rate=5, slots=2)).slot_memory_mb is None
    assert prepare(plan, RunConfig(rate=5)).load == Load.constant(5)


def test_a_plan_whose_parts_do_not_fit(tmp_path: Path) -> None:
    document = penstock.plan("linear", 10).document()
    document["definition"]["operators"]["more"] = {"model": "pi"}
    document["definition"]["streams"].append({"from": "X", "to": "more"})
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(BadInputError, match=r"plan.json: its operators are not those of the pipeline"):
        prepare(tmp_path / "plan.json")


def test_operators_nobody_has_a_model_of_may_run() -> None:
    built = penstock.pipeline("p").source("s").then("mine", run="json:loads").sink("o").build()
    job = prepare(built, RunConfig(rate=10, slots=2))
    assert job.predicted_rate is None
    assert job.batch_seconds is not None
    mixed = penstock.pipeline("p").source("s").then("mine", run="json:loads").then("pi").sink("o").build()
    job = prepare(mixed, RunConfig(rate=10, slots=2))
    assert job.predicted_rate is not None
    assert "operator 'mine' has no model: its work is not in the prediction" in job.notes
    declared = penstock.pipeline("p").source("s").then("m", run="json:loads", threads=5, cpu=1, memory_mb=1).sink("o")
    job = prepare(declared, RunConfig(rate=10, slots=2))
    assert job.threads["m"] == 3
    # CPU and memory that are declared say nothing of time: 50 tuples a slot at first, then as many as fill a batch
    assert (job.most_rows, job.batch_seconds) == (100, 2.0)


def one_tuple_in_10_ms(handling_ms: float = 0.0) -> ModelLibrary:
    """And 0.2 s for a batch on top: of the operator 'a' of a pipeline 'p'."""
    handling_us = 1000 * handling_ms
    on = MeasuredOn(batch_seconds=1.0, batch_overhead_ms=200.0, handling_us=handling_us, column_handling_us=handling_us)
    point = Point(threads=1, rate=80.0, cpu=1.0, memory=0.1, operator_cpu=0.8, busy=0.8)
    return ModelLibrary.of([Model("p/a", (point,), on)])


def test_batches_hold_the_work_of_an_interval() -> None:
    pipeline = penstock.pipeline("p").source("s").then("a", logic=lambda row: row, schema="n long").sink("o").build()
    brief = prepare(pipeline, RunConfig(rate=50, slots=1, models=one_tuple_in_10_ms()))
    # 2 s of work are 200 tuples; with 0.2 s on top 200 / 2.2
    assert brief.most_rows == 200
    assert brief.predicted_rate == pytest.approx(200 / 2.2)
    long = prepare(pipeline, RunConfig(rate=50, slots=1, models=one_tuple_in_10_ms(), batch_interval_ms=10_000))
    # 10 s of work, and not 2 s of them and 8 s of waiting
    assert long.most_rows == 1000
    assert long.predicted_rate == pytest.approx(1000 / 10.2)
    report = summarise([batch(1000.0 + 10 * n, tuples=500) for n in range(4)], 50.0, 0.0, NOTHING_LOST, began=1000.0)
    ended = long.result(report, Load.constant(50))
    assert ended.predicted_rate == pytest.approx(1000 / 10.2)
    # a batch of 500 tuples takes 5.2 s, and a tuple waits for it between 0 and 10 s
    assert dict(ended.predicted_latency_ms or {})["p50"] == pytest.approx(5200 + 5000)
    unknown = penstock.pipeline("p").source("s").then("b", logic=lambda row: row, schema="n long").sink("o").build()
    assert prepare(unknown, RunConfig(rate=50, slots=1, batch_interval_ms=10_000)).batch_seconds == 10.0
    assert prepare(unknown, RunConfig(rate=50, slots=1, batch_interval_ms=500)).batch_seconds == 2.0


def test_of_a_source_of_ones_own_batches_are_predicted_as_it_admits_them() -> None:
    built = penstock.pipeline("p").source("s", files="in/*.json", schema="n long")
    pipeline = built.then("a", logic=lambda row: row, schema="n long").sink("o").build()
    job = prepare(pipeline, RunConfig(slots=1, models=one_tuple_in_10_ms()))
    batches = [batch(1003.0, tuples=100), *(batch(1003.0 + 1.25 * n, tuples=100, latency=1.25) for n in range(1, 5))]
    report = summarise(batches, 0.0, 5.0, NOTHING_LOST, began=1000.0, whole=True)
    # the first batch, in which Spark gets ready, is counted and not measured
    assert (report.sustained_rate, report.operators["a"].received) == (80.0, 500)
    ended = job.result(replace(report, offered_rate=80.0), Load.constant(80), flat_out=True)
    # nothing limits a batch: with 2,000 tuples the 0.2 s of the engine are a hundredth of it
    assert ended.predicted_rate == pytest.approx(2000 / 20.2)
    # at 80/s batches of 80 tuples, each 0.2 s and 80 times 10 ms
    assert dict(ended.predicted_latency_ms or {}) == pytest.approx({"p50": 1000})
    assert ended.rate_error == pytest.approx(2000 / 20.2 / 80 - 1)
    assert "what is predicted is for batches of 2,000 tuples, as the sources admit" in ended.report.notes


def test_batches_of_files_hold_what_the_source_admits(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.json").write_text('{"n": 1}\n' * 50)
    options: dict[str, str | bool | int | float] = {"path": str(tmp_path), "maxFilesPerTrigger": 2}
    built = penstock.pipeline("p").source("s", format="json", options=options, schema="n long")
    pipeline = built.then("a", logic=lambda row: row, schema="n long").sink("o").build()
    job = prepare(pipeline, RunConfig(slots=1, models=one_tuple_in_10_ms()))
    # two files of 50 rows, 10 ms each, and 0.2 s
    assert job.forecast is not None
    assert job.forecast.batch_rows == 100
    assert job.forecast.max_rate is not None
    assert job.forecast.max_rate.value == pytest.approx(100 / 1.2)
    assert job.forecast.latency_values == pytest.approx({"p50": 1200})
    (planned,) = (penstock.plan(pipeline, 80, models=one_tuple_in_10_ms()),)
    assert planned.verdict["rate"] == pytest.approx(100 / 1.2)
    for file in tmp_path.iterdir():
        file.unlink()
    (tmp_path / "odd.json.gz").write_bytes(b"x")
    nobody_knows = prepare(pipeline, RunConfig(slots=1, models=one_tuple_in_10_ms())).forecast
    assert nobody_knows is not None
    assert nobody_knows.meets_target is None
    assert "no file is there whose rows could be counted" in nobody_knows.unknown[0]


@pytest.mark.parametrize(
    ("sources", "handling_ms", "most"),
    [
        # 2,000 tuples of 10 ms, 20 s of work, and 0.2 s
        (1, 0.0, 2000 / 20.2),
        # 1,000 of each, all of them through one operator: 2 x 1,000 / (0.2 + 2 x 1,000 x 0.01)
        (2, 0.0, 2000 / 20.2),
        (4, 0.0, 2000 / 20.2),
        # 667 of each
        (3, 0.0, 2001 / 20.21),
        # 2 of the 10 ms are for taking a tuple in, from whichever source it comes
        (1, 2.0, 2000 / 20.2),
        (2, 2.0, 2000 / 20.2),
    ],
)
def test_several_sources_of_ones_own_are_counted_together(sources: int, handling_ms: float, most: float) -> None:
    built = penstock.pipeline("p")
    names = [f"s{number}" for number in range(sources)]
    for name in names:
        built.source(name, files="in/*.json", schema="n long")
    pipeline = built.then("a", reads=names, logic=lambda row: row, schema="n long").sink("o").build()
    job = prepare(pipeline, RunConfig(slots=1, models=one_tuple_in_10_ms(handling_ms)))
    batches = [batch(1000.0 + 1.25 * n, tuples=100, latency=1.25) for n in range(5)]
    report = summarise(batches, 0.0, 0.0, NOTHING_LOST, began=998.75, whole=True)
    ended = job.result(replace(report, offered_rate=80.0), Load.constant(80), flat_out=True)
    assert ended.predicted_rate == pytest.approx(most)
    # 80 tuples/s of 10 ms of CPU each
    assert (ended.predicted_slot or (0.0, 0.0))[0] == pytest.approx(0.8)
    assert ended.rate_error == pytest.approx(most / 80 - 1)
    together = f", as many of each of {sources} sources" if sources > 1 else ""
    rows = 2001 if sources == 3 else 2000
    assert f"what is predicted is for batches of {rows:,} tuples, as the sources admit{together}" in ended.report.notes


@pytest.mark.parametrize(
    ("growth", "whole", "offered", "verdict"),
    [
        (0, False, 100.0, "stable"),
        # every second 100 tuples are taken in and 40 more wait
        (40, False, 140.0, "falls behind"),
        # a tenth more than it takes in: batches last no longer, but tuples wait longer for theirs
        (10, False, 110.0, "falls behind"),
        # 2 % more is within what a run is measured to
        (2, False, 102.0, "stable"),
        # what had gathered is worked off
        (-40, False, 60.0, "stable"),
        # an input that came to its end
        (-40, True, 100.0, "stable"),
    ],
)
def test_where_nobody_asks_for_a_rate_what_came_was_offered(
    growth: int, whole: bool, offered: float, verdict: str
) -> None:
    batches = [batch(1000.0 + n, backlog=500 + growth * n) for n in range(1, 9)]
    report = summarise(batches, None, 2.0, NOTHING_LOST, began=1000.0, whole=whole)
    assert (report.offered_rate, report.sustained_rate, report.verdict) == (offered, 100.0, verdict)


def test_too_many_dead_letters_are_the_verdict() -> None:
    report = summarise([batch(1001.0), batch(1002.0)], 100.0, 0.5, Audit(200, 0, 0, 3, 0))
    assert (report.stable, report.verdict) == (False, "too many tuples died")
    assert replace(report, audit=NOTHING_LOST).verdict == "stable"


def test_looking_for_the_highest_rate_takes_the_threads_of_the_peak() -> None:
    job = prepare("linear", RunConfig(slots=2, find_max=True))
    # the reference Blob task peaks at 50 threads
    assert job.threads["B"] == 50
    assert job.batch_seconds is not None


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({}, "rate=: expected tuples/s; only a plan"),
        ({"rate": 5, "low": 3}, "only with find_max="),
        ({"rate": 5, "find_max": True}, "leave out rate="),
        ({"find_max": True, "low": 5, "high": 5}, "low=: expected less than high="),
        ({"find_max": True, "high": -5}, "high=: .*above 0"),
        ({"rate": 5, "until_end": True}, "until_end=: source .* there is no end"),
        ({"rate": 5, "seconds": 20, "warm_up": 30}, "more than the warm-up"),
        ({"rate": "trace:no.csv"}, "no.csv: cannot be read"),
        ({"rate": 5, "executor_memory_mb": 2048}, "executor_memory_mb=: only on a cluster"),
        ({"rate": 5, "master": "yarn", "executor_memory_mb": 100}, "executor_memory_mb=: expected at least 512 MB"),
        ({"rate": 5, "max_dead_letter_ratio": 1.5}, "max_dead_letter_ratio=: expected 0 to 1, found 1.5"),
        ({"rate": 5, "max_dead_letter_ratio": float("nan")}, "max_dead_letter_ratio=: expected 0 to 1"),
        ({"rate": 5, "batch_interval_ms": 0}, "batch_interval_ms=: expected at least 1 ms, found 0"),
        ({"rate": 5, "folder": "s4://b/x"}, "^folder=: s4://b/x: cannot be reached: Unrecognized filesystem type .*$"),
    ],
)
def test_bad_runs(words: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        run("linear", **words)


def test_files_are_looked_for_before_spark_is_started(tmp_path: Path) -> None:
    built = penstock.pipeline("p").source("s", files=str(tmp_path / "*.csv")).then("pi").sink("o")
    with pytest.raises(BadInputError, match="source 's': no file matches"):
        run(built, 5)


@pytest.mark.parametrize(
    ("place", "local_by_default", "path"),
    [
        ("/data/in", True, "/data/in"),
        ("data/*.csv", True, "data/*.csv"),
        ("/data/in", False, None),
        ("file:/data/in", False, "/data/in"),
        ("file:///data/in", True, "/data/in"),
        ("hdfs:/data/in", True, None),
        ("s3a://bucket/in", True, None),
        ("data/a:b.csv", True, "data/a:b.csv"),
        ("", True, ""),
    ],
)
def test_what_lies_on_this_machine(place: str, local_by_default: bool, path: str | None) -> None:
    assert path_on_disk(place, local_by_default=local_by_default) == path


def test_files_are_missed_only_where_they_would_lie_here(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a")

    def reading(path: str) -> Pipeline:
        return penstock.pipeline("p").source("s", format="csv", options={"path": path}).then("pi").sink("o").build()

    check_ends(reading(f"file:{tmp_path}"))
    check_ends(reading(str(tmp_path / "none")), local_by_default=False)
    with pytest.raises(BadInputError, match=f"source 's': no file matches 'file:{tmp_path}/none'"):
        check_ends(reading(f"file:{tmp_path}/none"), local_by_default=False)


def test_a_placed_run_whose_sinks_have_not_got_all_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    report = summarise([batch(1.0), batch(2.0)], 100.0, 0.5, NOTHING_LOST)
    result = PlacedResult(
        "p", "runs/p", "shuffle", None, None, RunForecast("placed", 100.0, 1, 1.0), report, (), (), 0.0, 0.0
    )
    print_report(result, json=True)
    assert json.loads(capsys.readouterr().out)["unsent"] is False
    with pytest.raises(typer.Exit) as ended:
        print_report(replace(result, unsent=True), json=True)
    assert ended.value.exit_code == 1
