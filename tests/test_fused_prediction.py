"""What a fused run is predicted to do: rounds of threads, the engine's overhead, CPU and memory of its slots."""

from __future__ import annotations

import pytest

from penstock.dataflow.rates import Gain
from penstock.modelling.model import FixedDemand, MeasuredOn, Model, Point
from penstock.prediction.fused import FusedSetup, fused_batch, fused_rate, fused_usage, slowest_of
from penstock.prediction.rate import Demands

ON = MeasuredOn(slot_memory_mb=1000.0, batch_seconds=1.0, base_memory_mb=80.0)
CPU_BOUND = Model("cpu", (Point(threads=1, rate=100.0, cpu=1.0, memory=0.01, operator_cpu=0.8),), ON)
WAITING = Model("waiting", (Point(threads=10, rate=20.0, cpu=0.2, memory=0.05, operator_cpu=0.1),), ON)
GAINS = {"source": Gain(1.0, 0.0), "cpu": Gain(1.0, 0.0), "waiting": Gain(1.0, 0.0)}
DEMANDS: Demands = {"source": FixedDemand(0.1, 0.1), "cpu": CPU_BOUND, "waiting": WAITING}
THREADS = {"source": 1, "cpu": 1, "waiting": 10}


def test_one_operator_alone_does_what_its_model_says() -> None:
    # measured with a second of work and 0.2 s of overhead; a batch of 120 holds just that: 1.2 s for 120
    gains, demands = {"cpu": Gain(1.0, 0.0)}, {"cpu": CPU_BOUND}
    assert fused_rate(gains, demands, {"cpu": 1}, 1, 120, 0.2) == pytest.approx(100.0)


def test_larger_batches_leave_less_to_the_engine() -> None:
    gains, demands = {"cpu": Gain(1.0, 0.0)}, {"cpu": CPU_BOUND}
    # 0.2 + 240 * 0.01 / 1.2
    assert fused_rate(gains, demands, {"cpu": 1}, 1, 240, 0.2) == pytest.approx(240 / (0.2 + 2.0))


def test_a_round_that_is_not_full_takes_as_long() -> None:
    # a round of `waiting` takes 10 / 20 s; 11 tuples go round twice
    gains, demands, threads = {"waiting": Gain(1.0, 0.0)}, {"waiting": WAITING}, {"waiting": 10}
    assert fused_rate(gains, demands, threads, 1, 10, 0.0) == pytest.approx(10 / 0.5)
    assert fused_rate(gains, demands, threads, 1, 11, 0.0) == pytest.approx(11 / 1.0)


def test_batches_are_whole_rounds_of_the_slowest() -> None:
    # 0.01 + 0.05 s a tuple: 17 in a second, two rounds of ten are nearest
    assert fused_batch(GAINS, DEMANDS, THREADS, 1, 1.0, 0.0) == 20
    assert fused_batch(GAINS, DEMANDS, THREADS, 2, 1.0, 0.0) == 40
    # a tenth of a second is less than one round
    assert fused_batch(GAINS, DEMANDS, THREADS, 1, 0.1, 0.0) == 10


def test_operators_of_a_slot_take_turns() -> None:
    # 20 tuples: 20 x 0.01 s and two rounds of 0.5 s; two slots do twice that
    assert fused_rate(GAINS, DEMANDS, THREADS, 1, 20, 0.0) == pytest.approx(20 / 1.2)
    assert fused_rate(GAINS, DEMANDS, THREADS, 2, 40, 0.0) == pytest.approx(40 / 1.2)


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
    gains, demands, threads = {"cpu": Gain(1.0, 0.0)}, {"cpu": model}, {"cpu": 1}
    assert fused_rate(gains, demands, threads, 1, 100, 0.0) == pytest.approx(100)
    assert fused_rate(gains, demands, threads, 2, 200, 0.0) == pytest.approx(200 / (1 + 0.1 * slowest_of(2)))
    setup = FusedSetup(gains, demands, threads, 2, 4, 200, 0.0, 0.0)
    assert setup.batch_seconds(200) == pytest.approx(1 + 0.1 * slowest_of(2))
    assert setup.rate() == pytest.approx(200 / (1 + 0.1 * slowest_of(2)))


def test_cpu_and_memory_follow_the_rate() -> None:
    # 0.8 / 100 and 0.1 / 20 CPU seconds a tuple, at 10 tuples/s over two slots
    use = fused_usage(GAINS, DEMANDS, THREADS, 2, 10.0)
    assert use.cpu == pytest.approx(5 * (0.008 + 0.005))
    # 5 of the 100 and of the 20 they can do
    assert use.memory_mb == pytest.approx(80 + 10 * 0.05 + 50 * 0.25)


def test_memory_is_that_of_the_threads_with_something_to_do() -> None:
    # 30 of the 40 tuples/s of 20 threads keep 15 of them busy: half-way between 50 and 200 MB
    points = (*WAITING.points, Point(threads=20, rate=40.0, cpu=0.4, memory=0.2))
    demands = {"waiting": Model("waiting", points, ON)}
    assert fused_usage({"waiting": Gain(1.0, 0.0)}, demands, {"waiting": 20}, 1, 30.0).memory_mb == pytest.approx(205)
