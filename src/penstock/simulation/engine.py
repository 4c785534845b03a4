"""Choose the engine of a simulation: without events if nothing feeds back, with events otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.simulation.array_engine import simulate_arrays
from penstock.simulation.event_engine import simulate_events
from penstock.simulation.scenario import check_limits, check_scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.simulation.outcome import SimulationOutcome
    from penstock.simulation.scenario import Scenario


def simulate_scenario(scenario: Scenario, progress: Callable[[float], None] | None = None) -> SimulationOutcome:
    """Simulate a scenario. `progress` gets the part of the time that is done, now and then.

    The same scenario has the same outcome, to the last bit.
    """
    check_scenario(scenario)
    events = feeds_back(scenario)
    check_limits(scenario, events=events)
    return simulate_events(scenario, progress) if events else simulate_arrays(scenario, progress)


def feeds_back(scenario: Scenario) -> bool:
    """Whether what happens to a tuple depends on what happens behind it, or on what other operators send."""
    return any(
        pipeline.in_flight is not None
        or pipeline.queue_limit is not None
        or (pipeline.replay_seconds is not None and scenario.outages)
        or any(route.bytes > 0 for route in pipeline.routes)
        for pipeline in scenario.pipelines
    )
