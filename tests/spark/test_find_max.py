"""Which rates are tried, and when a query may start again: decided without Spark."""

from __future__ import annotations

import pytest

from penstock.engines.fused.restartable_query import may_restart, reason
from penstock.engines.rate_search import MORE_THAN_ANY, PRECISION, find_highest_rate
from penstock.report.report import Audit, Report
from penstock.spark.session.interrupts import Interrupt


class Known:
    """A pipeline that keeps up with `capacity` tuples/s, and does a little more when there is always more to do."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.offered: list[float] = []

    def __call__(self, rate: float) -> Report:
        self.offered.append(rate)
        stable = rate <= self.capacity
        saturated = 1.04 if rate == MORE_THAN_ANY else 0.96
        sustained = rate if stable else saturated * self.capacity
        return Report(rate, sustained, 0.0 if stable else 0.5, 10.0, {}, 0, {}, {}, Audit(0, 0, 0, 0, 0))


def never() -> bool:
    return False


@pytest.mark.parametrize("capacity", [0.3, 100.0, 54_321.0])
def test_the_highest_rate_is_bracketed_within_the_precision(capacity: float) -> None:
    known = Known(capacity)
    found = find_highest_rate(known, never)
    assert found.best is not None
    assert (1 - 2 * PRECISION) * capacity <= found.best.rate <= capacity
    assert known.offered[0] == MORE_THAN_ANY
    assert len(known.offered) <= 4


def test_given_ends_need_no_saturated_run() -> None:
    known = Known(70.0)
    found = find_highest_rate(known, never, low=40, high=100)
    # 100 no, 70 (between 40 and 100) yes, 85, 77.5, 73.75 no; 3.75 is more than 5 % of 73.75, so 71.875 is tried, no
    assert known.offered == [100, 70, 85, 77.5, 73.75, 71.875]
    assert found.best is not None
    assert found.best.rate == 70


def test_a_high_end_that_is_stable_is_the_answer() -> None:
    found = find_highest_rate(Known(500.0), never, high=100)
    assert found.best is not None
    assert (found.best.rate, len(found.trials)) == (100, 1)


def test_rates_fall_until_one_is_stable() -> None:
    known = Known(20.0)
    found = find_highest_rate(known, never, high=100)
    assert known.offered[:4] == pytest.approx([100, 80, 64, 51.2])
    assert found.best is not None
    assert found.best.rate <= 20


def test_a_pipeline_that_does_nothing_has_no_rate() -> None:
    assert find_highest_rate(Known(0.0), never).best is None


def test_an_interrupted_trial_is_not_an_answer() -> None:
    known = Known(100.0)
    found = find_highest_rate(known, lambda: len(known.offered) >= 2)
    assert len(known.offered) == 2
    assert found.best is None


DIED = "[STREAM_FAILED] Query [id = x] terminated with exception:  (no cause message)\n=== Streaming Query ===\nplan"
RAISED = "[STREAM_FAILED] Query\nTraceback (most recent call last):\n  File\npenstock.StoppedError: no\n"


def test_only_what_is_nobodys_code_is_started_again() -> None:
    assert may_restart(DIED)
    assert not may_restart(RAISED)
    assert may_restart("Job aborted due to stage failure: Python worker failed to connect back.")
    assert not may_restart("Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times")
    assert reason(RAISED) == "penstock.StoppedError: no"
    assert reason(DIED).startswith("[STREAM_FAILED]")


def test_a_second_interrupt_ends_at_once() -> None:
    interrupt = Interrupt()
    assert not interrupt.asked
    interrupt.ask()
    assert interrupt.asked
    with pytest.raises(KeyboardInterrupt):
        interrupt.ask()
