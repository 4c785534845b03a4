"""The controller for Prometheus: its own registry, and the names and units of the one list of metrics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from penstock.control.core.states import NodeState, PipelineState
from penstock.control.metrics import MEANINGS, Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric as Family

    from penstock.control.controller import Controller


LABELS = {
    Scope.PIPELINE: ["pipeline"],
    Scope.OPERATOR: ["pipeline", "operator"],
    Scope.THREAD: ["pipeline", "operator", "node", "slot"],
    Scope.PARTITION: ["pipeline", "topic", "partition"],
    Scope.NODE: ["node"],
}


class Collector:
    """Reads the state when it is asked."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Family]:
        state = self._controller.state
        latest = list(self._controller.statistics.latest(state))
        for metric, meaning in MEANINGS.items():
            for scope in meaning.scopes:
                labels = LABELS[scope]
                family = GaugeMetricFamily(
                    f"penstock_{scope}_{metric}", f"{meaning.about} Unit: {meaning.unit}.", labels=labels
                )
                for subject, values in latest:
                    if subject.scope is scope and metric in values:
                        family.add_metric([str(getattr(subject, label)) for label in labels], values[metric])
                yield family
        yield _counted(
            "penstock_pipelines", "Pipelines by state.", PipelineState, (r.state for r in state.pipelines.values())
        )
        yield _counted("penstock_nodes", "Nodes by state.", NodeState, (node.state for node in state.nodes.values()))
        yield GaugeMetricFamily("penstock_units", "Units of all nodes that are alive.", value=state.capacity)


def _counted(name: str, about: str, states: type[PipelineState] | type[NodeState], states_now: Iterator[str]) -> Family:
    counts = Counter(map(str, states_now))
    family = GaugeMetricFamily(name, about, labels=["state"])
    for state in states:
        family.add_metric([str(state)], counts[str(state)])
    return family


def exposition(controller: Controller) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(controller))
    return generate_latest(registry)
