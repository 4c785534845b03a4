"""What travels through a running pipeline: a payload, and what says where it came from."""

from __future__ import annotations

from typing import Any, NamedTuple

ID = "_id"
"""Number of the source tuple a tuple descends from."""
DUE = "_due"
"""When the source tuple was due, in seconds since the epoch."""
PATH = "_path"
"""Which way it took: no two tuples at one operator share id and path."""

SYSTEM_COLUMNS = (ID, DUE, PATH)
SYSTEM_SCHEMA = f"{ID} bigint, {DUE} double, {PATH} bigint"

_PRIME = 1_000_003
_MASK = (1 << 62) - 1


class Tuple(NamedTuple):
    id: int
    due: float
    path: int
    payload: dict[str, Any]

    def child(self, stream: int, number: int, payload: dict[str, Any]) -> Tuple:
        """Tuple `number` that left on output stream `stream` because of this one."""
        return Tuple(self.id, self.due, next_path(self.path, stream, number), payload)


def next_path(path: int, stream: int, number: int) -> int:
    """A 62-bit mix of the way so far and the next step; the same step always gives the same path."""
    return ((path + 1) * _PRIME + stream * 8_191 + number * 31 + 7) & _MASK
