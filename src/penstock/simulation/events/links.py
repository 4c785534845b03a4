"""Links of nodes: one out and one in, each carrying one tuple after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster.topology import BYTES_PER_MEGABIT, Slot
from penstock.simulation.outcome import Bottleneck
from penstock.simulation.system import NANOSECONDS

if TYPE_CHECKING:
    from penstock.simulation.system import Scenario


class Links:
    """When every link is free, and how long it was busy past the warm-up."""

    def __init__(self, scenario: Scenario, warm_up: int, length: int) -> None:
        own = scenario.network.bandwidth_mbps
        self._nanoseconds_per_byte = [
            NANOSECONDS / ((node.bandwidth_mbps if own is None else own) * BYTES_PER_MEGABIT)
            for node in scenario.cluster.nodes
        ]
        self._names = [node.name for node in scenario.cluster.nodes]
        size = len(self._names)
        self._free = [[0] * size, [0] * size]
        self._busy = [[0] * size, [0] * size]
        self._by_sender: list[dict[tuple[str, str], int]] = [{} for _ in self._names]
        self._warm_up = warm_up
        self._length = length

    def carry(self, direction: int, node: int, now: int, size: float, who: tuple[str, str]) -> int:
        """When a tuple of so many bytes is through the link of a node, out (0) or in (1), that it reaches now.

        `done = max(now, free) + bytes / bandwidth`. `who` is the pipeline and operator that sends it.
        """
        takes = round(size * self._nanoseconds_per_byte[node])
        free = self._free[direction]
        done = max(now, free[node]) + takes
        free[node] = done
        if now >= self._warm_up:
            self._busy[direction][node] += takes
            row = self._by_sender[node]
            row[who] = row.get(who, 0) + takes
        return done

    def bottlenecks(self, pipeline: str) -> list[Bottleneck]:
        """Every link the pipeline uses, with the operator of it that uses it most."""
        span = self._length - self._warm_up
        used = []
        for node, row in enumerate(self._by_sender):
            mine = {operator: takes for (of, operator), takes in row.items() if of == pipeline}
            if mine:
                busy = max(self._busy[0][node], self._busy[1][node])
                operator = max(mine, key=lambda name: mine[name])
                slot = Slot(self._names[node], 0)
                used.append(Bottleneck(operator, slot, min(1.0, busy / span), "network"))
        return used
