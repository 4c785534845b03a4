"""Queues with known answers: means within confidence intervals over independent replications."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from systems import alone, queue, station

from penstock.dataflow.load import Load
from penstock.planning.prediction.placement import erlang_c
from penstock.simulation.engine import simulate_scenario
from penstock.simulation.scenario import Arrivals, Service, SimulatedPipeline, SimulatedRoute

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.simulation.outcome import PipelineOutcome

REPLICATIONS = 10
STUDENT = 4.781
"""The 99.95 % point of Student's t with 9 degrees of freedom: an interval that holds the mean 999 times in 1000."""


def replicated(pipeline: SimulatedPipeline, seconds: float, what: Callable[[PipelineOutcome], float]) -> list[float]:
    return [
        what(
            simulate_scenario(alone(pipeline, seconds, warm_up=seconds / 10, seed=seed, contention=False)).pipelines[
                pipeline.name
            ]
        )
        for seed in range(REPLICATIONS)
    ]


def agrees(seen: list[float], expected: float, width: float) -> None:
    """The interval holds what theory says, and is no wider than `width` of it: it could miss."""
    half = STUDENT * float(np.std(seen, ddof=1)) / math.sqrt(len(seen))
    assert half < width * expected
    assert abs(float(np.mean(seen)) - expected) < half, (np.mean(seen), expected, half)


def mean_seconds(outcome: PipelineOutcome) -> float:
    return outcome.latency.mean


# With arrivals L and service s, load r = L s: in M/M/1 a tuple takes s / (1 - r), in M/D/1 s + r s / (2 (1 - r)).
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("service", [Service.EXPONENTIAL, Service.CONSTANT])
def test_one_server(load: float, service: Service) -> None:
    s = load / 200.0
    pipeline = queue(200.0, s, service=service, arrivals=Arrivals.POISSON)
    expected = s / (1 - load) if service is Service.EXPONENTIAL else s + load * s / (2 * (1 - load))
    agrees(replicated(pipeline, 500.0, mean_seconds), expected, 0.08)


# In M/M/c: s + C(c, a) s / (c - a), with a = L s and Erlang's C.
@pytest.mark.parametrize(("threads", "load"), [(2, 0.7), (5, 0.8), (20, 0.9)])
def test_many_servers(threads: int, load: float) -> None:
    s = load * threads / 200.0
    pipeline = queue(200.0, s, threads=threads, service=Service.EXPONENTIAL, arrivals=Arrivals.POISSON)
    offered = load * threads
    expected = s + erlang_c(threads, offered) * s / (threads - offered)
    agrees(replicated(pipeline, 400.0, mean_seconds), expected, 0.08)


def test_the_time_in_m_m_1_is_exponential() -> None:
    # P(T > t) = exp(-(1/s - L) t): the 95th percentile is ln 20 / (1/s - L)
    pipeline = queue(200.0, 0.003, service=Service.EXPONENTIAL, arrivals=Arrivals.POISSON)
    expected = math.log(20) / (1 / 0.003 - 200.0)
    agrees(replicated(pipeline, 500.0, lambda seen: seen.latency.quantile(0.95) or 0.0), expected, 0.08)


def test_a_server_is_busy_for_its_load() -> None:
    pipeline = queue(200.0, 0.003, service=Service.EXPONENTIAL, arrivals=Arrivals.POISSON)
    agrees(replicated(pipeline, 300.0, lambda seen: seen.operators["work"].utilisation), 0.6, 0.03)


def test_little_s_law() -> None:
    # tuples inside, as the backlog over time tells = rate * time inside
    pipeline = queue(200.0, 0.004, service=Service.EXPONENTIAL, arrivals=Arrivals.POISSON)
    seen = simulate_scenario(alone(pipeline, 2000.0, points=2000, contention=False)).pipelines["queue"]
    assert float(seen.timeline.backlog.mean()) == pytest.approx(200.0 * seen.latency.mean, rel=0.1)


# Burke: what leaves an M/M/1 is Poisson again, so two in a row take s1 / (1 - r1) + s2 / (1 - r2).
def test_tandem() -> None:
    two = SimulatedPipeline(
        "tandem",
        (
            station("source"),
            station("first", slot=1, seconds=0.003, service=Service.EXPONENTIAL),
            station("second", slot=2, seconds=0.0035, service=Service.EXPONENTIAL),
        ),
        (SimulatedRoute("source", "first"), SimulatedRoute("first", "second")),
        ("source",),
        Load.constant(200.0),
        Arrivals.POISSON,
    )
    agrees(replicated(two, 500.0, mean_seconds), 0.003 / 0.4 + 0.0035 / 0.3, 0.08)


def test_one_server_event_by_event() -> None:
    # the same queue through the other engine: a loop so wide that it never closes
    pipeline = replace(queue(200.0, 0.003, service=Service.EXPONENTIAL, arrivals=Arrivals.POISSON), in_flight=1_000_000)
    agrees(replicated(pipeline, 100.0, mean_seconds), 0.003 / 0.4, 0.15)


def test_poisson_counts_follow_the_load() -> None:
    # on for 1 s at 1,000/s, off for 1 s: counts of the seconds have mean = variance = 1,000, and 0
    pipeline = replace(queue(1.0, 0.0, arrivals=Arrivals.POISSON), load=Load.on_off(1000.0, 1.0, 1.0))
    offered = simulate_scenario(alone(pipeline, 400.0, points=400)).pipelines["queue"].timeline.offered
    assert offered[1::2].sum() == 0
    on = offered[0::2]
    assert on.mean() == pytest.approx(1000.0, rel=0.01)
    assert on.var(ddof=1) == pytest.approx(1000.0, rel=0.35)
