"""Controllers for tests: the core with executors in simulated time, a clock that is told, and no models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.control.core.messages import Submit, TimePassed
from penstock.control.core.orders import orders
from penstock.control.core.records import ControllerState, NodeRecord, NodeState, Policy, ServiceTarget, Submission
from penstock.control.core.step import step
from penstock.control.executors.simulated import SimulatedExecutors, Times

if TYPE_CHECKING:
    from penstock.control.core.messages import (
        Decision,
        Event,
        Incoming,
        MeasuredOverhead,
        PassRecord,
        PipelineOrder,
        StepOutcome,
    )
    from penstock.control.core.records import PipelineRecord, PipelineState


@dataclass(frozen=True)
class PerUnit:
    """Every unit does so many tuples/s of any pipeline."""

    rate: float = 10.0

    def units_for(self, _: Submission, rate: float) -> int | None:
        return max(1, -int(-rate // self.rate))

    def usage(self, _: Submission, __: float) -> tuple[float, float] | None:
        return None

    def rate_on(self, _: Submission, units: int) -> float | None:
        return units * self.rate

    def gains_of(self, _: Submission) -> dict[str, float]:
        return {}

    def batch_cost(self, _: Submission) -> float:
        return 0.025


def node(name: str, slots: int = 1) -> NodeRecord:
    return NodeRecord(
        name, "r1", slots, NodeState.ALIVE, 0.0, MappingProxyType({"cpu": 100.0 * slots, "memory_mb": 3584.0 * slots})
    )


def cluster(
    nodes: int, slots: int = 1, sharing: str = "fair-priority", unit_slots: int | None = None
) -> ControllerState:
    names = [f"n{number}" for number in range(1, nodes + 1)]
    return ControllerState(
        policy=Policy(sharing),
        unit_slots=unit_slots or slots,
        nodes=MappingProxyType({name: node(name, slots) for name in names}),
    )


def asked(
    name: str, desired: int | None = None, minimum: int = 1, *, rate: float | None = None, **more: object
) -> Submit:
    submission = Submission(name, "linear", target=ServiceTarget(rate), desired=desired, minimum=minimum)
    return Submit(replace(submission, **more))  # type: ignore[arg-type]


@dataclass
class Bench:
    """A controller without a store: what the core says is done by simulated executors."""

    state: ControllerState
    sizing: PerUnit = PerUnit()
    times: Times = field(default_factory=Times)
    lag: bool = False
    """Executors hear of an order only at the next step."""
    now: float = 1000.0
    events: list[Event] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    measured: list[MeasuredOverhead] = field(default_factory=list)
    passes: list[PassRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.executors = SimulatedExecutors(self.sizing, self.state.unit_slots, self.times)
        self.executors.observe(self.now)
        self._late: list[PipelineOrder] = []

    def tell(self, *happened: Incoming) -> None:
        found = step(self.state, happened, self.now, self.sizing)
        self.taken(self.state, found)
        self.state = found.state
        self.events += found.events
        self.decisions += found.decisions
        self.measured += found.measured
        self.passes += found.passes
        wanted = list(orders(self.state))
        self.executors.want(self._late if self.lag else wanted, 1)
        self._late = wanted

    def taken(self, before: ControllerState, found: StepOutcome) -> None:
        """For whoever keeps steps."""

    def run(self, seconds: float, every: float = 0.5) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + every)
            self.tell(*self.executors.observe(self.now), TimePassed())

    def __getitem__(self, name: str) -> PipelineRecord:
        return self.state.pipelines[name]

    def at(self, name: str) -> PipelineState:
        return self.state.pipelines[name].state

    def held(self) -> dict[str, int]:
        return {name: self.state.units(record.held) for name, record in self.state.pipelines.items()}

    def messages(self, name: str) -> list[str]:
        return [event.why for event in self.events if event.kind == "message" and event.subject == name]
