"""What a run's conductor is told to do. Whoever carries an instruction out answers with events, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Slot
    from penstock.connectors.commit import Commit
    from penstock.engines.placed.flow.events import Staged
    from penstock.engines.placed.flow.layout import Bundle, Layout


@dataclass(frozen=True, slots=True)
class StartBundle:
    """Start a process for a bundle on its slot; one of an earlier start is ended. Answers: Hello, TaskEnded."""

    bundle: Bundle
    start: int


@dataclass(frozen=True, slots=True)
class EndBundle:
    """The bundle's process is needed no more."""

    bundle: str


@dataclass(frozen=True, slots=True)
class Dismiss:
    """A connection nobody wants: its process is a leftover and is told to end."""

    connection: int


@dataclass(frozen=True, slots=True)
class Form:
    """Tell every bundle to drop what it does and link up as a new generation, from what `commit` says. Answers:
    Linked, Broken."""

    generation: int
    layout: Layout
    commit: Commit
    addresses: Mapping[str, str]
    connections: Mapping[str, int]
    held: bool
    """Sources wait until they are told to go."""
    careful: frozenset[str]
    """Bundles that died again and again: they find out which tuple it is."""


@dataclass(frozen=True, slots=True)
class OpenEpoch:
    """Tell the bundles that hold sources to put a marker into their streams. Answers: Staged, from every bundle."""

    generation: int
    epoch: int
    hold: bool
    """Nothing more is emitted behind the marker."""


@dataclass(frozen=True, slots=True)
class Go:
    """Tell the sources that were held to go on."""

    generation: int


@dataclass(frozen=True, slots=True)
class WriteCommit:
    """Write it, all or nothing, then make visible what it names. Answers: Committed, NotCommitted, Fenced."""

    before: Commit
    generation: int
    plan: str
    staged: tuple[Staged, ...]


@dataclass(frozen=True, slots=True)
class SeekRefuge:
    """Find a layout of the same plan without these slots. Answers: RefugeFound, NoRefuge."""

    unusable: frozenset[Slot]


@dataclass(frozen=True, slots=True)
class Answer:
    """To somebody who asked for something; `refused` says why it was not done."""

    request: str
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Say:
    """Something people should hear."""

    text: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The run is over for this process; `failed` says why if it did not end as asked."""

    failed: str | None = None


Instruction = StartBundle | EndBundle | Dismiss | Form | OpenEpoch | Go | WriteCommit | SeekRefuge | Answer | Say | Stop
