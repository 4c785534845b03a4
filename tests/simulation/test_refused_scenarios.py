"""Scenarios that are refused, with what to do; and which engine takes those that are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from systems import alone, queue, station

from penstock.base.errors import BadInputError
from penstock.simulation.engine import feeds_back, simulate_scenario
from penstock.simulation.scenario import Network, Outage, SimulatedRoute, Switch

GOOD = queue(10.0, 0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": 0.0}, "seconds: expected a finite number above 0"),
        ({"warm_up": 10.0}, "warm-up: expected at least 0 and less than the 10 s simulated"),
        ({"pipelines": ()}, "expected at least one pipeline"),
        ({"pipelines": (GOOD, GOOD)}, "pipeline 'queue' is given twice"),
        (
            {"network": Network(bandwidth_mbps=0.0)},
            "bandwidth_mbps: expected a finite number above 0, found 0",
        ),
        ({"network": Network(same_rack_ms=-1.0)}, "network: same_rack_ms: expected at least 0, found -1"),
        ({"batch_interval_ms": 0.0}, "batch interval: expected a finite number above 0"),
        ({"outages": (Outage("n9", 1.0),)}, "outage: unknown node 'n9'"),
        ({"outages": (Outage("n0", 5.0, 4.0),)}, "outage of 'n0': expected a start of at least 0 and an end after it"),
        ({"switches": (Switch(1.0, "quue", GOOD.stations),)}, "unknown pipeline 'quue'; did you mean 'queue'?"),
        ({"switches": (Switch(1.0, "queue", GOOD.stations[:2]),)}, "operator 'sink' has no station"),
        ({"points": 0}, "points: expected at least 1, found 0"),
    ],
)
def test_bad_scenarios_are_refused(change: dict[str, Any], message: str) -> None:
    scenario = replace(alone(GOOD, 10.0), **change)
    with pytest.raises(BadInputError, match=message.replace("?", r"\?")):
        simulate_scenario(scenario)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stations": ()}, "expected at least one station"),
        ({"sources": ()}, "expected at least one source"),
        ({"sources": ("work",)}, "a source has no input"),
        ({"in_flight": 0}, "in_flight: expected at least 1, found 0"),
        ({"queue_limit": 0}, "queue_limit: expected at least 1, found 0"),
        ({"replay_seconds": -1.0}, "replay_seconds: expected a finite number above 0"),
        ({"routes": (SimulatedRoute("source", "wrok"),)}, "'wrok' has no station; did you mean 'work'?"),
        ({"routes": GOOD.routes[:1]}, "operator 'sink' receives no stream and is not a source"),
        ({"routes": (*GOOD.routes, SimulatedRoute("sink", "work"))}, "a simulation needs no cycles, found"),
        (
            {"routes": (GOOD.routes[0], SimulatedRoute("work", "sink", selectivity=-1.0))},
            "selectivity: expected at least 0",
        ),
        ({"stations": (*GOOD.stations, GOOD.stations[1])}, "is given twice"),
        ({"stations": (*GOOD.stations[:2], station("sink", 7))}, "unknown node 'n7'"),
        ({"stations": (*GOOD.stations[:2], station("sink", 0, 9))}, "the node has slots 0 to 3"),
        ({"stations": (*GOOD.stations[:2], station("sink", threads=0))}, "expected at least 1 thread, found 0"),
        ({"stations": (*GOOD.stations[:2], station("sink", seconds=-1.0))}, "service_seconds: expected at least 0"),
    ],
)
def test_bad_pipelines_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message.replace("?", r"\?")):
        simulate_scenario(alone(replace(GOOD, **change), 10.0))


def test_only_feedback_needs_events() -> None:
    assert not feeds_back(alone(GOOD, 1.0))
    for change in (
        {"in_flight": 5},
        {"queue_limit": 5},
        {"routes": (SimulatedRoute("source", "work", bytes=8.0), GOOD.routes[1])},
    ):
        assert feeds_back(alone(replace(GOOD, **change), 1.0))
    assert simulate_scenario(alone(GOOD, 1.0)).engine == "arrays"
    assert simulate_scenario(alone(replace(GOOD, in_flight=5), 1.0)).engine == "events"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": 1e12}, r"seconds: expected 0.001 to 1e\+06 s to simulate, found 1e\+12"),
        ({"seconds": 1e-300}, "seconds: expected 0.001 to"),
        ({"seconds": 1e5, "window_seconds": 1e-6}, r"simulation windows: expected 0 to 4e\+06, found 1e\+11"),
        ({"batch_interval_ms": 1e-9}, "batch interval: expected 0.001 to"),
        ({"network": Network(same_node_ms=1e300)}, "network: same_node_ms: expected 0 to"),
        ({"outages": (Outage("n0", 1e300),)}, r"outage of 'n0': expected 0 to 1e\+09 s, found 1e\+300"),
        ({"switches": (Switch(1e300, "queue", GOOD.stations),)}, r"switch of 'queue': expected 0 to 1e\+09 s"),
        ({"switches": (Switch(1.0, "queue", GOOD.stations, pause_seconds=1e300),)}, "pause of 'queue': expected 0 to"),
        ({"pipelines": (replace(GOOD, replay_seconds=1e-300),)}, "replay_seconds: expected 0.001 to"),
        (
            {"pipelines": (replace(queue(1e9, 0.0), name="queue"),)},
            r"1e\+10 tuples in 10 s, expected at most 50,000,000; simulate fewer seconds",
        ),
        (
            {"pipelines": (replace(queue(1e6, 0.0), name="queue", queue_limit=5),)},
            r"1e\+07 tuples in 10 s, expected at most 5,000,000 one by one, as bounded queues",
        ),
        (
            {"pipelines": (replace(GOOD, stations=(*GOOD.stations[:2], station("sink", threads=10**9))),)},
            r"threads: expected 1 to 1e\+06, found 1e\+09",
        ),
        (
            {"pipelines": (replace(GOOD, routes=(GOOD.routes[0], SimulatedRoute("work", "sink", skew=1e300))),)},
            r"skew: expected 0 to 100, found 1e\+300",
        ),
    ],
)
def test_what_would_take_too_long_says_the_limit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message) as refused:
        simulate_scenario(replace(alone(GOOD, 10.0), **change))
    assert "\n" not in str(refused.value)
