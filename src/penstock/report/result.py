"""What was predicted beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.report.words import headline, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.dataflow.load import Load
    from penstock.report.report import Report


RESULT_FORMAT = 1
"""Of what `document()` of a result gives, and `--json` prints. Those of 0.1 do not say it."""


@dataclass(frozen=True, slots=True)
class TriedRate:
    """One run of a search for the highest rate. `saturated`: far more was offered, and `rate` is what it did."""

    rate: float
    stable: bool
    sustained_rate: float
    saturated: bool


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """(predicted - measured) / measured, where both are known."""
    return None if predicted is None or not measured else (predicted - measured) / measured


def rate_error(
    predicted: float | None, report: Report, highest_rate: float | None, *, searched: bool, flat_out: bool = False
) -> float | None:
    """Of the most a pipeline was predicted to do, where that was measured: it was looked for, or the pipeline was asked
    for more than it can do, or worked without a pause (`flat_out`). A pipeline that keeps up has not shown its most."""
    if report.stable and not searched and not flat_out:
        return None
    return relative_error(predicted, highest_rate or report.sustained_rate)


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
    latency_at: Callable[[float, float | None], Mapping[str, float] | None] | None = None
    """Percentiles of latency in ms at a rate, on cores of a pace (None: that of the models); None where the rate is
    more than is predicted to be sustained."""
    own_source: bool = False
    """Nobody asked for a rate: what came is what was offered."""
    flat_out: bool = False
    """Everything was there from the beginning: batch followed upon batch."""

    @property
    def predicted_latency_ms(self) -> Mapping[str, float] | None:
        """At the rate that was offered, if the run kept up with it: of one that falls behind latency has no bound."""
        return self._latency(None)

    @property
    def predicted_latency_ms_at_pace(self) -> Mapping[str, float] | None:
        """The same of cores as fast as they were during the run."""
        return None if self.pace is None else self._latency(self.report.pace)

    def _latency(self, pace: float | None) -> Mapping[str, float] | None:
        if self.latency_at is None or self.searched or not self.report.stable:
            return None
        return self.latency_at(self.report.offered_rate, pace)

    @property
    def rate_error(self) -> float | None:
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
        return rate_error(predicted, self.report, self.highest_rate, searched=self.searched, flat_out=self.flat_out)

    @property
    def predicted_slot(self) -> tuple[float, float] | None:
        """CPU and memory in MB of a slot at the rate that was sustained."""
        return None if self.predicted_use is None else self.predicted_use(self.report.sustained_rate)

    @property
    def headline(self) -> str:
        slots = f"{self.slots} slot{'s' if self.slots > 1 else ''}"
        return headline(f"{self.pipeline} fused on {slots}", self.report, own_source=self.own_source)

    def __str__(self) -> str:
        return "\n".join(
            summary(self.headline, self.report, self.predicted_rate, self.rate_error, self.predicted_latency_ms)
        )

    def document(self) -> dict[str, Any]:
        slot, latency, at_pace = self.predicted_slot, self.predicted_latency_ms, self.predicted_latency_ms_at_pace
        document: dict[str, Any] = {
            "format": RESULT_FORMAT,
            "pipeline": self.pipeline,
            "mode": "fused",
            "threads_per_slot": dict(self.threads),
            "predicted_rate": self.predicted_rate,
            "rate_error": self.rate_error,
            "predicted_latency_ms": None if latency is None else dict(latency),
            "predicted_latency_ms_at_pace": None if at_pace is None else dict(at_pace),
            "pace_of_models": self.models_pace,
            "predicted_rate_at_pace": self.predicted_rate_at_pace,
            "rate_error_at_pace": self.rate_error_at_pace,
            "predicted_slot": None if slot is None else {"cpu": slot[0], "memory_mb": slot[1]},
            "interrupted": self.interrupted,
        }
        if self.plan_rates is not None:
            document["plan_predicted_rate"] = dict(self.plan_rates)
        if self.searched:
            document |= search_document(self.highest_rate, self.tried)
        return {**document, **self.report.document()}
