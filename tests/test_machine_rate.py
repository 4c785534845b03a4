"""The rate at which cores that several slots share are full."""

from __future__ import annotations

import math

import pytest

from penstock.cluster.topology import Slot
from penstock.dataflow.rates import Gain
from penstock.modelling.model import FixedDemand, Model, Point
from penstock.prediction.machine import cpu_seconds_per_tuple, machine_rate
from penstock.prediction.rate import Demands

FAST = Model("fast", (Point(threads=1, rate=100.0, cpu=0.5, memory=0.1),))
SLOW = Model(
    "slow",
    (
        Point(threads=1, rate=10.0, cpu=0.2, memory=0.1),
        Point(threads=4, rate=40.0, cpu=0.9, memory=0.1, operator_cpu=0.4),
    ),
)
GAINS = {"source": Gain(1.0, 0.0), "fast": Gain(1.0, 0.0), "slow": Gain(0.5, 0.0)}
DEMANDS: Demands = {"source": FixedDemand(0.1, 0.1), "fast": FAST, "slow": SLOW}
THREADS = {Slot("n1", 0): {"source": 1, "fast": 1}, Slot("n1", 1): {"slow": 4}}


def test_cpu_of_a_tuple_is_that_of_all_it_causes() -> None:
    # fast: 0.5 / 100; slow: half a tuple at 0.4 / 40 of its own process
    assert cpu_seconds_per_tuple(GAINS, DEMANDS, THREADS) == pytest.approx(0.005 + 0.5 * 0.01)


def test_the_engine_takes_its_part() -> None:
    # 2 cores less 3 batches a second of 0.1 s each, over 0.01 s a tuple
    assert machine_rate(GAINS, DEMANDS, THREADS, 2, 3.0, 0.1) == pytest.approx((2 - 0.3) / 0.01)
    assert machine_rate(GAINS, DEMANDS, THREADS, 2, 30.0, 0.1) == 0.0


def test_without_models_there_is_no_limit() -> None:
    assert machine_rate({"source": Gain(1.0, 0.0)}, {"source": None}, THREADS, 2, 1.0, 0.1) == math.inf
