"""What a run's conductor hears. An event is a fact: it says what happened, not what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.commit import Commit, Output
    from penstock.engines.placed.flow.layout import Layout


@dataclass(frozen=True, slots=True)
class Hello:
    """A bundle's process is there and can be told things through `connection`, a number never used before."""

    bundle: str
    start: int
    connection: int
    address: str


@dataclass(frozen=True, slots=True)
class Beat:
    connection: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A connection is gone."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """The task of start `start` of a bundle is over."""

    bundle: str
    start: int
    reason: str


@dataclass(frozen=True, slots=True)
class Linked:
    """A bundle has all its links of a generation."""

    bundle: str
    generation: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A bundle lost a link of a generation; the bundle itself is well, and waits for the next."""

    bundle: str
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Staged:
    """A bundle has all of an epoch behind it, and has put down what must outlive it."""

    bundle: str
    generation: int
    epoch: int
    offsets: Mapping[str, Any] = field(default_factory=dict)
    states: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    account: bytes = b""
    """What was counted in this epoch; whoever writes the commit folds it."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """A bundle's own code stopped the pipeline."""

    bundle: str
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit that was asked for is on disk, and what it names is visible."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """The commit could not be written (a full disk); it is not there."""

    epoch: int
    reason: str
    at_sink: bool = False
    """Not for want of a checkpoint: a sink has not taken what the commit before names, and that comes first."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another process conducts the run now."""

    by: str


@dataclass(frozen=True, slots=True)
class NodeGone:
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeBack:
    node: str


@dataclass(frozen=True, slots=True)
class RefugeFound:
    """Where everything runs without the slots that cannot be used."""

    layout: Layout


@dataclass(frozen=True, slots=True)
class NoRefuge:
    reason: str


@dataclass(frozen=True, slots=True)
class ChangeAsked:
    """Somebody wants another layout; `request` names the answer."""

    request: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class DrainAsked:
    request: str
    end: bool = False
    """End the run then."""


@dataclass(frozen=True, slots=True)
class ResumeAsked:
    """A drained run goes on as it is."""

    request: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing but time has passed."""


Event = (
    Hello
    | Beat
    | Lost
    | TaskEnded
    | Linked
    | Broken
    | Staged
    | GaveUp
    | Committed
    | NotCommitted
    | Fenced
    | NodeGone
    | NodeBack
    | RefugeFound
    | NoRefuge
    | ChangeAsked
    | DrainAsked
    | ResumeAsked
    | Tick
)
