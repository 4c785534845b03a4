"""The one prediction of what a pipeline does at a rate: a `RunForecast`, for one engine, one number of slots and of
cores, and one size of batches. Whatever plans, sizes, runs, simulates or prints uses it.

Every figure is an `Estimate`: a value and the interval that contains the true one nine times in ten. Its error is
taken to be normal on a logarithmic scale, with one spread below the value and another above it, because what disturbs a
measurement disturbs it in one direction: a machine that others used makes operators look slow, never fast. Independent
causes add in squares:

    below^2 = formula^2 + trials^2 + reach^2 + unknown^2         above^2 = below^2 + ln(1 / (1 - others))^2

`formula` is what the formula itself misses on a calm machine (`FORMULA_SPREAD`), `trials` that of repeated trials,
`others` the part of the machine that other processes used during the trials, `reach` grows with the logarithm of how
far the slots are from those measured, and `unknown` counts missing measurements: no rehearsal of the whole pipeline, no
CPU speed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.modelling.model import Model

INTERVAL_CONFIDENCE = 0.9
"""Share of true values that lie in an interval."""
FORMULA_SPREAD = 0.09
"""Standard deviation (logarithmic) of calm measurements around the formula, of rates and latencies."""
UNREHEARSED_SPREAD = 0.25
"""Added if the pipeline was never run as a whole: Spark's own work for each row is not known then."""
UNKNOWN_SPEED_SPREAD = 0.08
"""Added if the CPU speed during the trials is not known."""
REACH_SPREAD = 0.06
"""Added for every doubling of the slots beyond those that were rehearsed."""
MAX_OTHERS = 0.9
"""Limit of the share of the machine that others are taken to have used."""
_NORMAL = NormalDist()
_HALF_WIDTH = _NORMAL.inv_cdf((1 + INTERVAL_CONFIDENCE) / 2)


