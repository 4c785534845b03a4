"""Which rows code over frames was given and has not answered for yet.

It may keep frames and yield later, or in the end; nobody can look inside. What can be seen is whether something came
out before it asked for the next frame, and how many rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.runtime.dead_letters import StoppedError, error_line

if TYPE_CHECKING:
    from penstock.runtime.batch import Batch

MOST_BYTES = 64 * 2**20
"""Of rows that are kept in case the code raises. Beyond, an error stops the run: its task is tried again."""


class HeldBackError(Exception):
    """Code over frames raised, or took too long, while it held back rows of earlier frames: they are lost with it. To
    give the last frame again, in halves, would find nobody: what the code does depends on what it had kept."""

    def __init__(self, cause: BaseException, pieces: list[Batch]) -> None:
        super().__init__(error_line(cause))
        self.cause = cause
        self.pieces = pieces


@dataclass(frozen=True, slots=True)
class Settled:
    """Pieces that code over frames held back until now."""

    lost_sight: list[Batch] = field(default_factory=list)
    """Nobody can tell which rows came of them."""
    passed_over: list[Batch] = field(default_factory=list)
    """Nothing came of them."""
    is_open: bool = False
    """The piece just given is one of those that are settled this way, now or later."""


class HeldBack:
    """Of one stream of frames. Code that yields for every frame is in step, and nothing is kept here."""

    def __init__(self) -> None:
        self.pieces: list[Batch] = []
        """Given, in this order, and nothing has come of them."""
        self._rows_out = 0
        """That came since the first of `pieces` was given, beyond those that were settled."""
        self._nbytes = 0
        self._unclear = False
        """It holds back, and nobody can tell what."""

    def answered(self, piece: Batch, frames: int, rows: int, begins: int | None) -> Settled | None:
        """After the code took `piece` and yielded so many frames and rows before it asked for more; `begins` is the
        label of the first of those rows, from 0 for the first of `piece` (below: of earlier ones), None where labels
        were lost. None: it is in step, and what it yielded came of this piece.

        Code that lags behind, or gathers frames, yields as many rows as the first pieces had; where the numbers do
        not add up it may hold any part of what it was given. Code that keeps rows yields the oldest first: where rows
        of this piece come, it made nothing of those before.
        """
        if frames and not self.pieces:
            self._unclear = self._unclear or (begins is not None and begins < 0)
            return None
        if begins is not None and begins >= 0:
            return Settled(passed_over=self.all())
        self.pieces.append(piece)
        self._nbytes += piece.nbytes
        self._rows_out += rows
        answered_for: list[Batch] = []
        while self.pieces and self._rows_out >= len(self.pieces[0]) > 0:
            answered_for.append(self.pieces.pop(0))
            self._rows_out -= len(answered_for[-1])
            self._nbytes -= answered_for[-1].nbytes
        if self._rows_out or self._unclear or self._nbytes > MOST_BYTES:
            self._unclear = True
            answered_for += self.all()
        return Settled(answered_for, is_open=True)

    def all(self) -> list[Batch]:
        """Takes what is held: the code has ended, or nobody can tell any longer."""
        pieces, self.pieces, self._rows_out, self._nbytes = self.pieces, [], 0, 0
        return pieces

    def failure(self, operator: str, error: BaseException) -> BaseException:
        """What it means that the code fails with `error` now."""
        if self._unclear:
            return StoppedError(
                f"operator '{operator}': {error_line(error)}, while it held back rows of earlier frames; nobody can "
                "tell which, so they cannot be put aside"
            )
        return HeldBackError(error, self.all()) if self.pieces else error
