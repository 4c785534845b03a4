"""What comes in: requests of people, and observations of executors, nodes and the clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Slot
    from penstock.control.core.records import NodeRecord, Policy, ServiceTarget, Submission, Trigger


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
