"""What a conductor is given, and what it tells of every epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.connectors.log.publishing import TopicPublisher

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.dataflow.load import Load
    from penstock.flow.checkpoint import Checkpoint
    from penstock.flow.commit import Commit
    from penstock.flow.states import Patience
    from penstock.runtime.account import Account
    from penstock.spark.placed.committing import Publisher
    from penstock.spark.placed.laying_out import LaidOut


@dataclass(frozen=True)
class ConductorSetting:
    """What a conductor needs besides the plan."""

    run: str
    checkpoint: Checkpoint
    host: str
    """The address of this machine that bundles reach."""
    load: Load
    began: float
    """When the load did; 0: it begins with the first generation."""
    refuge: Callable[[Collection[Slot]], LaidOut]
    """The plan without some slots; raises a PenstockError where there is none."""
    on_message: Callable[[str], None] = lambda _: None
    shown: Callable[[str, str], None] = lambda _sink, _row: None
    begun: Callable[[float], None] = lambda _: None
    """Hears when the load began."""
    committed: Callable[[Commit], None] = lambda _: None
    """Hears of every commit of an epoch."""
    patience: Patience | None = None
    limit: int | None = None
    publishers: Sequence[Publisher] = field(default_factory=lambda: (TopicPublisher(),))
    """Of sinks that are no files."""
    identity: str | None = field(default=None, repr=False)
    """A certificate and its key for the links, as PEM; None: no TLS."""


@dataclass(frozen=True, slots=True)
class StagedPart:
    """What one bundle did in an epoch that is committed."""

    bundle: str
    slot: Slot
    account: Account
    hops: dict[int, int]
    watched: tuple[tuple[int, int, int], ...] = ()
    """(number, above, total) of the fields that are watched."""
    lag: Mapping[str, int] = field(default_factory=dict)
    """Messages that wait, by source/topic/partition."""
    gone: Mapping[str, int] = field(default_factory=dict)
    """Messages that retention took before they were read."""


@dataclass(frozen=True, slots=True)
class EpochDone:
    epoch: int
    finished: float
    offset: int
    """Tuples of the load, of the furthest source, that are committed with it."""
    parts: tuple[StagedPart, ...]
