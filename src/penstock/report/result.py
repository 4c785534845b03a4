"""The result of a run: predicted beside measured, in words and as a document."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from penstock.base.text import figure, latencies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.dataflow.load import Load
    from penstock.planning.prediction.forecast import Estimate, RunForecast
    from penstock.report.report import Report


# Measured values in words, for the shell and for `print(result)`.


def headline(what: str, report: Report, *, own_source: bool = False) -> str:
    """Of a source of the user's own what was offered is what came: said where that is not what was taken in."""
    is_same = own_source and report.offered_rate == report.sustained_rate
    offered = "" if is_same else f"offered {figure(report.offered_rate)}, "
    return (
        f"{what}: {offered}sustained {figure(report.sustained_rate)} "
        f"tuples/s ({report.verdict}) over {report.seconds:.1f} s"
    )


def latency_line(report: Report) -> str:
    return f"latency    {latencies(report.latency_ms) or '-'}"


def ids_line(report: Report) -> str:
    audit = report.audit
    audited = "taken in (not audited)"
    if audit.lost is not None and audit.duplicated is not None:
        audited = f"emitted, {audit.lost} lost, {audit.duplicated} duplicated"
    return f"ids        {audit.emitted:,} {audited}, {audit.filtered} filtered, {audit.dead} dead letters"


def error_text(rate_error: float | None) -> str:
    return "" if rate_error is None else f" (error {100 * rate_error:+.1f} %)"


def summary(
    first_line: str,
    report: Report,
    predicted_rate: float | None,
    rate_error: float | None,
    predicted_latency_ms: Mapping[str, float | None] | None,
) -> Iterator[str]:
    """Predicted beside measured, in a few lines."""
    yield first_line
    if predicted_rate is not None:
        yield f"predicted  at most {figure(predicted_rate)} tuples/s{error_text(rate_error)}"
    if predicted_latency_ms:
        yield f"predicted  latency {latencies(predicted_latency_ms)}"
    yield latency_line(report)
    yield ids_line(report)
    for note in report.notes:
        yield f"note       {note}"


def verdict_document(forecast: RunForecast, report: Report) -> dict[str, Any]:
    """The key `verdict` of a run: what was predicted, and under `measured` what came of it and how far it was off."""
    p50, predicted_p50 = report.latency_ms.get("p50"), (forecast.latency_values or {}).get("p50")
    cpu, memory = report.cpu_cores, report.memory_mb
    return {
        **forecast.document(),
        "measured": {
            "meets_target": report.stable,
            "rate": report.sustained_rate,
            "latency_ms": dict(report.latency_ms),
            "cpu_cores": cpu,
            "memory_mb": memory,
            "errors": {
                "latency_p50": relative_error(predicted_p50, p50),
                "cpu_cores": relative_error(_value(forecast.cpu_cores), cpu),
                "memory_mb": relative_error(_value(forecast.memory_mb), memory),
            },
        },
    }


def _value(figure: Estimate | None) -> float | None:
    return None if figure is None else figure.value


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
    forecast: RunForecast | None = None
    """What was predicted before it ran, for the slots, cores and batches it ran with; None: no operator has a model."""

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
        if self.forecast is not None:
            document["verdict"] = verdict_document(self.forecast, self.report)
        if self.plan_rates is not None:
            document["plan_predicted_rate"] = dict(self.plan_rates)
        if self.searched:
            document |= search_document(self.highest_rate, self.tried)
        return {**document, **self.report.document()}


# Results of placed runs: predicted beside measured, and whether the placement was kept.


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
    forecast: RunForecast
    """What was predicted at the rate offered; unknown if an operator has no model."""
    report: Report
    places: tuple[BundlePlace, ...]
    changes: tuple[PlanChange, ...]
    start_seconds: float
    drain_seconds: float
    interrupted: bool = False
    searched: bool = False
    highest_rate: float | None = None
    tried: tuple[TriedRate, ...] = ()
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
        return self.slots_rate if self.forecast.max_rate is None else self.forecast.max_rate.value

    @property
    def predicted_latency_ms(self) -> Mapping[str, float]:
        return self.forecast.latency_values or {}

    @property
    def predicted_slots(self) -> Mapping[Slot, tuple[float, float]]:
        """Cores and MB of every slot, the engine's own among them."""
        slots = dict.fromkeys(place.planned for place in self.places)
        uses = self.forecast.slot_use
        if len(uses) != len(slots):
            return {}
        return {slot: (use.cpu, use.memory_mb) for slot, use in zip(sorted(slots), uses, strict=True)}

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
            "verdict": verdict_document(self.forecast, self.report),
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
