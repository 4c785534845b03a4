"""A bundle's part in the flow, as a state machine: which inputs may be read, when an epoch is complete, when sources
may emit. Tuples do not pass through here, only the permission to move them.

    WAITING ── form ──► LINKING ── every link is up ──► FLOWING ── a link is lost ──► WAITING

Markers are aligned over the inputs: an input whose marker has come is not read until those of all the others have.
So what is staged for an epoch is exactly what came before its markers, and nothing is held back in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.engines.placed.flow.states import ImpossibleError

if TYPE_CHECKING:
    from penstock.engines.placed.flow.layout import Channel


class Standing(StrEnum):
    WAITING = "waiting"
    """For the conductor to form a generation."""
    LINKING = "linking"
    FLOWING = "flowing"


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything before the markers of `epoch` has been read: finish it, pass the marker on, put down what lasts."""

    epoch: int


@dataclass(frozen=True, slots=True)
class SayLinked:
    generation: int


@dataclass(frozen=True, slots=True)
class SayBroken:
    generation: int
    reason: str


Act = Stage | SayLinked | SayBroken


class BundleFlow:
    """The links of one generation at a time; what is said of another is not for it, and changes nothing."""

    def __init__(self) -> None:
        self.standing = Standing.WAITING
        self.generation = 0
        self.epoch = 0
        """The last that was staged."""
        self._inputs: frozenset[Channel] = frozenset()
        self._awaited: set[Channel] = set()
        self._blocked: dict[Channel, int] = {}
        self._asked: tuple[int, bool] | None = None
        """The epoch the conductor opened, and whether the sources are held behind it."""
        self._has_sources = False
        self._held = True

    @property
    def may_emit(self) -> bool:
        """Sources emit until they are held, but not between the opening of an epoch and its staging: what they emit
        then belongs to the next."""
        return self.standing is Standing.FLOWING and self._has_sources and not self._held and self._asked is None

    def may_read(self, channel: Channel) -> bool:
        return self.standing is Standing.FLOWING and channel in self._inputs and channel not in self._blocked

    def form(
        self,
        generation: int,
        epoch: int,
        inputs: frozenset[Channel],
        outputs: frozenset[Channel],
        *,
        has_sources: bool,
        held: bool,
    ) -> list[Act]:
        """Drop everything and begin again behind `epoch`, the last that was committed."""
        if generation <= self.generation:
            raise ImpossibleError(f"generation {generation} formed after {self.generation}")
        if not inputs and not has_sources:
            raise ImpossibleError("a bundle without inputs and without sources never gets a marker")
        self.generation, self.epoch = generation, epoch
        self._inputs = inputs
        self._awaited = set(inputs | outputs)
        self._blocked, self._asked = {}, None
        self._has_sources, self._held = has_sources, held
        self.standing = Standing.LINKING
        return self._maybe_linked()

    def link_up(self, channel: Channel, generation: int) -> list[Act]:
        if generation != self.generation or self.standing is not Standing.LINKING:
            return []
        if channel not in self._awaited:
            raise ImpossibleError(f"{channel} is up, and nobody awaits it")
        self._awaited.discard(channel)
        return self._maybe_linked()

    def _maybe_linked(self) -> list[Act]:
        if self._awaited:
            return []
        self.standing = Standing.FLOWING
        return [SayLinked(self.generation)]

    def link_down(self, generation: int, reason: str) -> list[Act]:
        if generation != self.generation or self.standing is Standing.WAITING:
            return []
        self.standing = Standing.WAITING
        return [SayBroken(generation, reason)]

    def open_epoch(self, generation: int, epoch: int, *, hold: bool) -> list[Act]:
        """The conductor opens an epoch: a marker among this bundle's inputs, as it were."""
        if generation != self.generation or self.standing is Standing.WAITING:
            return []
        if not self._has_sources or epoch != self.epoch + 1 or self._asked is not None:
            raise ImpossibleError(f"epoch {epoch} opened behind {self.epoch}")
        self._asked = (epoch, hold)
        return self._maybe_aligned()

    def go(self, generation: int) -> None:
        if generation == self.generation:
            self._held = False

    def marker(self, channel: Channel, generation: int, epoch: int) -> list[Act]:
        if generation != self.generation or self.standing is Standing.WAITING:
            return []
        if channel in self._blocked or epoch != self.epoch + 1:
            raise ImpossibleError(f"marker {epoch} on {channel} behind epoch {self.epoch}")
        self._blocked[channel] = epoch
        return self._maybe_aligned()

    def _maybe_aligned(self) -> list[Act]:
        if self._blocked.keys() != self._inputs or (self._has_sources and self._asked is None):
            return []
        return [Stage(self.epoch + 1)]

    def staged(self, generation: int, epoch: int) -> None:
        """All of the epoch is behind; inputs may be read again, sources emit again unless they are held."""
        if generation != self.generation:
            return
        if epoch != self.epoch + 1:
            raise ImpossibleError(f"epoch {epoch} staged behind {self.epoch}")
        self.epoch = epoch
        self._blocked = {}
        if self._asked is not None:
            self._held, self._asked = self._asked[1], None


# Max rows under way to a receiver, so that they are a fraction of a second of work, however fast that is.
#
# Rows under way must be processed before an epoch is complete, a plan changes, or a run is drained: a bound in bytes
# alone would be minutes of an operator that waits for others.


AIM_SECONDS = 0.1
FEWEST_ROWS = 16
MOST_ROWS = 1 << 20


class Window:
    """`rows` follows what the receiver takes in: doubled while it takes less than half of the aim, cut to what it does
    in the aimed time when it takes longer."""

    def __init__(self, fewest: int = FEWEST_ROWS) -> None:
        self._fewest = fewest
        self.rows = fewest

    def took(self, rows: int, seconds: float) -> None:
        """The receiver took `rows` in, which needed `seconds`."""
        if rows <= 0:
            return
        whole = seconds * self.rows / rows
        if whole < AIM_SECONDS / 2:
            # a few rows that went fast say little about many
            self.rows = min(MOST_ROWS, self.rows * 2) if 2 * rows >= self.rows else self.rows
        elif whole > AIM_SECONDS:
            self.rows = max(self._fewest, int(AIM_SECONDS * rows / seconds))
