"""What a fused run is predicted to do: rounds of threads, the engine's overhead, CPU and memory of its slots."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.dataflow.aggregate import Aggregate
from penstock.dataflow.code import crews_of
from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.pipeline import Gain, Kind, Operator, Pipeline, Stream, topological_order
from penstock.engines.fused.preparation import closing_notes, unmeasured_ends
from penstock.modelling.model import FixedDemand, MeasuredOn, Model, Point
from penstock.planning.prediction.fused import (
    PIECE_SECONDS,
    FusedSetup,
    fused_usage,
    rows_of_batch,
    slowest_of,
)
from penstock.planning.prediction.placement import Demands, closing_seconds
from penstock.profiling.profiler import rows_to_rehearse
from penstock.runtime import steps as runtime_steps
from penstock.runtime.steps import Read, Step, plan_pools

ON = MeasuredOn(slot_memory_mb=1000.0, batch_seconds=1.0, base_memory_mb=80.0)
CPU_BOUND = Model("cpu", (Point(threads=1, rate=100.0, cpu=1.0, memory=0.01, operator_cpu=0.8),), ON)
WAITING = Model("waiting", (Point(threads=10, rate=20.0, cpu=0.2, memory=0.05, operator_cpu=0.1),), ON)
GAINS = {"source": Gain(1.0, 0.0), "cpu": Gain(1.0, 0.0), "waiting": Gain(1.0, 0.0)}
DEMANDS: Demands = {"source": FixedDemand(0.1, 0.1), "cpu": CPU_BOUND, "waiting": WAITING}
THREADS = {"source": 1, "cpu": 1, "waiting": 10}


def one(name: str, model: Model, threads: int, most_rows: int, overhead: float = 0.0, slots: int = 1) -> FusedSetup:
    return FusedSetup({name: Gain(1.0, 0.0)}, {name: model}, {name: threads}, slots, 64, most_rows, overhead, 0.0)


def both(most_rows: int, slots: int = 1, handling: float = 0.0) -> FusedSetup:
    return FusedSetup(GAINS, DEMANDS, THREADS, slots, 64, most_rows, 0.0, 0.0, handling_seconds=handling)


def test_one_operator_alone_does_what_its_model_says() -> None:
    # measured with a second of work and 0.2 s of overhead; a batch of 120 holds just that: 1.2 s for 120
    assert one("cpu", CPU_BOUND, 1, 120, 0.2).rate() == pytest.approx(100.0)


def test_larger_batches_leave_less_to_the_engine() -> None:
    # 0.2 + 240 * 0.01 / 1.2
    assert one("cpu", CPU_BOUND, 1, 240, 0.2).rate() == pytest.approx(240 / (0.2 + 2.0))


def test_a_round_that_is_not_full_takes_as_long_as_its_threads() -> None:
    # a round of `waiting` takes 10 / 20 s, and so does one of a single tuple: a thread does 2 a second
    assert one("waiting", WAITING, 10, 10).rate() == pytest.approx(10 / 0.5)
    assert one("waiting", WAITING, 10, 11).rate() == pytest.approx(11 / 1.0)


def test_batches_are_whole_rounds_of_the_slowest() -> None:
    # 0.05 s a tuple, beside which the other's 0.01 s pass: 20 in a second, which is two rounds of ten
    assert rows_of_batch(both(1), 1.0) == 20
    assert rows_of_batch(both(1, slots=2), 1.0) == 40
    # a tenth of a second is less than one round
    assert rows_of_batch(both(1), 0.1) == 10
    assert rows_of_batch(FusedSetup({}, {}, {}, 1, 1, 1, 0.0, 0.0), 1.0) == 100_000


def test_threads_that_wait_are_rehearsed_with_more() -> None:
    # 0.01 / 1.2 s a tuple of the one that computes: 36 in 0.3 s; 0.05 s a tuple of ten that wait, in whole rounds: 20
    # in 1.5 x 0.6 s; small batches hold a sixth, and one for every slot at least
    assert rows_to_rehearse(one("cpu", CPU_BOUND, 1, 1, 0.2), 0.3) == (6, 36)
    assert rows_to_rehearse(both(1), 0.6) == (3, 20)
    assert rows_to_rehearse(both(1, slots=4), 0.6) == (13, 80)


def test_crews_of_a_slot_overlap() -> None:
    # 20 tuples: two rounds of 0.5 s, in which 20 x 0.01 s of the other pass; its first piece, 0.025 s, comes before
    assert both(20).rate() == pytest.approx(20 / 1.025)
    assert both(40, slots=2).rate() == pytest.approx(40 / 1.025)


def test_a_model_that_knows_how_long_its_code_was_at_work_says_it_exactly() -> None:
    # 10 tuples/s while it was at work half of the time: a tuple takes 0.05 s, whatever the engine needed then
    point = Point(threads=1, rate=10.0, cpu=0.5, memory=0.0, operator_cpu=0.4, busy=0.5)
    setup = one("half", Model("half", (point,), ON), 1, 20, overhead=0.2)
    assert setup.batch_seconds(20) == pytest.approx(0.2 + 20 * 0.05)


def test_pieces_are_as_long_as_crews_cut_them() -> None:
    assert PIECE_SECONDS == runtime_steps.PIECE_SECONDS


def test_operators_in_one_thread_take_turns() -> None:
    demands: Demands = {"a": CPU_BOUND, "b": CPU_BOUND}
    gains = dict.fromkeys(demands, Gain(1.0, 0.0))
    joined = FusedSetup(gains, demands, {"a": 1, "b": 1}, 1, 64, 100, 0.0, 0.0, handling_seconds=0.001)
    # 100 x (0.01 + 0.01 + 0.001)
    assert joined.batch_seconds(100) == pytest.approx(2.1)
    # in threads of their own they still have one core: 100 x (0.008 + 0.008 + 0.001) s of CPU, and a piece of 0.025 s
    apart = replace(joined, crews=(("a",), ("b",)))
    assert apart.batch_seconds(100) == pytest.approx(1.7 + 0.025)


def test_cores_are_shared_with_spark() -> None:
    quick = Model("quick", (Point(threads=1, rate=1000.0, cpu=1.0, memory=0.0, operator_cpu=0.5),), ON)
    setup = replace(one("quick", quick, 1, 100), sparks_cpu_seconds=0.005, handling_seconds=0.001)
    # 100 x (1 + 1) ms of code and its handling
    assert setup.batch_seconds(100) == pytest.approx(0.2)
    # one core has 100 x (0.5 + 1 + 5) ms to do, however many slots there are
    assert replace(setup, slots=2, cores=1).batch_seconds(100) == pytest.approx(0.65)


def test_an_operator_of_sparks_own_adds_its_time_and_what_it_costs_a_batch() -> None:
    on = ON.model_copy(update={"per": Per.DATAFRAME, "own_batch_ms": 300.0})
    own = Model("own", (Point(threads=1, rate=1000.0, cpu=1.0, memory=0.0, operator_cpu=1.0),), on)
    gains = {"waiting": Gain(1.0, 0.0), "own": Gain(0.5, 0.0)}
    setup = FusedSetup(gains, {"waiting": WAITING, "own": own}, {"waiting": 10, "own": 1}, 1, 64, 20, 0.1, 0.0, 0.0)
    # 0.1 and 0.3 s for any batch, two rounds of 0.5 s, ten tuples of 1 ms
    assert setup.batch_seconds(20) == pytest.approx(0.4 + 1.0 + 0.01)


# 120 tuples of 1 ms in Spark's own operator: over k slots, of p partitions ceil(p / k) in turns
@pytest.mark.parametrize(
    ("slots", "partitions", "seconds"), [(4, None, 0.03), (4, 4, 0.03), (4, 8, 0.03), (4, 2, 0.06), (2, 3, 0.08)]
)
def test_an_operator_of_sparks_own_uses_no_more_slots_than_it_has_partitions(
    slots: int, partitions: int | None, seconds: float
) -> None:
    on = ON.model_copy(update={"per": Per.DATAFRAME})
    own = Model("own", (Point(threads=1, rate=1000.0, cpu=1.0, memory=0.0, operator_cpu=1.0),), on)
    setup = FusedSetup({"own": Gain(1.0, 0.0)}, {"own": own}, {"own": 1}, slots, 64, 120, 0.0, 0.0, 0.0)
    assert replace(setup, partitions=partitions).batch_seconds(120) == pytest.approx(seconds)


def test_latency_is_the_wait_for_a_batch_and_the_batch() -> None:
    setup = one("cpu", CPU_BOUND, 1, 1000, overhead=0.2)
    # a tuple takes 0.01 / 1.2 s; at 60 a second a batch of n takes 0.2 + n / 120 = n / 60: n = 24, every 0.4 s
    found = setup.latency_ms(60.0, 0.1)
    assert found == pytest.approx({"p50": 600, "p95": 780, "p99": 796})
    # a batch shorter than the interval is waited for: 1 tuple, 208 ms, every 2 s
    assert setup.latency_ms(0.4, 2.0) == pytest.approx({"p50": 208.3 + 1000, "p95": 2108.3, "p99": 2188.3}, rel=1e-4)
    # 120 a second is what it does without the engine
    assert setup.latency_ms(120.0, 0.1) is None


@given(st.floats(1.0, 110.0), st.floats(0.0, 1.0))
def test_latency_is_that_of_a_batch_that_holds_what_comes_meanwhile(rate: float, interval: float) -> None:
    setup = one("cpu", CPU_BOUND, 1, 100_000, overhead=0.2)
    found = setup.latency_ms(rate, interval)
    assert found is not None
    period = (found["p99"] - found["p50"]) / 0.49 / 1000
    batch = found["p50"] / 1000 - period / 2
    assert period >= max(interval, batch) - 1e-6
    # within the one tuple that is not whole
    assert setup.batch_seconds(max(1, round(rate * period))) == pytest.approx(batch, abs=2 * 0.01)


NAMES = ("a", "b", "c", "d", "e", "f")


@given(st.lists(st.tuples(st.sampled_from((1, 1, 4)), st.sets(st.integers(-1, 4), min_size=1)), min_size=1, max_size=6))
def test_crews_are_those_of_the_engine(drawn: list[tuple[int, set[int]]]) -> None:
    """Graphs at random: operator n reads from the source (-1) or from operators before it."""
    threads = {NAMES[place]: count for place, (count, _) in enumerate(drawn)}
    senders = {
        NAMES[place]: ["s" if one < 0 else NAMES[one] for one in sorted({min(one, place - 1) for one in given})]
        for place, (_, given) in enumerate(drawn)
    }
    streams = [{"from": sender, "to": name} for name, before in senders.items() for sender in before]
    operators = [Operator(name="s", kind=Kind.SOURCE), *(Operator(name=name) for name in threads)]
    pipeline = Pipeline.of("p", operators, [Stream.model_validate(stream) for stream in streams])
    # the engine has them in topological order
    order = [name for name in topological_order(pipeline) if name != "s"]
    place = {"s": -1, **{name: at for at, name in enumerate(order)}}
    steps = [
        Step(name, Logic(print), threads[name], tuple(Read(place[sender]) for sender in senders[name]))
        for name in order
    ]
    wanted = tuple(tuple(order[at] for at in crew.positions) for crew in plan_pools(steps))
    assert crews_of(pipeline, threads, set()) == wanted


def test_what_sparks_own_sends_enters_a_slot_anew() -> None:
    built = penstock.pipeline("p").source("s")
    for name in ("a", "own", "b", "c"):
        built = built.then(name, logic=Logic(print))
    pipeline = built.sink("o").build()
    threads = dict.fromkeys(("a", "own", "b", "c"), 1)
    assert crews_of(pipeline, threads, {"own"}) == (("a",), ("b", "c"))
    assert crews_of(pipeline, {**threads, "b": 8}, {"own"}) == (("a",), ("b",), ("c",))


@pytest.mark.parametrize(
    # the means of the largest of k standard normal values, from tables of order statistics
    ("slots", "largest"),
    [(1, 0.0), (2, 0.564), (3, 0.846), (4, 1.029), (8, 1.424), (16, 1.766), (64, 2.344)],
)
def test_the_slowest_of_several_slots(slots: int, largest: float) -> None:
    assert slowest_of(slots) == pytest.approx(largest, rel=0.05, abs=1e-9)


def test_a_batch_ends_with_its_slowest_slot() -> None:
    # a second for 100 tuples, give or take a tenth: the slower of two slots takes 1 + 0.1 z(2)
    model = Model("cpu", (CPU_BOUND.points[0].model_copy(update={"batch_spread": 0.1}),), ON)
    assert one("cpu", model, 1, 100).rate() == pytest.approx(100)
    assert one("cpu", model, 1, 200, slots=2).batch_seconds(200) == pytest.approx(1 + 0.1 * slowest_of(2))
    assert one("cpu", model, 1, 200, slots=2).rate() == pytest.approx(200 / (1 + 0.1 * slowest_of(2)))


def test_cpu_and_memory_follow_the_rate() -> None:
    # 0.8 / 100 and 0.1 / 20 CPU seconds a tuple, at 10 tuples/s over two slots
    use = fused_usage(GAINS, DEMANDS, THREADS, 2, 10.0)
    assert use.cpu == pytest.approx(5 * (0.008 + 0.005))
    # what threads hold does not shrink with the rate
    assert use.memory_mb == pytest.approx(80 + 10 + 50)


def test_memory_is_that_of_the_threads_that_are_there() -> None:
    # 20 threads hold 0.2 of 1,000 MB, and the worker 80, at any rate: a model that `open=` loads is there when idle
    points = (*WAITING.points, Point(threads=20, rate=40.0, cpu=0.4, memory=0.2))
    demands = {"waiting": Model("waiting", points, ON)}
    assert fused_usage({"waiting": Gain(1.0, 0.0)}, demands, {"waiting": 20}, 1, 30.0).memory_mb == pytest.approx(280)


def test_files_that_were_profiled_are_counted_and_others_are_named() -> None:
    built = penstock.pipeline("p").source("in", format="json", options={"path": "in"}, schema="x long")
    pipeline = (
        built.then("work", logic=Logic(lambda row: row), schema="x long")
        .sink("out", format="jdbc", options={"url": "jdbc:x:y", "dbtable": "t"})
        .build()
    )
    files = Model(
        "p/in",
        (Point(threads=1, rate=500.0, cpu=1.0, memory=0.0, operator_cpu=0.0, busy=1.0),),
        ON.model_copy(update={"per": Per.DATAFRAME, "own_batch_ms": 300.0}),
    )
    work = Model("p/work", (Point(threads=1, rate=1000.0, cpu=1.0, memory=0.01, operator_cpu=0.8, busy=1.0),), ON)
    demands: Demands = {"in": files, "work": work, "out": FixedDemand(0.1, 0.1)}
    gains = dict.fromkeys(demands, Gain(1.0, 0.0))
    setup = FusedSetup(gains, demands, dict.fromkeys(demands, 1), 1, 64, 100, 0.2, 0.0)
    # the engine 0.2 s, the source 0.3 s and 2 ms a row, the code 1 ms a row
    assert setup.batch_seconds(100) == pytest.approx(0.2 + 0.3 + 0.2 + 0.1)
    # Java reads them: nothing of it is the worker's CPU
    assert setup.use(10.0).cpu == pytest.approx(10.0 * 0.8 / 1000)
    assert unmeasured_ends(pipeline, demands, rehearsed=False) == [
        "what sink 'out' needs to write is in no model: the prediction leaves it out"
    ]
    # a rehearsal reads and writes files, and nothing else
    unknown = {**demands, "in": None}
    assert len(unmeasured_ends(pipeline, unknown, rehearsed=False)) == 2
    assert len(unmeasured_ends(pipeline, unknown, rehearsed=True)) == 1


WINDOW: dict[str, object] = {"key": "k", "outputs": {"n": "count"}, "fields": "k string", "emit": "closed"}


@pytest.mark.parametrize(
    ("more", "part", "expected"),
    [
        # half of 10 s until its window ends; a batch of 0.2 s in 0.4 s brings what closes it, the next sends it
        ({"window_seconds": 10}, 0.5, 5.0 + 0.2 + 0.2 + 0.2),
        ({"window_seconds": 10, "late_seconds": 3}, 0.5, 5.0 + 3.0 + 0.6),
        # windows every 2 s: the last it is in ends between 8 and 10 s later
        ({"window_seconds": 10, "slide_seconds": 2}, 0.5, 8.0 + 1.0 + 0.6),
        ({"window_seconds": 10}, 1.0, 10.0 + 0.2 + 0.4 + 0.2),
    ],
)
def test_what_leaves_a_window_waits_until_it_closes(more: dict[str, float], part: float, expected: float) -> None:
    aggregate = Aggregate.model_validate({**WINDOW, **more})
    assert closing_seconds(aggregate, 0.2, 0.4, part) == pytest.approx(expected)


def test_no_batch_begins_before_the_interval_is_over() -> None:
    # a batch of 120 tuples takes 1.2 s
    assert one("cpu", CPU_BOUND, 1, 120, 0.2).rate(1.0) == pytest.approx(100.0)
    assert one("cpu", CPU_BOUND, 1, 120, 0.2).rate(2.0) == pytest.approx(60.0)


def test_a_run_says_how_long_windows_keep_their_tuples() -> None:
    def notes(aggregate: dict[str, object], rate: float = 60.0) -> list[str]:
        made = penstock.pipeline("w").source("load").then("sum", aggregate=aggregate).sink("out").build()
        return closing_notes(made, one("cpu", CPU_BOUND, 1, 1000, overhead=0.2), rate, 0.1)

    # batches of 0.4 s, one behind the other: 1 s for half of a window of 2, 0.4 + 0.2 and 0.4
    assert [note for note in notes({**WINDOW, "window_seconds": 2}) if "'sum'" in note and " 2.0 s " in note]
    # what is sent on as it changes does not wait, and where batches grow without end nothing is known
    assert notes({**WINDOW, "window_seconds": 2, "emit": "updates"}) == []
    assert notes({**WINDOW, "window_seconds": 2}, 1e6) == []
