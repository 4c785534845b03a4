"""What comes in: requests of people, and observations of executors, nodes and the clock."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.cluster.topology import Slot
    from penstock.control.core.records import (
        ControllerState,
        NodeRecord,
        PipelinePlan,
        Policy,
        ServiceTarget,
        Submission,
        Trigger,
    )


@dataclass(frozen=True, slots=True)
class Submit:
    submission: Submission


@dataclass(frozen=True, slots=True)
class Kill:
    pipeline: str


@dataclass(frozen=True, slots=True)
class Amend:
    """Any of these, of a pipeline that lives; None leaves a thing as it is."""

    pipeline: str
    target: ServiceTarget | None = None
    priority: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    paused: bool | None = None
    load: str | None = None
    elastic: Mapping[str, Any] | None = None
    """Options of how it follows its load; those not named stay."""


@dataclass(frozen=True, slots=True)
class AddTrigger:
    pipeline: str
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class EditTrigger:
    """`trigger` takes the place of the one with its id; whether that is on is kept unless it is disabled."""

    pipeline: str
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class RemoveTrigger:
    pipeline: str
    id: int


@dataclass(frozen=True, slots=True)
class SwitchTrigger:
    """By hand."""

    pipeline: str
    id: int
    on: bool


@dataclass(frozen=True, slots=True)
class SetPolicy:
    policy: Policy


@dataclass(frozen=True, slots=True)
class ExpectNode:
    """A node was asked for and is to come."""

    node: NodeRecord
    why: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseNode:
    name: str
    why: str = "by request"


@dataclass(frozen=True, slots=True)
class NodesRefused:
    """Nodes were asked for and whoever gives them did not."""

    why: str


Request = (
    Submit
    | Kill
    | Amend
    | AddTrigger
    | EditTrigger
    | RemoveTrigger
    | SwitchTrigger
    | SetPolicy
    | ExpectNode
    | ReleaseNode
    | NodesRefused
)


@dataclass(frozen=True, slots=True)
class Started:
    """The driver is up and its sources pull."""

    pipeline: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Holds:
    """With order `serial` in hand its executors are on exactly these slots, and ask for no others."""

    pipeline: str
    serial: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class FirstTuple:
    """A tuple was processed on all that order `serial` asked for."""

    pipeline: str
    serial: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Sources have stopped and nothing is in flight."""

    pipeline: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Died:
    pipeline: str
    incarnation: int
    why: str


@dataclass(frozen=True, slots=True)
class DriverEnded:
    """Its driver and all its executors are gone, as ordered."""

    pipeline: str


@dataclass(frozen=True, slots=True)
class Asks:
    """An attached application would have so many units, and why; `expected` is what it knows about them."""

    pipeline: str
    units: int
    why: str
    expected: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Gone:
    """An attached application is no longer heard of."""

    pipeline: str
    why: str


@dataclass(frozen=True, slots=True)
class PartReading:
    """Of an operator, of its threads on one slot, of a slot, or of a topic's partition."""

    operator: str | None
    slot: Slot | None
    values: Mapping[str, float]
    partition: str | None = None
    """topic/partition."""


@dataclass(frozen=True, slots=True)
class Readings:
    """What a pipeline measured since the last time, by metric; `signals` are the conditions of triggers that are
    evaluated where the data is: a batch's share, or what code said."""

    pipeline: str
    values: Mapping[str, float]
    signals: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    parts: tuple[PartReading, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeJoined:
    node: NodeRecord


@dataclass(frozen=True, slots=True)
class NodeLost:
    name: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The pipeline makes steps raise: it fails, whatever it was doing."""

    pipeline: str
    why: str


@dataclass(frozen=True, slots=True)
class DisableTrigger:
    """The trigger's condition cannot be evaluated. One that is no longer there needs nothing."""

    pipeline: str
    id: int
    why: str


Remedy = Quarantine | DisableTrigger
"""What the controller itself does about whoever stands in the way of everybody else."""


Observation = (
    Started
    | Holds
    | FirstTuple
    | Drained
    | Died
    | DriverEnded
    | Asks
    | Gone
    | Readings
    | NodeJoined
    | NodeLost
    | TimePassed
)
Incoming = Request | Observation | Remedy


# The outcome of a step: new state, events, decisions with reasons.


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
    REPLAN = "replan"
    """Other threads on the slots it has."""
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
    """The desired state of one pipeline's executors from now on. The same order twice changes nothing.

    Made by `control.core.orders` from the state alone; read by executors (`control.contracts.Executors`).

    `plan` is what they run on `slots`, with `plan.places == slots` always. A placed pipeline gets a plan with all its
    threads: while slots of its next plan are not free yet, it is ordered to keep the present one. A fused pipeline may
    start on a part of its slots, and its plan has only those. A later order may name the same slots with other threads;
    its serial is higher then. None for what runs nowhere, for attached applications, and for orders written before
    plans were kept: executors then run fused on `slots`.
    """

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
    plan: PipelinePlan | None = None


@dataclass(frozen=True, slots=True)
class StepOutcome:
    state: ControllerState
    events: tuple[Event, ...] = ()
    decisions: tuple[Decision, ...] = ()
    measured: tuple[MeasuredOverhead, ...] = ()
    passes: tuple[PassRecord, ...] = ()


# The author of a request, stored with the change it made.


asked_by: ContextVar[str] = ContextVar("asked_by", default="")
"""The name of whoever is being answered; empty where nobody said, and then nothing is kept."""

LONGEST_NAME = 80
SUBJECT_FIELDS = ("pipeline", "name")
LEFT_OUT = frozenset({*SUBJECT_FIELDS, "definition", "fingerprint", "capacity", "since", "state", "id"})
"""Of what was asked: what stands elsewhere, or is too long to read."""


def request_event(request: Request, by: str, now: float) -> Event:
    """`request` in words, for the log of events."""
    what = ", ".join(f"{name} {value}" for name, value in _fields_given(request))
    words = f"{_verb(request)}{': ' + what if what else ''}"
    return Event(now, _subject(request), "request", None, None, f"{words}; by {by}")


def _verb(request: Request) -> str:
    """`SwitchTrigger` is "switch trigger"."""
    name = type(request).__name__
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _subject(request: Request) -> str:
    names = {field.name for field in fields(request)}
    for name in SUBJECT_FIELDS:
        if name in names:
            return str(getattr(request, name))
    for name in ("submission", "node"):
        if name in names:
            return str(getattr(request, name).name)
    return "controller"


def _fields_given(value: Any) -> Iterator[tuple[str, str]]:
    """Every field that was given and differs from what it is without being given."""
    for item in fields(value):
        given = getattr(value, item.name)
        if is_dataclass(given):
            yield from _fields_given(given)
        elif given is not None and given != item.default and item.name not in LEFT_OUT:
            yield item.name.replace("_", " "), f"{given:g}" if isinstance(given, float) else str(given)
