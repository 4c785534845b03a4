"""The core of a controller with simulated executors, in simulated time, without a store and without models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.control.core.messages import Submit, TimePassed
from penstock.control.core.orders import orders
from penstock.control.core.records import ControllerState, NodePhase, NodeRecord, Policy, ServiceTarget, Submission
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
class RatePerUnit:
    """Size pipelines as if every unit did `rate` rows/s of any pipeline."""

    rate: float = 10.0

    def definition(self, _: Submission) -> None:
        """Return None: only slots are known of any pipeline."""

    def units_for(self, _: Submission, rate: float) -> int | None:
        return max(1, -int(-rate // self.rate))

    def units_to_place(self, _: Submission) -> int:
        return 1

    def usage(self, _: Submission, __: float) -> tuple[float, float] | None:
        return None

    def rate_on(self, _: Submission, units: int) -> float | None:
        return units * self.rate

    def gains_of(self, _: Submission) -> dict[str, float]:
        return {}

    def batch_cost(self, _: Submission) -> float:
        return 0.025


def node(name: str, slots: int = 1) -> NodeRecord:
    """Return a node that is alive, with a core and 3584 MB per slot."""
    return NodeRecord(
        name, "r1", slots, NodePhase.ALIVE, 0.0, MappingProxyType({"cpu": 100.0 * slots, "memory_mb": 3584.0 * slots})
    )


def cluster(
    nodes: int, slots: int = 1, sharing: str = "fair-priority", unit_slots: int | None = None
) -> ControllerState:
    """Return the state of a controller with nodes n1, n2, ... and no pipeline."""
    names = [f"n{number}" for number in range(1, nodes + 1)]
    return ControllerState(
        policy=Policy(sharing),
        unit_slots=unit_slots or slots,
        nodes=MappingProxyType({name: node(name, slots) for name in names}),
    )


def asked(
    name: str, desired: int | None = None, minimum: int = 1, *, rate: float | None = None, **more: object
) -> Submit:
    """Return the request to submit the built-in pipeline `linear`, for `desired` units or for a rate."""
    submission = Submission(name, "linear", target=ServiceTarget(rate), desired=desired, minimum=minimum)
    return Submit(replace(submission, **more))  # type: ignore[arg-type]


@dataclass
class ControllerBench:
    """A controller without a store; simulated executors carry out the orders of its core."""

    state: ControllerState
    sizing: RatePerUnit = RatePerUnit()
    times: Times = field(default_factory=Times)
    lag: bool = False
    """Executors receive an order only at the next step."""
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
        """Take one step with these messages and give its orders to the executors."""
        outcome = step(self.state, happened, self.now, self.sizing)
        self.taken(self.state, outcome)
        self.state = outcome.state
        self.events += outcome.events
        self.decisions += outcome.decisions
        self.measured += outcome.measured
        self.passes += outcome.passes
        wanted = list(orders(self.state))
        self.executors.want(self._late if self.lag else wanted, 1)
        self._late = wanted

    def taken(self, before: ControllerState, outcome: StepOutcome) -> None:
        """Receive each step; override to keep them."""

    def run(self, seconds: float, every: float = 0.5) -> None:
        """Let `seconds` of simulated time pass."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + every)
            self.tell(*self.executors.observe(self.now), TimePassed())

    def __getitem__(self, name: str) -> PipelineRecord:
        return self.state.pipelines[name]

    def at(self, name: str) -> PipelineState:
        """Return the state of a pipeline."""
        return self.state.pipelines[name].state

    def held(self) -> dict[str, int]:
        """Return the units each pipeline holds."""
        return {name: self.state.units(record.held) for name, record in self.state.pipelines.items()}

    def messages(self, name: str) -> list[str]:
        """Return the messages of the event log about a pipeline."""
        return [event.why for event in self.events if event.kind == "message" and event.subject == name]
