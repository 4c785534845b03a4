"""Models, predictions and reports on cores of another pace: the same work needs more CPU, waiting takes no longer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.clock import pause
from penstock.dataflow.logic import Per
from penstock.dataflow.pipeline import Gain, gains
from penstock.modelling.model import MeasuredOn, Model, Point, at_one_pace, at_pace, pace_of, slowed
from penstock.planning.prediction.fused import FusedSetup
from penstock.profiling.trial_search import comparable, point_of
from penstock.profiling.trials import Trial
from penstock.runtime.cpu_speed import EVERY_SECONDS, SpeedProbe

ON = MeasuredOn(batch_seconds=1.0, batch_overhead_ms=250, batch_cpu_ms=100, worker_batch_cpu_ms=40)
BUSY = Point(threads=1, rate=100, cpu=0.95, memory=0.1, operator_cpu=0.8, engine_cpu=0.15, pace=3000)
WAITING = BUSY.model_copy(update={"cpu": 0.0, "operator_cpu": 0.0})


@pytest.mark.parametrize(
    ("cpu", "slower", "expected"),
    [
        (1.0, 1.5, 1.5),
        (0.0, 1.5, 1.0),
        (0.5, 1.5, 1.25),
        # more than a core at once is no longer than a core all the time
        (1.3, 2.0, 2.0),
        # faster cores
        (1.0, 0.5, 0.5),
    ],
)
def test_how_much_longer(cpu: float, slower: float, expected: float) -> None:
    assert slowed(cpu, slower) == expected


def test_an_operator_that_computes() -> None:
    # at work for 1 s of 1.25 s and using 0.8 of a core, it computes all the time: 125 tuples a batch, 8 ms each. At
    # half the pace 16 ms: 62.5 tuples in 1 s, and 0.5 s for the engine: 41.7 tuples/s. It uses a core for 1 s of 1.5 s.
    model = at_pace(Model("m", (BUSY,), ON), 1500)
    (point,) = model.points
    assert point.rate == pytest.approx(62.5 / 1.5)
    assert point.operator_cpu == pytest.approx(1 / 1.5)
    assert point.cpu == pytest.approx(0.95 * 2 / 2.4)
    assert point.pace == 1500
    on = model.measured_on
    assert (on.batch_overhead_ms, on.batch_cpu_ms, on.worker_batch_cpu_ms) == (500, 200, 80)


def test_all_the_engine_needs_takes_longer() -> None:
    needs = {
        "batch_overhead_ms": 250.0,
        "batch_cpu_ms": 100.0,
        "worker_batch_cpu_ms": 40.0,
        "handling_us": 9.0,
        "column_handling_us": 6.0,
        "column_handling_cpu_us": 4.0,
        "own_batch_ms": 300.0,
    }
    on = at_pace(Model("m", (BUSY,), MeasuredOn(**needs)), 1500).measured_on
    assert {name: getattr(on, name) for name in needs} == {name: 2 * value for name, value in needs.items()}


def test_a_run_with_an_operator_of_sparks_own_on_slower_cores() -> None:
    # 0.25 s and 0.3 s for any batch, 100 tuples of 10 ms, all of it CPU: at half the pace twice as long
    point = BUSY.model_copy(update={"operator_cpu": 1.0, "cpu": 1.0, "busy": 1.0})
    on = MeasuredOn(per=Per.DATAFRAME, own_batch_ms=300.0)
    setup = FusedSetup({"own": Gain(1.0, 0.0)}, {"own": Model("own", (point,), on)}, {"own": 1}, 1, 8, 100, 0.25, 0.0)
    assert setup.batch_seconds(100) == pytest.approx(0.55 + 1.0)
    assert setup.at_pace(1500).batch_seconds(100) == pytest.approx(2 * (0.55 + 1.0))


def test_an_operator_that_waits() -> None:
    # 125 tuples in 1 s as before; the engine needs 0.5 s instead of 0.25 s
    (point,) = at_pace(Model("m", (WAITING,), ON), 1500).points
    assert point.rate == pytest.approx(125 / 1.5)
    assert at_pace(Model("m", (WAITING,), MeasuredOn()), 1500).points[0].rate == 100


def test_a_model_that_does_not_say_its_pace_stays() -> None:
    model = Model("m", (BUSY.model_copy(update={"pace": None}),), ON)
    assert at_pace(model, 1500) is model
    assert pace_of([model]) is None
    assert pace_of([model, Model("n", (BUSY, BUSY.model_copy(update={"threads": 2, "pace": 1000})))]) == 2000
    # 0.8 of 3000 and 0.2 of 1000
    waits = BUSY.model_copy(update={"threads": 2, "pace": 1000, "operator_cpu": 0.2})
    assert pace_of([Model("n", (BUSY, waits))]) == pytest.approx(2600)


def test_what_was_measured_at_different_paces_is_told_for_one() -> None:
    # one thread at 3000 and two at 1500: told for 2250, the second one is the faster
    two = BUSY.model_copy(update={"threads": 2, "rate": 90, "pace": 1500, "operator_cpu": 1.0})
    model = Model("m", (BUSY.model_copy(update={"operator_cpu": 1.0}), two))
    (told,) = at_one_pace([model])
    assert [point.rate for point in told.points] == [pytest.approx(75), pytest.approx(135)]
    assert {point.pace for point in told.points} == {2250}
    # one more point, and again: the same as all at once
    three = two.model_copy(update={"threads": 4, "pace": 4500})
    (later,) = at_one_pace([Model("m", (*told.points, three))])
    (at_once,) = at_one_pace([Model("m", (*model.points, three))])
    assert [point.rate for point in later.points] == pytest.approx([point.rate for point in at_once.points])
    assert comparable({1: model.points[0], 2: two}) == {1: pytest.approx(75), 2: pytest.approx(135)}
    assert comparable({}) == {}


def test_an_operator_that_waits_is_told_for_its_own_pace() -> None:
    # cores that have just woken up do 2000; that is no reason to make it faster, or the others slower
    waits = [
        WAITING.model_copy(update={"threads": threads, "pace": pace, "operator_cpu": 0.2})
        for threads, pace in ((1, 1800), (2, 2200))
    ]
    one, two = at_one_pace([Model("m", (BUSY,), ON), Model("w", tuple(waits), ON)])
    assert one.points == (BUSY,)
    assert [point.pace for point in two.points] == [pytest.approx(2000)] * 2


def test_the_pace_a_run_of_several_operators_would_show() -> None:
    # 100 tuples/s at 3000 and 50/s at 1500, so a tuple is 10 ms with one and 20 ms with the other, twice as often seen
    slow = WAITING.model_copy(update={"rate": 50, "pace": 1500})
    pipeline = penstock.pipeline("p").source("s").then("m").then("w").sink("o").build()
    demands = {"s": None, "m": Model("m", (BUSY,), ON), "w": Model("w", (slow,), ON), "o": None}
    both = FusedSetup(gains(pipeline), demands, dict.fromkeys(demands, 1), 1, 2, 100, 0.25, 0.1)
    assert both.pace == 2000
    # as fast as in the trials: nothing changes
    assert both.at_pace(2000).rate() == pytest.approx(both.rate())
    # half as fast: 8 ms of CPU become 16 ms, 16 ms of waiting stay, and 0.5 s for the engine
    assert both.rate() == pytest.approx(100 / 2.65)
    assert both.at_pace(1000).rate() == pytest.approx(100 / 3.7)
    assert setup(BUSY.model_copy(update={"pace": None})).pace is None


@given(pace=st.floats(500, 9000), cpu=st.floats(0, 1))
def test_there_and_back(pace: float, cpu: float) -> None:
    model = Model("m", (BUSY.model_copy(update={"operator_cpu": cpu}),), ON)
    (point,) = at_pace(at_pace(model, pace), 3000).points
    assert point.rate == pytest.approx(100)
    assert point.operator_cpu == pytest.approx(cpu)


@given(pace=st.floats(500, 9000), other=st.floats(500, 9000), cpu=st.floats(0, 1))
def test_slower_cores_never_do_more(pace: float, other: float, cpu: float) -> None:
    model = Model("m", (BUSY.model_copy(update={"operator_cpu": cpu}),), ON)
    slow, fast = (at_pace(model, each).points[0].rate for each in sorted((pace, other)))
    assert slow <= fast * (1 + 1e-9)


def setup(point: Point, cores: int = 1) -> FusedSetup:
    pipeline = penstock.pipeline("p").source("s").then("m").sink("o").build()
    demands = {"s": None, "m": Model("m", (point,), ON), "o": None}
    return FusedSetup(gains(pipeline), demands, {"s": 1, "m": 1, "o": 1}, 1, cores, 100, 0.25, 0.1)


def test_a_run_on_slower_cores() -> None:
    # 100 tuples of 8 ms and 0.25 s: 95.2 tuples/s; everything is CPU, so half of it at half the pace
    before, after = setup(BUSY, 2), setup(BUSY, 2).at_pace(1500)
    assert before.rate() == pytest.approx(100 / 1.05)
    assert after.rate() == pytest.approx(100 / 2.1)
    assert after.overhead_seconds == 0.5
    # waiting: 0.8 s as before, and 0.5 s for the engine
    assert setup(WAITING, 2).at_pace(1500).rate() == pytest.approx(100 / 1.3)
    unknown = setup(BUSY.model_copy(update={"pace": None}))
    assert unknown.at_pace(1500) is unknown


def test_points_that_do_not_say_their_pace_count_as_measured_with_the_others() -> None:
    silent = BUSY.model_copy(update={"pace": None, "threads": 2})
    one, two = at_pace(Model("m", (BUSY, silent), ON), 1500).points
    assert two.rate == pytest.approx(one.rate)
    assert (one.pace, two.pace) == (1500, None)
    model = Model("m", (silent,), ON)
    assert at_pace(model, 1500, unsaid=3000).points[0].rate == pytest.approx(62.5 / 1.5)
    # twice as fast: never less
    mixed = replace(setup(BUSY, 2), demands={"s": None, "m": Model("m", (WAITING, silent), ON), "o": None})
    assert mixed.at_pace(6000).rate() >= mixed.rate()


def test_repeated_trials_are_told_for_their_mean_pace() -> None:
    def trial(rate: float, pace: float | None) -> Trial:
        return Trial(1, rate, stable=True, cpu=1.0, memory_mb=0, operator_cpu=1.0, pace=pace)

    # 120 at 3600 and 80 at 2400: both are 100 at 3000
    point = point_of([trial(120, 3600), trial(80, 2400)], slot_memory_mb=1000)
    assert point.rate == pytest.approx(100)
    assert point.rate_spread == pytest.approx(0)
    assert point.pace == 3000
    assert point_of([trial(120, None)], slot_memory_mb=1000).pace is None


def test_pieces_are_done_now_and_then() -> None:
    probe = SpeedProbe()
    probe.look()
    assert probe.take() == (0, 0.0)
    pause(EVERY_SECONDS)
    probe.look()
    probe.look()
    pieces, seconds = probe.take()
    assert pieces == 1
    assert seconds > 0
    assert probe.take() == (0, 0.0)


def test_one_slow_piece_of_many_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # CPU seconds before and after each piece: they took 1, 1 and 50
    clock = iter([0.0, 1.0, 1.0, 2.0, 2.0, 52.0])
    monkeypatch.setattr("penstock.runtime.cpu_speed.thread_cpu_seconds", lambda: next(clock))
    monkeypatch.setattr("penstock.runtime.cpu_speed.EVERY_SECONDS", 0.0)
    probe = SpeedProbe()
    for _ in range(3):
        probe.look()
    assert probe.take() == (3, 3.0)
