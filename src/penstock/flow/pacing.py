"""How many rows may be under way to somebody, so that they are a fraction of a second of work, however fast that is.

What is under way must be worked off before an epoch is complete, a plan changes, or a run is drained: a bound in bytes
alone would be minutes of an operator that waits for others.
"""

from __future__ import annotations

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
