"""The epoch in flight: opened, staged by bundle after bundle, written, committed. There is at most one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.engines.placed.flow import instructions as do
from penstock.engines.placed.flow.states import ImpossibleError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from penstock.connectors.commit import Commit
    from penstock.engines.placed.flow.events import Staged


@dataclass(slots=True)
class _Open:
    epoch: int
    hold: bool
    staged: dict[str, Staged] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Since when nothing can be committed, and whether that is a sink's doing or the checkpoint's."""

    since: float
    at_sink: bool


class Epochs:
    """`commit` is the last one written. A commit that is being written cannot be taken back: whatever happens,
    its answer is awaited."""

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self._open: _Open | None = None
        self._writing: do.WriteCommit | None = None
        self._again: float | None = None
        self._trouble: _Trouble | None = None

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @property
    def is_writing(self) -> bool:
        return self._writing is not None

    def open(self, generation: int, *, hold: bool) -> do.OpenEpoch:
        if self._open is not None or self._writing is not None:
            raise ImpossibleError("an epoch opened while another is in flight")
        self._open = _Open(self.commit.epoch + 1, hold)
        return do.OpenEpoch(generation, self._open.epoch, hold)

    def staged(self, event: Staged) -> None:
        if self._open is None or event.epoch != self._open.epoch or event.bundle in self._open.staged:
            raise ImpossibleError(f"bundle '{event.bundle}' staged epoch {event.epoch}, which is not open to it")
        self._open.staged[event.bundle] = event

    def drop(self) -> None:
        """The generation is over: what was staged for an epoch that is not being written never was."""
        if self._writing is None:
            self._open = None

    def write_if_complete(self, bundles: AbstractSet[str], generation: int, plan: str) -> do.WriteCommit | None:
        if self._open is None or self._writing is not None or self._open.staged.keys() != bundles:
            return None
        staged = tuple(self._open.staged[name] for name in sorted(self._open.staged))
        self._writing = do.WriteCommit(self.commit, generation, plan, staged)
        return self._writing

    def committed(self, commit: Commit, now: float) -> tuple[bool, float | None]:
        """Whether the sources are held behind it, and for how long it could not be written."""
        self._check_answer(commit.epoch)
        held = self._open is not None and self._open.hold
        trouble = None if self._trouble is None else now - self._trouble.since
        self.commit = commit
        self._open, self._writing, self._again, self._trouble = None, None, None, None
        return held, trouble

    def not_committed(self, epoch: int, now: float, pause: float, *, at_sink: bool) -> float:
        """It is tried again after `pause`; the seconds it could not be written so far for the same cause, 0 if this is
        the first time."""
        self._check_answer(epoch)
        self._again = now + pause
        if self._trouble is None or self._trouble.at_sink != at_sink:
            self._trouble = _Trouble(now, at_sink)
        return now - self._trouble.since

    def write_again(self, now: float) -> do.WriteCommit | None:
        if self._writing is None or self._again is None or now < self._again:
            return None
        self._again = None
        return self._writing

    def _check_answer(self, epoch: int) -> None:
        if self._writing is None or epoch != self._writing.before.epoch + 1:
            raise ImpossibleError(f"heard of the commit of epoch {epoch}, which nobody asked for")