@dataclass(frozen=True, slots=True)
class ErrorSpread:
    """Logarithmic standard deviations below and above a value."""

    below: float
    above: float

    def with_cause(self, deviation: float) -> ErrorSpread:
        """Add an independent cause to both sides."""
        return ErrorSpread(math.hypot(self.below, deviation), math.hypot(self.above, deviation))

    @property
    def mirrored(self) -> ErrorSpread:
        """The spread of the inverse: of seconds if this one is of rates."""
        return ErrorSpread(self.above, self.below)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted value with its spread."""

    value: float
    spread: ErrorSpread

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.value * math.exp(-_HALF_WIDTH * self.spread.below)

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.value * math.exp(_HALF_WIDTH * self.spread.above)

    @property
    def interval(self) -> list[float]:
        return [self.low, self.high]

    def chance_of_at_least(self, threshold: float) -> float:
        """Return the probability that the true value is `threshold` or more: `Phi(ln(value / threshold) / s)`."""
        if threshold <= 0:
            return 1.0
        if self.value <= 0:
            return 0.0
        distance = math.log(self.value / threshold)
        spread = self.spread.below if distance >= 0 else self.spread.above
        return _NORMAL.cdf(distance / spread) if spread > 0 else float(distance >= 0)

    def reached_with(self, confidence: float) -> float:
        """Return the value that the true one reaches or exceeds with probability `confidence`."""
        deviations = _NORMAL.inv_cdf(confidence)
        return self.value * math.exp(-deviations * (self.spread.below if deviations >= 0 else self.spread.above))

    def times(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.spread)


@dataclass(frozen=True, slots=True)
class SlotUse:
    """CPU of one slot (1.0 = one core) and memory in MB of its processes."""

    cpu: float
    memory_mb: float


@dataclass(frozen=True)
class RunForecast:
    """Prediction of a pipeline at `target_rate` tuples/s of every source, on `slots` slots of machines with
    `cores` cores in all. CPU and memory in all include the engine's own processes."""

    engine: str
    target_rate: float | None
    """None: no rate is asked for."""
    slots: int
    cores: float
    max_rate: Estimate | None = None
    """Highest rate it keeps, in tuples/s of every source; None: unknown."""
    latency_ms: Mapping[str, Estimate] | None = None
    """Percentiles at the target rate; None: unknown, or the rate is not kept."""
    cpu_cores: Estimate | None = None
    """Cores used at the target rate, or at the highest there is."""
    memory_mb: Estimate | None = None
    slot_use: tuple[SlotUse, ...] = ()
    """Use of every slot by its own processes, in the order of the slots."""
    batch_rows: int | None = None
    """Rows of the largest batch over all slots; None: the engine has no batches."""
    threads: Mapping[str, int] = field(default_factory=dict)
    """Threads of every operator in each slot; empty: those of the placement."""
    unknown: tuple[str, ...] = ()
    """Missing facts without which nothing can be predicted, and how to find them out."""
    confidence: float = 0.5
    """Probability with which the target must be kept."""
    notes: tuple[str, ...] = field(default=())

    @property
    def probability(self) -> float | None:
        """Probability that the target rate is kept; None: unknown."""
        if self.max_rate is None or self.target_rate is None:
            return None
        return self.max_rate.chance_of_at_least(self.target_rate)

    @property
    def meets_target(self) -> bool | None:
        """Whether the target rate is kept with the confidence asked for; None: unknown."""
        probability = self.probability
        if probability is None:
            return None
        # the probability of a rate that is met exactly is one half but for rounding
        return probability >= self.confidence - 1e-9

    @property
    def latency_values(self) -> dict[str, float] | None:
        """The predicted percentiles without their intervals."""
        return None if self.latency_ms is None else {name: it.value for name, it in self.latency_ms.items()}

    @property
    def answer(self) -> str:
        """`yes`, `no` or `unknown`."""
        return {True: "yes", False: "no", None: "unknown"}[self.meets_target]

    @property
    def utilisation(self) -> float | None:
        """Target rate as a share of the highest rate."""
        if self.max_rate is None or self.target_rate is None or self.max_rate.value <= 0:
            return None
        return self.target_rate / self.max_rate.value

    def document(self) -> dict[str, Any]:
        """The plain contents of the key `verdict` in plans, results of runs and simulations."""
        figures = {"rate": self.max_rate, "cpu_cores": self.cpu_cores, "memory_mb": self.memory_mb}
        latency = self.latency_ms
        return {
            "meets_target": self.meets_target,
            "engine": self.engine,
            "target_rate": self.target_rate,
            **{name: None if figure is None else _finite(figure.value) for name, figure in figures.items()},
            "utilisation": self.utilisation,
            "probability": self.probability,
            "confidence": self.confidence,
            "latency_ms": None
            if self.latency_values is None
            else {name: _finite(value) for name, value in self.latency_values.items()},
            "interval": {
                "confidence": INTERVAL_CONFIDENCE,
                **{name: None if figure is None else _ends(figure) for name, figure in figures.items()},
                "latency_ms": None if latency is None else {name: _ends(figure) for name, figure in latency.items()},
            },
            "slots": self.slots,
            "cores": self.cores,
            "batch_rows": self.batch_rows,
            "slot_use": [{"cpu": use.cpu, "memory_mb": use.memory_mb} for use in self.slot_use],
            "threads": dict(self.threads),
            "unknown": list(self.unknown),
            "notes": list(self.notes),
        }


def _finite(value: float) -> float | None:
    """JSON knows no infinity: an unbounded figure is null."""
    return value if math.isfinite(value) else None


def _ends(figure: Estimate) -> list[float | None]:
    return [_finite(end) for end in figure.interval]


def spread_of_models(models: Iterable[Model], *, rehearsed: bool, reach: float = 1.0) -> ErrorSpread:
    """Return the spread of rates predicted from models. `reach`: slots asked for, as a multiple of the most that were
    measured together."""
    known = list(models)
    spread = ErrorSpread(FORMULA_SPREAD, FORMULA_SPREAD)
    spread = spread.with_cause(max((_trial_spread(model) for model in known), default=0.0))
    spread = spread.with_cause(REACH_SPREAD * math.log2(max(1.0, reach)))
    if not rehearsed:
        spread = spread.with_cause(UNREHEARSED_SPREAD)
    if any(point.pace is None for model in known for point in model.points):
        spread = spread.with_cause(UNKNOWN_SPEED_SPREAD)
    others = min(MAX_OTHERS, max((_others_of(model) for model in known), default=0.0))
    return ErrorSpread(spread.below, math.hypot(spread.above, math.log(1 / (1 - others))))


def _trial_spread(model: Model) -> float:
    """Half the range of repeated trials, as a share of the rate."""
    return max(((point.rate_spread or 0.0) / point.rate for point in model.points), default=0.0)


def _others_of(model: Model) -> float:
    """Share of the machine that others used while the points that were measured last were measured."""
    of_points = [point.others_cpu for point in model.points if point.others_cpu is not None]
    return max(of_points, default=model.measured_on.others_cpu or 0.0)
