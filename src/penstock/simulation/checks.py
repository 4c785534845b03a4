"""What a scenario must be to be simulated; everything else is refused before a tuple moves."""

from __future__ import annotations

import math
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from penstock.errors import BadInputError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.simulation.system import Network, Scenario, SimulatedPipeline, SimulatedRoute, Station


def check_scenario(scenario: Scenario) -> None:
    """Raises a `BadInputError` that names what is wrong."""
    _above_zero("seconds", scenario.seconds)
    _above_zero("window_seconds", scenario.window_seconds)
    if not 0 <= scenario.warm_up < scenario.seconds:
        raise BadInputError(
            f"warm-up: expected at least 0 and less than the {scenario.seconds:g} s simulated, "
            f"found {scenario.warm_up:g}"
        )
    if scenario.batch_interval_ms is not None:
        _above_zero("batch interval", scenario.batch_interval_ms)
    if scenario.slot_cores is not None:
        _above_zero("slot_cores", scenario.slot_cores)
    for what, value in (("points", scenario.points), ("most_waiting", scenario.most_waiting)):
        if value < 1:
            raise BadInputError(f"{what}: expected at least 1, found {value}")
    _check_network(scenario.network)
    if not scenario.pipelines:
        raise BadInputError("simulation: expected at least one pipeline")
    names = [pipeline.name for pipeline in scenario.pipelines]
    for name in names:
        if names.count(name) > 1:
            raise BadInputError(f"pipeline '{name}' is given twice")
    for pipeline in scenario.pipelines:
        check_pipeline(pipeline, scenario)
    _check_outages(scenario)
    _check_switches(scenario, names)


def _check_outages(scenario: Scenario) -> None:
    for outage in scenario.outages:
        if scenario.cluster.find(outage.node) is None:
            known = nearest(outage.node, [node.name for node in scenario.cluster.nodes])
            raise BadInputError(f"outage: unknown node '{outage.node}'; {known}")
        if not 0 <= outage.start < math.inf or (outage.end is not None and not outage.end > outage.start):
            raise BadInputError(f"outage of '{outage.node}': expected a start of at least 0 and an end after it")


def _check_switches(scenario: Scenario, names: Sequence[str]) -> None:
    for switch in scenario.switches:
        if switch.pipeline not in names:
            raise BadInputError(f"switch: unknown pipeline '{switch.pipeline}'; {nearest(switch.pipeline, names)}")
        if not 0 <= switch.at < math.inf or not 0 <= switch.pause_seconds < math.inf:
            raise BadInputError(f"switch of '{switch.pipeline}': expected a time and a pause of at least 0")
        pipeline = scenario.pipelines[names.index(switch.pipeline)]
        _check_stations(switch.stations, f"switch of '{switch.pipeline}'", scenario)
        there = {station.operator for station in switch.stations}
        for name in pipeline.operators:
            if name not in there:
                raise BadInputError(f"switch of '{switch.pipeline}': operator '{name}' has no station")
        for name in there:
            if name not in pipeline.operators:
                known = nearest(name, pipeline.operators)
                raise BadInputError(f"switch of '{switch.pipeline}': unknown operator '{name}'; {known}")


def check_pipeline(pipeline: SimulatedPipeline, scenario: Scenario) -> None:
    where = f"pipeline '{pipeline.name}'"
    if not pipeline.stations:
        raise BadInputError(f"{where}: expected at least one station")
    if not pipeline.sources:
        raise BadInputError(f"{where}: expected at least one source")
    for what, limit in (("in_flight", pipeline.in_flight), ("queue_limit", pipeline.queue_limit)):
        if limit is not None and limit < 1:
            raise BadInputError(f"{where}: {what}: expected at least 1, found {limit}")
    if pipeline.replay_seconds is not None:
        _above_zero(f"{where}: replay_seconds", pipeline.replay_seconds)
    _check_stations(pipeline.stations, where, scenario)
    operators = pipeline.operators
    for name in pipeline.sources:
        if name not in operators:
            raise BadInputError(f"{where}: source '{name}' has no station; {nearest(name, operators)}")
    for route in pipeline.routes:
        _check_route(route, pipeline, where)
    received = {route.receiver for route in pipeline.routes}
    for name in operators:
        if name not in received and name not in pipeline.sources:
            raise BadInputError(f"{where}: operator '{name}' receives no stream and is not a source")
    in_order(pipeline)


def _check_route(route: SimulatedRoute, pipeline: SimulatedPipeline, where: str) -> None:
    for end in (route.sender, route.receiver):
        if end not in pipeline.operators:
            known = nearest(end, pipeline.operators)
            raise BadInputError(f"{where}: stream {route}: '{end}' has no station; {known}")
    if route.receiver in pipeline.sources:
        raise BadInputError(f"{where}: stream {route}: a source has no input")
    for what, value in (
        ("selectivity", route.selectivity),
        ("constant", route.constant),
        ("bytes", route.bytes),
        ("skew", route.skew),
    ):
        if not 0 <= value < math.inf:
            raise BadInputError(f"{where}: stream {route}: {what}: expected at least 0, found {value:g}")
    if route.keys < 1:
        raise BadInputError(f"{where}: stream {route}: keys: expected at least 1, found {route.keys}")


def in_order(pipeline: SimulatedPipeline) -> tuple[str, ...]:
    """Operators so that every stream goes forward, ties in declared order."""
    sorter: TopologicalSorter[str] = TopologicalSorter({name: [] for name in pipeline.operators})
    for route in pipeline.routes:
        sorter.add(route.receiver, route.sender)
    try:
        return tuple(sorter.static_order())
    except CycleError as error:
        cycle = " -> ".join(f"'{name}'" for name in error.args[1])
        raise BadInputError(f"pipeline '{pipeline.name}': a simulation needs no cycles, found {cycle}") from error


def _check_stations(stations: Iterable[Station], where: str, scenario: Scenario) -> None:
    seen: set[tuple[str, object]] = set()
    for station in stations:
        position = scenario.cluster.find(station.slot.node)
        if position is None:
            known = nearest(station.slot.node, [node.name for node in scenario.cluster.nodes])
            raise BadInputError(f"{where}: station {station}: unknown node '{station.slot.node}'; {known}")
        slots = scenario.cluster.nodes[position].slots
        if not 0 <= station.slot.number < slots:
            raise BadInputError(f"{where}: station {station}: the node has slots 0 to {slots - 1}")
        if (station.operator, station.slot) in seen:
            raise BadInputError(f"{where}: station {station} is given twice")
        seen.add((station.operator, station.slot))
        if station.threads < 1:
            raise BadInputError(f"{where}: station {station}: expected at least 1 thread, found {station.threads}")
        for what, value in (
            ("service_seconds", station.service_seconds),
            ("cpu_seconds", station.cpu_seconds),
            ("idle_cpu", station.idle_cpu),
        ):
            if not 0 <= value < math.inf:
                raise BadInputError(f"{where}: station {station}: {what}: expected at least 0, found {value:g}")


def _check_network(network: Network) -> None:
    for what in ("same_slot_ms", "same_node_ms", "same_rack_ms", "other_rack_ms"):
        value = getattr(network, what)
        if not 0 <= value < math.inf:
            raise BadInputError(f"network: {what}: expected at least 0, found {value:g}")
    if network.bandwidth_mbps is not None:
        _above_zero("network: bandwidth_mbps", network.bandwidth_mbps)


def _above_zero(what: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise BadInputError(f"{what}: expected a finite number above 0, found {value:g}")
