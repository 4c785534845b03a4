"""What was predicted of a placed run beside what was measured, and whether placement was obeyed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.report.result import search_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.report.report import Report
    from penstock.report.result import TriedRate


@dataclass(frozen=True, slots=True)
class Change:
    """A drain and a resume, in seconds: until nothing was in flight, until the first tuple came to its end."""

    drained: float
    resumed: float
    plan: str | None

    @property
    def seconds(self) -> float:
        return self.drained + self.resumed


@dataclass(frozen=True, slots=True)
class BundlePlace:
    """Where a bundle was to run, and what Spark and the operating system say about where it ran."""

    operators: tuple[str, ...]
    planned: Slot
    resources: Mapping[str, Sequence[str]]
    executor: str | None
    worker: str | None
    process: int | None
    obeyed: bool
    """Spark says that its tasks held a unit of the planned node's resource."""

    def document(self) -> dict[str, Any]:
        return {
            "operators": list(self.operators),
            "node": self.planned.node,
            "slot": self.planned.number,
            "resources": {name: list(addresses) for name, addresses in self.resources.items()},
            "executor": self.executor,
            "worker": self.worker,
            "process": self.process,
            "obeyed": self.obeyed,
        }


@dataclass(frozen=True, slots=True)
class PlacedResult:
    """`slots_rate` is what the plan's slots support if each is a core; `machine_rate` what the cores they share do."""

    pipeline: str
    folder: str
    routing: str
    slots_rate: float | None
    machine_rate: float | None
    predicted_slots: Mapping[Slot, tuple[float, float]]
    """cpu and memory in slots, as the plan says."""
    report: Report
    places: tuple[BundlePlace, ...]
    changes: tuple[Change, ...]
    start_seconds: float
    drain_seconds: float
    interrupted: bool = False
    searched: bool = False
    highest_rate: float | None = None
    tried: tuple[TriedRate, ...] = ()

    @property
    def predicted_rate(self) -> float | None:
        known = [rate for rate in (self.slots_rate, self.machine_rate) if rate is not None]
        return min(known, default=None)

    @property
    def rate_error(self) -> float | None:
        """(predicted - measured) / measured, where the pipeline was asked for more than it can do."""
        measured = self.report.sustained_rate
        if self.predicted_rate is None or self.report.stable or not measured:
            return None
        return (self.predicted_rate - measured) / measured

    @property
    def obeyed(self) -> bool:
        return all(place.obeyed for place in self.places)

    def document(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "mode": "placed",
            "folder": self.folder,
            "routing": self.routing,
            "predicted_rate": self.predicted_rate,
            "predicted_by": {"slots": self.slots_rate, "machine": self.machine_rate},
            "rate_error": self.rate_error,
            "interrupted": self.interrupted,
            "placement_obeyed": self.obeyed,
            "bundles": [place.document() for place in self.places],
            "predicted_slots": [
                {"node": slot.node, "slot": slot.number, "cpu": cpu, "memory": memory}
                for slot, (cpu, memory) in self.predicted_slots.items()
            ],
            "changes": [
                {
                    "drained_seconds": one.drained,
                    "resumed_seconds": one.resumed,
                    "seconds": one.seconds,
                    "plan": one.plan,
                }
                for one in self.changes
            ],
            "start_seconds": self.start_seconds,
            "drain_seconds": self.drain_seconds,
            **(search_document(self.highest_rate, self.tried) if self.searched else {}),
            **self.report.document(),
        }
