"""What the stages of a round hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.modelling.task_profile import TaskProfile


@dataclass(frozen=True, slots=True)
class DeployTarget:
    rate: float
    """Tuples/s of the source."""
    latency_ms: float | None = None
    budget: int = 16
    """Nodes."""


@dataclass(frozen=True, slots=True)
class OperatorReading:
    received: float
    """Tuples/s."""
    busy: float
    """Part of the time its threads were at work."""
    threads: int

    @property
    def true_rate(self) -> float:
        """Tuples/s it would do if it were at work all the time: received / busy."""
        return self.received / self.busy if self.busy > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class RoundReading:
    """What was measured of a deployment once it had settled."""

    throughput: float
    latency_ms: float | None
    stable: bool
    operators: Mapping[str, OperatorReading]
    node_cpu: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Part of each node's CPU that was used."""
    profiles: Mapping[str, TaskProfile] = field(default_factory=lambda: MappingProxyType({}))
    """What a tuple cost, operator by operator."""


class ShortOf(StrEnum):
    NOTHING = "nothing"
    OPERATOR = "operator"
    NODE = "node"
    LATENCY = "latency"
    ENGINE = "engine"
    """Neither an operator nor a node is at its limit: more of them would not help."""


@dataclass(frozen=True, slots=True)
class Analysis:
    met: bool
    shortage: ShortOf
    short: tuple[str, ...] = ()
    """Operators whose costs are to be raised."""
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class DeployPlan:
    """A plan as far as the loop is concerned; `made` is the plan itself."""

    nodes: int
    threads: Mapping[str, int]
    capacity: Mapping[str, float]
    """Tuples/s every operator does by the models it was planned with."""
    made: Any = None

    def same_as(self, other: DeployPlan) -> bool:
        return self.nodes == other.nodes and dict(self.threads) == dict(other.threads)


class StopReason(StrEnum):
    MET = "met"
    BUDGET = "over-budget"
    ROUNDS = "out-of-rounds"
    SAME_PLAN = "same-plan"
    ENGINE = "engine-bound"
    LATENCY = "latency-bound"
    """More nodes do not make a tuple's way shorter."""
    UNPLACEABLE = "unplaceable"


@dataclass(frozen=True, slots=True)
class DeployRound:
    number: int
    plan: DeployPlan
    reading: RoundReading
    analysis: Analysis


@dataclass(frozen=True, slots=True)
class Deployment:
    """All rounds, why they ended, and the best of them."""

    target: DeployTarget
    planner: str
    rounds: tuple[DeployRound, ...]
    reason: StopReason
    why: str

    @property
    def met(self) -> bool:
        return self.reason is StopReason.MET

    @property
    def best(self) -> DeployRound | None:
        """The most of the rate that is asked for; of equals the shortest latency, in two digits, then the fewest
        nodes."""

        def rank(done: DeployRound) -> tuple[float, float, int]:
            latency = done.reading.latency_ms
            taken = inf if latency is None else float(f"{latency:.2g}")
            return min(done.reading.throughput, self.target.rate), -taken, -done.plan.nodes

        return max(self.rounds, key=rank, default=None)

    def document(self) -> dict[str, Any]:
        best = self.best
        return {
            "rate": self.target.rate,
            "latency_ms": self.target.latency_ms,
            "budget": self.target.budget,
            "planner": self.planner,
            "met": self.met,
            "reason": str(self.reason),
            "why": self.why,
            "best_round": None if best is None else best.number,
            "rounds": [
                {
                    "round": done.number,
                    "nodes": done.plan.nodes,
                    "threads": dict(done.plan.threads),
                    "throughput": done.reading.throughput,
                    "part_of_target": done.reading.throughput / self.target.rate,
                    "latency_ms": done.reading.latency_ms,
                    "met": done.analysis.met,
                    "shortage": str(done.analysis.shortage),
                    "short": list(done.analysis.short),
                    "evidence": done.analysis.evidence,
                    "profiles": {
                        name: {
                            "sojourn_seconds": profile.sojourn_seconds,
                            "processing_cpu": profile.processing_cpu,
                            "moving_cpu": profile.moving_cpu,
                            "memory_mb": profile.memory_mb,
                        }
                        for name, profile in done.reading.profiles.items()
                    },
                }
                for done in self.rounds
            ],
        }
