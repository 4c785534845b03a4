"""The fleet as the page shows it: one row for every pipeline, totals, and a short trail of rates for each."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.control.core.states import NodeState, PipelineState
from penstock.control.metrics import Metric
from penstock.service import documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.cluster.topology import Slot
    from penstock.control.controller import Controller
    from penstock.control.core.outcome import StepOutcome
    from penstock.control.core.records import ControllerState, NodeRecord, PipelineRecord

TRAIL_LENGTH = 60
TRAIL_SECONDS = 5.0
"""Seconds of the controller's clock between two points of a trail."""


class Trails:
    """The last rates of every pipeline, for the small charts of the list."""

    def __init__(self, controller: Controller) -> None:
        self._clock = controller.clock
        self._trails: dict[str, deque[float]] = {}
        self._sampled = float("-inf")
        controller.watch(self._sample)

    def _sample(self, step: StepOutcome) -> None:
        now = self._clock.now()
        if now - self._sampled < TRAIL_SECONDS:
            return
        self._sampled = now
        for name, record in step.state.pipelines.items():
            trail = self._trails.setdefault(name, deque(maxlen=TRAIL_LENGTH))
            trail.append(record.readings.get(Metric.RATE, 0.0))
        for name in set(self._trails) - set(step.state.pipelines):
            del self._trails[name]

    def of(self, name: str) -> list[float]:
        return list(self._trails.get(name, ()))


def cost_per_hour(slots: Iterable[Slot], nodes: Mapping[str, NodeRecord]) -> float | None:
    """Sum over slots held of price(node) / slots(node); None if a node has no price."""
    total = 0.0
    for slot in slots:
        node = nodes.get(slot.node)
        if node is None or node.price is None:
            return None
        total += node.price / node.slots
    return total


def lag_seconds(record: PipelineRecord) -> float | None:
    """backlog / rate: how long what waits will take at the present rate."""
    backlog, rate = record.readings.get(Metric.BACKLOG), record.readings.get(Metric.RATE)
    if backlog is None or rate is None:
        return None
    if backlog <= 0:
        return 0.0
    return backlog / rate if rate > 0 else None


def row(state: ControllerState, record: PipelineRecord, trails: Trails) -> dict[str, Any]:
    readings = record.readings
    return {
        "name": record.name,
        "state": str(record.state),
        "since": record.since,
        "paused": record.paused,
        "priority": record.priority,
        "target": asdict(record.target),
        "rate": readings.get(Metric.RATE),
        "offered_rate": readings.get(Metric.OFFERED_RATE),
        "backlog": readings.get(Metric.BACKLOG),
        "lag_s": lag_seconds(record),
        "latency_ms": readings.get(Metric.LATENCY_MS),
        "busy": readings.get(Metric.BUSY),
        "held": state.units(record.held),
        "needed": record.needed,
        "desired": record.desired,
        "cost_per_hour": cost_per_hour(record.held, state.nodes),
        "fairness": record.served.degree,
        "waiting": record.waiting,
        "meets": meets_target(record),
        "trail": trails.of(record.name),
    }


def meets_target(record: PipelineRecord) -> bool | None:
    """Keeps up with what arrives, up to its target's rate, within its target's latency; None if it has no target or
    no readings."""
    target, readings = record.target, record.readings
    if (target.rate is None and target.latency_ms is None) or Metric.RATE not in readings:
        return None
    if record.state is not PipelineState.ACTIVE:
        return False
    latency = readings.get(Metric.LATENCY_MS)
    if target.latency_ms is not None and latency is not None and latency > target.latency_ms:
        return False
    wanted = min(target.rate or float("inf"), readings.get(Metric.OFFERED_RATE, target.rate or 0.0))
    return readings[Metric.RATE] >= 0.95 * wanted


def fleet(controller: Controller, trails: Trails) -> dict[str, Any]:
    state = controller.state
    records = [record for record in state.pipelines.values() if record.state is not PipelineState.KILLED]
    held = [slot for record in records for slot in record.held]
    return {
        "at": controller.clock.now(),
        "policy": documents.policy(state.policy),
        "units": {
            "all": state.capacity,
            "held": state.units(tuple(held)),
            "desired": sum(record.desired for record in records if not record.paused),
        },
        "nodes": dict(Counter(str(node.state) for node in state.nodes.values() if node.state is not NodeState.GONE)),
        "states": dict(Counter(str(record.state) for record in records)),
        "rate": sum(record.readings.get(Metric.RATE, 0.0) for record in records),
        "cost_per_hour": cost_per_hour(held, state.nodes),
        "pipelines": [row(state, record, trails) for record in sorted(records, key=lambda record: record.number)],
    }
