"""What was predicted of a placed run beside what was measured, and whether placement was obeyed."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from penstock.report.result import RESULT_FORMAT, rate_error, search_document
from penstock.report.words import headline, summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.dataflow.load import Load
    from penstock.report.report import Report
    from penstock.report.result import TriedRate


@dataclass(frozen=True, slots=True)
class PlanChange:
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
    """`slots_rate` is what the plan's slots support if each is a core; `engine_rate` what processes of Python, and the
    cores they share, do."""

    pipeline: str
    folder: str
    routing: str
    slots_rate: float | None
    engine_rate: float | None
    predicted_slots: Mapping[Slot, tuple[float, float]]
    """Cores and MB, the engine's own among them."""
    report: Report
    places: tuple[BundlePlace, ...]
    changes: tuple[PlanChange, ...]
    start_seconds: float
    drain_seconds: float
    interrupted: bool = False
    searched: bool = False
    highest_rate: float | None = None
    tried: tuple[TriedRate, ...] = ()
    predicted_latency_ms: Mapping[str, float] = field(default_factory=dict)
    hop_ms: Mapping[str, float] = field(default_factory=dict)
    """From one bundle to the next, by the clocks of their machines: percentiles."""
    load: Load | None = None
    """What was offered."""
    unsent: bool = False
    """The last epoch is committed, and some sink has not got it yet: whoever resumes the run sends it."""

    @property
    def slots(self) -> int:
        return len(self.report.slots)

    @property
    def predicted_rate(self) -> float | None:
        known = [rate for rate in (self.slots_rate, self.engine_rate) if rate is not None]
        return min(known, default=None)

    @property
    def rate_error(self) -> float | None:
        return rate_error(self.predicted_rate, self.report, self.highest_rate, searched=self.searched)

    @property
    def headline(self) -> str:
        return headline(f"{self.pipeline} placed, {self.routing} routing", self.report)

    def __str__(self) -> str:
        return "\n".join(
            summary(self.headline, self.report, self.predicted_rate, self.rate_error, self.predicted_latency_ms)
        )

    @property
    def obeyed(self) -> bool:
        return all(place.obeyed for place in self.places)

    def document(self) -> dict[str, Any]:
        return {
            "format": RESULT_FORMAT,
            "pipeline": self.pipeline,
            "mode": "placed",
            "folder": self.folder,
            "routing": self.routing,
            "predicted_rate": self.predicted_rate,
            "predicted_by": {"slots": self.slots_rate, "engine": self.engine_rate},
            "rate_error": self.rate_error,
            "interrupted": self.interrupted,
            "unsent": self.unsent,
            "placement_obeyed": self.obeyed,
            "bundles": [place.document() for place in self.places],
            "predicted_slots": [
                {"node": slot.node, "slot": slot.number, "cpu": cpu, "memory": memory}
                for slot, (cpu, memory) in self.predicted_slots.items()
            ],
            "changes": [
                {
                    "drained_seconds": change.drained,
                    "resumed_seconds": change.resumed,
                    "seconds": change.seconds,
                    "plan": change.plan,
                }
                for change in self.changes
            ],
            "start_seconds": self.start_seconds,
            "drain_seconds": self.drain_seconds,
            "predicted_latency_ms": {
                name: value if isfinite(value) else None for name, value in self.predicted_latency_ms.items()
            },
            "hop_ms": dict(self.hop_ms),
            **(search_document(self.highest_rate, self.tried) if self.searched else {}),
            **self.report.document(),
        }
