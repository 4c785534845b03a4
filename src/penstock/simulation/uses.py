"""CPU and memory of slots and nodes, from what their stations did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.simulation.outcome import Use
from penstock.simulation.system import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.topology import Slot
    from penstock.simulation.counters import Counters
    from penstock.simulation.system import Scenario


def uses_of(scenario: Scenario, counters: Sequence[Counters]) -> tuple[dict[Slot, Use], dict[str, Use]]:
    """Past the warm-up: CPU over the time, memory of a station `idle + (peak - idle) * min(1, rate / peak rate)`.

    Stations that were there part of the time count for their part.
    """
    cpu: dict[Slot, float] = {}
    memory: dict[Slot, float] = {}
    for run in counters:
        span = run.length - run.warm_up
        for counts in run.stations.values():
            station = counts.station
            there = counts.span / span
            idle, peak = station.memory_mb
            worked = counts.worked * station.service_seconds * NANOSECONDS
            load = min(1.0, worked / (counts.span * station.threads)) if counts.span else 0.0
            cpu[station.slot] = cpu.get(station.slot, 0.0) + (
                counts.worked * station.cpu_seconds * NANOSECONDS / span + station.idle_cpu * there
            )
            memory[station.slot] = memory.get(station.slot, 0.0) + there * (idle + (peak - idle) * load)
    order = sorted(cpu, key=lambda slot: (scenario.cluster.position(slot.node), slot.number))
    slots = {slot: Use(cpu[slot], memory[slot]) for slot in order}
    nodes: dict[str, Use] = {}
    for slot, use in slots.items():
        before = nodes.get(slot.node, Use(0.0, 0.0))
        nodes[slot.node] = Use(before.cpu + use.cpu, before.memory_mb + use.memory_mb)
    return slots, nodes
