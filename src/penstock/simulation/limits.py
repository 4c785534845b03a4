"""How much a simulation may be asked for. Whatever is within these ends: in seconds mostly, in minutes at the worst."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.simulation.checks import in_order

if TYPE_CHECKING:
    from penstock.simulation.system import Scenario, SimulatedPipeline

LEAST_SECONDS = 1e-3
MOST_SECONDS = 1e6
"""Simulated in one go: eleven days."""
LONGEST_SECONDS = 1e9
"""Any other length of time. Nanoseconds of it are whole numbers that a computer word holds."""
MOST_TUPLES = 50_000_000
"""That sources emit, where operators are gone through one after the other: about two million a second."""
MOST_EVENT_TUPLES = 5_000_000
"""The same where every tuple is an event, which takes a hundred times as long."""
MOST_THREADS = 1_000_000
MOST_KEYS = 10_000_000
MOST_SKEW = 100.0
MOST_RESULTS = 100_000
"""Tuples that one tuple becomes: they are made at once."""
LEAST_INTERVAL_MS = 1e-3
MOST_WINDOWS = 4_000_000


def within(what: str, value: float, least: float, most: float, unit: str = "") -> None:
    """One line that says the limit; what is no number is within nothing."""
    if not least <= value <= most:
        raise BadInputError(f"{what}: expected {least:g} to {most:g}{unit}, found {value:g}")


def check_limits(scenario: Scenario, *, events: bool) -> None:
    """`events`: whether tuples are simulated one by one."""
    within("seconds", scenario.seconds, LEAST_SECONDS, MOST_SECONDS, " s to simulate")
    within("simulation windows", scenario.seconds / scenario.window_seconds, 0, MOST_WINDOWS)
    if scenario.batch_interval_ms is not None:
        within("batch interval", scenario.batch_interval_ms, LEAST_INTERVAL_MS, 1000 * LONGEST_SECONDS, " ms")
    for hop in ("same_slot_ms", "same_node_ms", "same_rack_ms", "other_rack_ms"):
        within(f"network: {hop}", getattr(scenario.network, hop), 0, 1000 * LONGEST_SECONDS)
    for outage in scenario.outages:
        for moment in (outage.start, outage.end):
            within(f"outage of '{outage.node}'", moment or 0.0, 0, LONGEST_SECONDS, " s")
    for switch in scenario.switches:
        within(f"switch of '{switch.pipeline}'", switch.at, 0, LONGEST_SECONDS, " s")
        within(f"pause of '{switch.pipeline}'", switch.pause_seconds, 0, LONGEST_SECONDS, " s")
    for pipeline in scenario.pipelines:
        _check_pipeline(pipeline)
    emitted = sum(_tuples(pipeline, scenario) for pipeline in scenario.pipelines)
    most = MOST_EVENT_TUPLES if events else MOST_TUPLES
    if emitted > most:
        how = " one by one, as bounded queues, loops, links and replays need" if events else ""
        raise BadInputError(
            f"simulation: {emitted:,.3g} tuples in {scenario.seconds:g} s, expected at most {most:,}{how}; "
            "simulate fewer seconds or a lower load"
        )


def _tuples(pipeline: SimulatedPipeline, scenario: Scenario) -> float:
    """How many tuples of its sources get in at most: what is due, or what the slowest operator does and what may wait
    before it. The others stay outside, and cost nothing. Streams may carry a constant number more, whatever comes."""
    gains = dict.fromkeys(pipeline.sources, 1.0)
    for name in in_order(pipeline):
        for route in pipeline.routes:
            if route.sender == name:
                gains[route.receiver] = gains.get(route.receiver, 0.0) + gains.get(name, 0.0) * route.selectivity
    supported = math.inf
    for name in pipeline.operators:
        if (gain := gains.get(name, 0.0)) > 0:
            rate = sum(station.rate for station in pipeline.stations if station.operator == name)
            supported = min(supported, rate / gain)
    due = pipeline.load.expected(scenario.seconds)
    constant = sum(route.constant for route in pipeline.routes) * scenario.seconds
    return len(pipeline.sources) * min(due, supported * scenario.seconds + scenario.most_waiting) + constant


def _check_pipeline(pipeline: SimulatedPipeline) -> None:
    where = f"pipeline '{pipeline.name}'"
    within(f"{where}: threads", sum(station.threads for station in pipeline.stations), 1, MOST_THREADS)
    if pipeline.replay_seconds is not None:
        within(f"{where}: replay_seconds", pipeline.replay_seconds, LEAST_SECONDS, LONGEST_SECONDS, " s")
    for station in pipeline.stations:
        within(f"{where}: station {station}: service_seconds", station.service_seconds, 0, LONGEST_SECONDS, " s")
    for route in pipeline.routes:
        within(f"{where}: stream {route}: selectivity", route.selectivity, 0, MOST_RESULTS)
        within(f"{where}: stream {route}: skew", route.skew, 0, MOST_SKEW)
        within(f"{where}: stream {route}: keys", route.keys, 1, MOST_KEYS)
