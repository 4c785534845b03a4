"""The next of many places that is still free, where places only ever fill up."""

from __future__ import annotations


class NextFree:
    """Places 0 to size - 1, all free at first. The next free one is found in almost constant time by following, and
    shortening, the links over those that are taken (a union-find)."""

    def __init__(self, size: int) -> None:
        self._links = list(range(size + 1))
        self._size = size

    def take(self, place: int) -> None:
        self._links[place] = place + 1

    def at_or_after(self, place: int) -> int | None:
        """The first free place from `place` on, then from the beginning; None: all are taken."""
        for start in (place, 0):
            free = self._find(start) if start < self._size else self._size
            if free < self._size:
                return free
        return None

    def _find(self, place: int) -> int:
        links = self._links
        root = place
        while links[root] != root:
            root = links[root]
        while links[place] != root:
            links[place], place = root, links[place]
        return root
