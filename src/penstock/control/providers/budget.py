"""What may be acquired: a number of nodes, and a price per hour, neither of which is ever exceeded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.dataflow.tolerance import whole_down

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Budget:
    nodes: int | None = None
    price_per_hour: float | None = None

    def allows(self, prices: Iterable[float | None], asked: int, price: float | None) -> int:
        """Of `asked` more nodes at `price`, how many may be had beside nodes with these prices (those that were asked
        for and have not come count: they may). A node without a price counts for nothing.

        min(asked, nodes - have, floor((price_per_hour - sum of prices) / price))
        """
        have = list(prices)
        allowed = asked if self.nodes is None else min(asked, self.nodes - len(have))
        if self.price_per_hour is not None and price:
            left = self.price_per_hour - sum(known or 0.0 for known in have)
            allowed = whole_down(min(allowed, left / price))
        return max(0, allowed)


def price_so_far(held: Iterable[tuple[float, float | None]]) -> float:
    """Of (seconds, price per hour) of every node there was."""
    return sum(seconds / 3600 * (price or 0.0) for seconds, price in held)
