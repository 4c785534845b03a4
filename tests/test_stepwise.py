"""The published way to a model: the worked cases, and input that makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from adapters import Given, cases, close
from penstock.base.errors import BadInputError
from penstock.modelling.model import Point
from penstock.profiling.stepwise import Steps, slope, stepwise_points


@pytest.mark.parametrize(("given", "expected"), cases("perf_model"))
def test_worked_cases(given: Given, expected: dict[str, list[float]]) -> None:
    def try_rate(threads: int, rate: float) -> Point | None:
        if rate > given["capacity"][str(threads)]:
            return None
        return Point(
            threads=threads, rate=rate, cpu=given["cpu_per_tuple"] * rate, memory=given["mem_per_thread"] * threads
        )

    steps = Steps(
        given["tau_max"], given["w_max"], given.get("d_tau", 1), given.get("d_w", 1), window=given.get("window", 3)
    )
    found = {str(point.threads): [point.rate, point.cpu, point.memory] for point in stepwise_points(try_rate, steps)}
    assert found == {threads: close(figures) for threads, figures in expected.items()}


def test_a_window_of_two_ends_at_the_first_count_that_is_no_better() -> None:
    peaks = {1: 2.0, 2: 4.0, 3: 4.0, 4: 9.0}
    tried: list[tuple[int, float]] = []

    def try_rate(threads: int, rate: float) -> Point | None:
        tried.append((threads, rate))
        return Point(threads=threads, rate=rate, cpu=0.5, memory=0.5) if rate <= peaks[threads] else None

    found = list(stepwise_points(try_rate, Steps(4, 100, window=2)))
    assert [(point.threads, point.rate) for point in found] == [(1, 2.0), (2, 4.0), (3, 4.0)]
    # rates 1, 2, 3 | 1 to 5 | 1 to 5: each count is given up at its first rate that is not stable
    assert len(tried) == 3 + 5 + 5


def test_slope() -> None:
    # (4 - 2) / (1 - 0); through 4, 8, 6: (-1 * 4 + 0 * 8 + 1 * 6) / 2 = 1
    assert slope([2, 4]) == pytest.approx(2)
    assert slope([4, 8, 6]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"most_threads": 0}, "most_threads: expected a number of at least 1, found 0"),
        ({"most_rate": float("inf")}, "most_rate: expected a number of at least 1, found inf"),
        ({"rate_step": 0.0}, "rate_step: expected a number above 0, found 0"),
        ({"thread_step": 0}, "thread_step: expected a number of at least 1, found 0"),
        ({"window": 1}, "window: expected a number of at least 2, found 1"),
    ],
)
def test_steps_that_lead_nowhere(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        Steps(**{"most_threads": 4, "most_rate": 10.0, **wrong})
