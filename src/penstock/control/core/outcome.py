"""What comes out of a step: the new state, what happened, what was decided and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Slot
    from penstock.control.core.records import ControllerState, Submission, Trigger


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to `subject`: a pipeline, a node, or the controller itself."""

    at: float
    subject: str
    kind: str
    before: str | None = None
    after: str | None = None
    why: str = ""


class DecisionKind(StrEnum):
    START = "start"
    GROW = "grow"
    SHRINK = "shrink"
    MOVE = "move"
    SCALE = "scale"
    """Another size, to follow its load."""
    WAIT = "wait"
    PRIORITY = "priority"
    FAIL = "fail"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Rejected:
    """An alternative that was looked at, and why it was not taken."""

    alternative: str
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    number: int
    at: float
    pipeline: str
    kind: DecisionKind
    before: int
    """Units held before (of a priority: the level)."""
    after: int
    why: str
    rejected: tuple[Rejected, ...] = ()
    expected: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    pass_number: int | None = None
    """The pass it came from: its inputs are kept, and give the same decision again."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """O of a change, in seconds: until drained, from there until placed, from there until the first tuple."""

    drained_s: float
    placed_s: float
    first_tuple_s: float

    @property
    def total_s(self) -> float:
        return self.drained_s + self.placed_s + self.first_tuple_s


@dataclass(frozen=True, slots=True)
class MeasuredOverhead:
    """The overhead of a decision, known now."""

    decision: int
    overhead: Overhead


@dataclass(frozen=True, slots=True)
class PassRecord:
    """A pass that changed something: all it was given, and what came out."""

    number: int
    at: float
    cause: str
    inputs: Mapping[str, Any]
    shares: Mapping[str, int]


class OrderKind(StrEnum):
    RUN = "run"
    DRAIN = "drain"
    REST = "rest"
    """Run nowhere; positions are kept."""
    END = "end"


@dataclass(frozen=True, slots=True)
class PipelineOrder:
    """What is wanted of one pipeline's executors from now on. To be told twice changes nothing."""

    pipeline: str
    serial: int
    incarnation: int
    kind: OrderKind
    submission: Submission
    slots: tuple[Slot, ...] = ()
    forced: bool = False
    load: str | None = None
    triggers: tuple[Trigger, ...] = ()
    """Those that are evaluated where the data is; they change without another serial."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    state: ControllerState
    events: tuple[Event, ...] = ()
    decisions: tuple[Decision, ...] = ()
    measured: tuple[MeasuredOverhead, ...] = ()
    passes: tuple[PassRecord, ...] = ()
