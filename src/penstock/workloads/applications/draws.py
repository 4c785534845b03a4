"""Even draws that follow from a number alone: the same everywhere, and fast enough to make messages of."""

from __future__ import annotations


class Draws:
    """A linear congruential generator (Knuth's MMIX constants), seeded by a number; its high bits are the good ones."""

    def __init__(self, seed: int) -> None:
        self._state = seed
        self.below(2)

    def below(self, bound: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % bound
