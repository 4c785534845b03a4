"""What travels through a running pipeline: a payload, and what says where it came from."""

from __future__ import annotations

from typing import Any, NamedTuple

_PRIME = 1_000_003
_MASK = (1 << 62) - 1


class Tuple(NamedTuple):
    """`id` is the number of the source tuple it descends from, `due` when that was due (seconds since the epoch),
    `path` which way it took since: no two tuples at one operator share id and path."""

    id: int
    due: float
    path: int
    payload: dict[str, Any]

    def along(self, stream: int) -> Tuple:
        """The same tuple after it took stream `stream` (from 1)."""
        return Tuple(self.id, self.due, mixed(self.path, stream), self.payload)

    def own(self) -> Tuple:
        """The same tuple with fields of its own; what is inside a field is shared."""
        return Tuple(self.id, self.due, self.path, dict(self.payload))

    def child(self, number: int, payload: dict[str, Any]) -> Tuple:
        """One of several tuples (from 0) that code made of this one."""
        return Tuple(self.id, self.due, mixed(self.path, -1 - number), payload)


def mixed(path: int, step: int) -> int:
    """A 62-bit mix of the way so far and the next step; the same steps always give the same path."""
    return ((path + 1) * _PRIME + step * 8_191 + 7) & _MASK
