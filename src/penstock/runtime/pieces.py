"""What code gets and what became of it: a piece of a stream as columns or as dicts, and the outcome of one call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.runtime.batch import Batch, Marks
from penstock.runtime.dead_letters import DeadLetter, StoppedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.runtime.batch import Numbers


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as dicts, at the edge of code per row; columns are made of them when they leave it."""

    dicts: list[dict[str, Any]]
    marks: Marks
    schema: pa.Schema

    def __len__(self) -> int:
        return len(self.dicts)

    def along(self, stream: int) -> Rows:
        return replace(self, marks=self.marks.along(stream))

    def take(self, which: NDArray[np.bool_]) -> Rows:
        return replace(
            self,
            dicts=[row for row, taken in zip(self.dicts, which, strict=True) if taken],
            marks=self.marks.take(which),
        )

    def copy(self) -> Rows:
        """With dicts that code may change, inside of structs, arrays and maps too, without changing them for others."""
        nested = [field.name for field in self.schema if pa.types.is_nested(field.type)]
        dicts = [dict(row) for row in self.dicts]
        for row in dicts if nested else ():
            row.update((name, _copied(row[name])) for name in nested if name in row)
        return replace(self, dicts=dicts)


def _copied(value: Any) -> Any:
    """What nobody can change is shared."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value.copy() if isinstance(value, np.ndarray | set | bytearray) else value


Piece = Batch | Rows


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one piece at one step."""

    made: Piece
    letters: list[DeadLetter]
    calls: int
    filtered: Numbers | int = 0
    """Ids of what went in and nothing came of; only their number where ids are not tracked."""
    untraced: Numbers | int = 0
    """Of what went in where nobody can tell what came of it."""


def columns(piece: Piece) -> Batch:
    """Where only columns can come: whoever made rows for others than code per row made columns of them."""
    if isinstance(piece, Rows):
        raise TypeError("rows as dicts outside of code per row")
    return piece


def stopped(letter: DeadLetter) -> StoppedError:
    which = "" if letter.id is None else f", tuple {letter.id}"
    return StoppedError(f"operator '{letter.operator}'{which}: {letter.error}")


def letter_of(
    operator: str, marks: Marks, at: int | None, row: dict[str, Any], line: str, field: str | None = None
) -> DeadLetter:
    number = None if marks.ids is None or at is None else int(marks.ids[at])
    return DeadLetter(operator, number, row, line, field)


def ids_or_count(marks: Marks, which: NDArray[np.bool_]) -> Numbers | int:
    return int(which.sum()) if marks.ids is None else marks.ids[which]


def and_all_of(which: Numbers | int, pieces: Sequence[Batch]) -> Numbers | int:
    """Those `which`, by id or only counted, and all rows of `pieces`."""
    if not pieces:
        return which
    tracked = [piece.ids for piece in pieces if piece.ids is not None]
    if len(tracked) < len(pieces):
        return (which if isinstance(which, int) else len(which)) + sum(map(len, pieces))
    return np.concatenate([np.zeros(0, np.int64) if isinstance(which, int) else which, *tracked])
