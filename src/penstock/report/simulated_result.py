"""What was predicted of a plan beside what a simulation of it did, and a run on Spark where there was one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError
from penstock.base.files import read_document
from penstock.cluster.topology import Slot
from penstock.report.result import RESULT_FORMAT, headline, relative_error, search_document, summary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from penstock.dataflow.load import Load
    from penstock.planning.prediction.forecast import RunForecast
    from penstock.report.report import Report
    from penstock.report.result import TriedRate

SAME_LOAD = 0.02
"""Offered rates that differ by more are not the same load."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a run on Spark, as `penstock run --json` printed them."""

    pipeline: str
    mode: str
    offered_rate: float
    sustained_rate: float
    stable: bool
    latency_ms: Mapping[str, float]
    slots: Mapping[Slot, tuple[float, float]]
    """cpu (1.0 = one core) and memory in MB."""

    @property
    def cpu(self) -> float | None:
        """Of all slots together."""
        return sum(cpu for cpu, _ in self.slots.values()) if self.slots else None


def read_measured(path: Path) -> Measured:
    """The result of a run from the file its JSON was kept in."""
    return measured_of(read_document(path), str(path))


def measured_of(document: Any, path: str) -> Measured:
    """What a run's `document()` says; `path` is where it came from."""
    if not isinstance(document, dict):
        raise BadInputError(f"{path}: expected what penstock run --json printed, found {type(document).__name__}")
    try:
        return Measured(
            str(document["pipeline"]),
            str(document["mode"]),
            float(document["offered_rate"]),
            float(document["sustained_rate"]),
            bool(document["stable"]),
            {str(name): float(value) for name, value in document["latency_ms"].items()},
            {
                Slot(str(row["node"]), int(row["slot"])): (float(row["cpu"]), float(row["memory_mb"]))
                for row in document["slots"]
            },
        )
    except KeyError as error:
        raise BadInputError(f"{path}: expected what penstock run --json printed; it has no {error}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise BadInputError(f"{path}: expected what penstock run --json printed: {error}") from error


@dataclass(frozen=True)
class PipelineResult:
    """One pipeline of a simulation."""

    pipeline: str
    mode: str
    """"placed" or "fused"."""
    load: Load
    report: Report
    predicted_rate: float | None
    """The most it can do, by the formula; None: nothing limits it."""
    predicted_bottleneck: str | None
    predicted_latency_ms: Mapping[str, float | None]
    """At the offered rate; None: no bound."""
    predicted_slots: Mapping[Slot, tuple[float, float]]
    """cpu (1.0 = one core) and memory in MB at the rate that was sustained."""
    bottleneck: str | None
    """Where it is not stable: what limits it, in words."""
    latencies: NDArray[np.float64] = field(repr=False)
    """Seconds, past the warm-up: all of them or a sample."""
    overload_shows_most: bool = False
    """Whether what it does when it is asked for more is the most it can do: a slot works on one batch at a time, or
    back-pressure holds its sources. Otherwise queues before one slot grow while other slots do more than their share,
    and only a search tells."""
    shares_slots: bool = False
    """CPU of its slots is not its alone."""
    highest_rate: float | None = None
    """The highest rate found stable, where it was looked for."""
    measured: Measured | None = None
    forecast: RunForecast | None = None
    """What was predicted of a run, the engine's own costs included."""

    @property
    def simulated_rate(self) -> float | None:
        """The most it can do, where the simulation shows that."""
        if self.highest_rate is not None:
            return self.highest_rate
        return self.report.sustained_rate if self.overload_shows_most and not self.report.stable else None

    @property
    def rate_error(self) -> float | None:
        """(predicted - simulated) / simulated, where the most it can do was simulated."""
        return relative_error(self.predicted_rate, self.simulated_rate)

    @property
    def headline(self) -> str:
        return headline(f"{self.pipeline} simulated {self.mode} on {len(self.report.slots)} slots", self.report)

    def __str__(self) -> str:
        return "\n".join(
            summary(self.headline, self.report, self.predicted_rate, self.rate_error, self.predicted_latency_ms)
        )

    @property
    def cpu(self) -> float:
        """Of all its slots together, in cores."""
        return sum(cpu for cpu, _ in self.report.slots.values())

    @property
    def predicted_cpu(self) -> float:
        return sum(cpu for cpu, _ in self.predicted_slots.values())

    @property
    def comparison(self) -> dict[str, dict[str, float | None]]:
        """Predicted, simulated and measured side by side, and the errors of the first two: against what was measured,
        or of predicted against simulated where nothing was."""
        report, run = self.report, self.measured
        rows = {}
        if self.simulated_rate is not None:
            rates = self.predicted_rate, self.simulated_rate
        else:
            keeps_up = self.predicted_rate is None or self.predicted_rate >= report.offered_rate
            rates = report.offered_rate if keeps_up else None, report.sustained_rate
        rows["rate"] = _row(*rates, None if run is None else run.sustained_rate)
        for name in report.latency_ms:
            measured = None if run is None else run.latency_ms.get(name)
            rows[f"latency_{name}_ms"] = _row(self.predicted_latency_ms.get(name), report.latency_ms[name], measured)
        if not self.shares_slots:
            rows["cpu"] = _row(self.predicted_cpu, self.cpu, None if run is None else run.cpu)
        return rows

    def document(self) -> dict[str, Any]:
        return {
            "format": RESULT_FORMAT,
            "pipeline": self.pipeline,
            "mode": self.mode,
            "predicted_rate": self.predicted_rate,
            "predicted_bottleneck": self.predicted_bottleneck,
            "rate_error": self.rate_error,
            "bottleneck": self.bottleneck,
            "predicted_latency_ms": dict(self.predicted_latency_ms),
            "predicted_slots": [
                {"node": slot.node, "slot": slot.number, "cpu": cpu, "memory_mb": memory}
                for slot, (cpu, memory) in self.predicted_slots.items()
            ],
            "comparison": self.comparison,
            **({} if self.forecast is None else {"verdict": self.forecast.document()}),
            **self.report.document(),
            "history": [
                {
                    "seconds": moment.seconds,
                    "rate": moment.rate,
                    "backlog": moment.backlog,
                    "p50": moment.p50,
                    "p95": moment.p95,
                }
                for moment in self.report.history
            ],
        }


def _row(predicted: float | None, simulated: float | None, measured: float | None) -> dict[str, float | None]:
    return {
        "predicted": predicted,
        "simulated": simulated,
        "measured": measured,
        "predicted_error": relative_error(predicted, simulated if measured is None else measured),
        "simulated_error": relative_error(simulated, measured),
    }


@dataclass(frozen=True)
class SimulatedResult:
    """Everything a simulation of one or several plans did. What is asked of one pipeline is that of the first."""

    pipelines: tuple[PipelineResult, ...]
    seconds: float
    warm_up: float
    seed: int
    engine: str
    nodes: Mapping[str, tuple[float, float]]
    """cpu in cores and memory in MB."""
    fairness: tuple[tuple[float, float], ...] = ()
    """(seconds, degree from the start until then), where several pipelines share the cluster."""
    notes: tuple[str, ...] = ()
    searched: bool = False
    tried: tuple[TriedRate, ...] = ()
    interrupted: bool = False
    """The run was asked to end before its simulated time was over."""
    outcome: Any = field(default=None, repr=False)
    """The `penstock.simulation.outcome.SimulationOutcome` itself; None of a fused simulation: it has batches."""

    @property
    def first(self) -> PipelineResult:
        return self.pipelines[0]

    @property
    def report(self) -> Report:
        return self.first.report

    @property
    def predicted_rate(self) -> float | None:
        return self.first.predicted_rate

    @property
    def rate_error(self) -> float | None:
        return self.first.rate_error

    @property
    def highest_rate(self) -> float | None:
        return self.first.highest_rate

    @property
    def stable(self) -> bool:
        return all(pipeline.report.stable for pipeline in self.pipelines)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.pipelines))

    def document(self) -> dict[str, Any]:
        """Of one pipeline as the result of a run; of several, a list under "pipelines"."""
        document: dict[str, Any] = {
            "simulated_seconds": self.seconds,
            "warm_up": self.warm_up,
            "seed": self.seed,
            "engine": self.engine,
            "nodes": [{"node": name, "cpu": cpu, "memory_mb": memory} for name, (cpu, memory) in self.nodes.items()],
            "interrupted": self.interrupted,
        }
        if self.searched:
            document |= search_document(self.highest_rate, self.tried)
        if len(self.pipelines) == 1:
            own = self.first.document()
            return {**own, **document, "notes": [*own["notes"], *self.notes]}
        return {
            "stable": self.stable,
            **document,
            "fairness": [list(point) for point in self.fairness],
            "notes": list(self.notes),
            "pipelines": [pipeline.document() for pipeline in self.pipelines],
        }
