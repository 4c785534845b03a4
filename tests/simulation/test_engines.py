"""Two engines, one answer; nothing appears or disappears."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from systems import alone, queue, scenarios

from effort import tries
from penstock.simulation.array_engine import simulate_arrays
from penstock.simulation.engine import feeds_back, simulate_scenario
from penstock.simulation.event_engine import simulate_events
from penstock.simulation.outcome import SimulationOutcome
from penstock.simulation.scenario import Scenario, SimulatedPipeline, check_scenario

EXAMPLES = tries(2)

COUNTS = (
    *(
        "offered",
        "emitted",
        "waiting",
        "completed",
        "arrived",
        "queued",
        "travelling",
        "lost",
        "replayed",
        "duplicated",
    ),
    *("offered_rate", "sustained_rate", "falling_behind", "stations", "operators", "busiest", "drained"),
)


def same(one: SimulationOutcome, other: SimulationOutcome) -> None:
    assert one.hops == other.hops
    for name, ours in one.pipelines.items():
        theirs = other.pipelines[name]
        for what in COUNTS:
            assert getattr(ours, what) == getattr(theirs, what), what
        assert ours.latency_slope == pytest.approx(theirs.latency_slope, abs=1e-9)
        assert np.array_equal(np.sort(ours.latency.sample), np.sort(theirs.latency.sample))
        for what in ("offered", "emitted", "completed", "latency_p95"):
            assert np.array_equal(getattr(ours.timeline, what), getattr(theirs.timeline, what), equal_nan=True), what
        assert np.allclose(ours.timeline.latency_mean, theirs.timeline.latency_mean, equal_nan=True)
    assert one.slots == other.slots


@EXAMPLES
@given(scenarios())
def test_both_engines_give_the_same_numbers(scenario: Scenario) -> None:
    check_scenario(scenario)
    assert not feeds_back(scenario)
    same(simulate_arrays(scenario), simulate_events(scenario))


def conserved(outcome: SimulationOutcome, pipelines: tuple[SimulatedPipeline, ...]) -> None:
    """What an operator received it processed, has, or lost; what streams carried was received, travels, or was lost."""
    for pipeline in pipelines:
        seen = outcome.pipelines[pipeline.name]
        for station in seen.stations:
            assert station.received == station.processed + station.queued + station.lost, station
        sent = seen.emitted + sum(operator.sent for operator in seen.operators.values())
        received = sum(operator.received for operator in seen.operators.values())
        lost_travelling = seen.lost - sum(station.lost for station in seen.stations)
        assert sent == received + seen.travelling + lost_travelling
        assert seen.offered + seen.replayed == seen.emitted + seen.waiting
        assert seen.waiting >= 0


@EXAMPLES
@given(scenarios())
def test_in_is_out_and_queued_and_lost(scenario: Scenario) -> None:
    conserved(simulate_scenario(scenario), scenario.pipelines)


@EXAMPLES
@given(
    scenarios(),
    st.sampled_from([None, 1, 3, 20]),
    st.sampled_from([None, 1, 5]),
    st.sampled_from([None, 0.2]),
    st.sampled_from([0.0, 2000.0, 200_000.0]),
)
def test_in_is_out_with_feedback(
    scenario: Scenario, in_flight: int | None, limit: int | None, replay: float | None, size: float
) -> None:
    fed_back = replace(
        scenario,
        pipelines=tuple(
            replace(
                pipeline,
                in_flight=in_flight,
                queue_limit=limit,
                replay_seconds=replay,
                routes=tuple(replace(route, bytes=size) for route in pipeline.routes),
            )
            for pipeline in scenario.pipelines
        ),
    )
    conserved(simulate_scenario(fed_back), fed_back.pipelines)


@EXAMPLES
@given(scenarios())
def test_the_same_seed_gives_the_same_numbers(scenario: Scenario) -> None:
    same(simulate_scenario(scenario), simulate_scenario(scenario))


def test_windows_of_any_length_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = alone(queue(90.0, 0.02, threads=2), 20.0)
    whole = simulate_arrays(scenario)
    monkeypatch.setattr("penstock.simulation.layout.TUPLES_A_WINDOW", 7)
    same(whole, simulate_arrays(scenario))
