"""What was predicted beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.dataflow.load import Load
    from penstock.report.report import Report


@dataclass(frozen=True, slots=True)
class TriedRate:
    """One run of a search for the highest rate. `saturated`: far more was offered, and `rate` is what it did."""

    rate: float
    stable: bool
    sustained_rate: float
    saturated: bool


def search_document(highest_rate: float | None, tried: Sequence[TriedRate]) -> dict[str, Any]:
    return {
        "highest_rate": highest_rate,
        "tried": [
            {"rate": t.rate, "stable": t.stable, "sustained_rate": t.sustained_rate, "saturated": t.saturated}
            for t in tried
        ],
    }


@dataclass(frozen=True)
class RunResult:
    """Predicted beside measured."""

    pipeline: str
    slots: int
    threads: Mapping[str, int]
    predicted_rate: float | None
    """None: no operator has a model, so nothing can be said."""
    report: Report
    load: Load
    interrupted: bool = False
    searched: bool = False
    """Whether the highest stable rate was looked for."""
    highest_rate: float | None = None
    """The highest rate that was found stable; None: not looked for, or none was."""
    tried: tuple[TriedRate, ...] = ()
    predicted_use: Callable[[float], tuple[float, float]] | None = None
    """CPU (1.0 = one core) and memory in MB of a slot at a rate."""
    plan_rates: Mapping[str, float | None] | None = None
    """Where a plan was run: what it predicts for its own placement, by routing."""
    models_pace: float | None = None
    """How fast the cores were when the models were measured."""
    rate_at_pace: Callable[[float], float] | None = None
    """The predicted rate on cores of a pace."""

    @property
    def rate_error(self) -> float | None:
        """(predicted - measured) / measured, where the most the pipeline can do was measured: it was looked for, or the
        pipeline was asked for more than it can do."""
        return self._error(self.predicted_rate)

    @property
    def pace(self) -> float | None:
        """Of the cores during the run, where that of the models is 1."""
        if self.report.pace is None or self.models_pace is None:
            return None
        return self.report.pace / self.models_pace

    @property
    def predicted_rate_at_pace(self) -> float | None:
        """What was to be expected of cores as fast as they were during the run."""
        if self.pace is None or self.report.pace is None or self.rate_at_pace is None:
            return None
        return self.rate_at_pace(self.report.pace)

    @property
    def rate_error_at_pace(self) -> float | None:
        return self._error(self.predicted_rate_at_pace)

    def _error(self, predicted: float | None) -> float | None:
        if predicted is None or (self.report.stable and not self.searched):
            return None
        measured = self.highest_rate or self.report.sustained_rate
        return (predicted - measured) / measured if measured else None

    @property
    def predicted_slot(self) -> tuple[float, float] | None:
        """CPU and memory in MB of a slot at the rate that was sustained."""
        return None if self.predicted_use is None else self.predicted_use(self.report.sustained_rate)

    def document(self) -> dict[str, Any]:
        slot = self.predicted_slot
        found: dict[str, Any] = {
            "pipeline": self.pipeline,
            "mode": "fused",
            "threads_per_slot": dict(self.threads),
            "predicted_rate": self.predicted_rate,
            "rate_error": self.rate_error,
            "pace_of_models": self.models_pace,
            "predicted_rate_at_pace": self.predicted_rate_at_pace,
            "rate_error_at_pace": self.rate_error_at_pace,
            "predicted_slot": None if slot is None else {"cpu": slot[0], "memory_mb": slot[1]},
            "interrupted": self.interrupted,
        }
        if self.plan_rates is not None:
            found["plan_predicted_rate"] = dict(self.plan_rates)
        if self.searched:
            found |= search_document(self.highest_rate, self.tried)
        return {**found, **self.report.document()}
