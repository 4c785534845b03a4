"""The oracle: it knows the whole load and every loss, pays for changes as everybody does, and looks for the fewest
slot-hours with as few seconds outside the target as can be.

Per block of time the fewest units that carry what arrives; over all blocks the cheapest row of sizes by dynamic
programming, where a change costs the seconds units are paid before they work and the work that a pause leaves undone;
then the row is played on the same plant as everybody's, and blocks in which the target was missed get a unit more,
until none is missed that a size could help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.plugins import TOLERANCE
from penstock.testing import Plant
from penstock.testing.plant import TICK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.testing import LoadTrace, Site

BLOCK_TICKS = 6
REPAIRS = 12


def fewest_units(site: Site, traffic: LoadTrace) -> NDArray[np.int64]:
    """By block: rate of the block over what a unit does, rounded up; one block ahead where units take long to start."""
    rates = traffic.rates[: len(traffic.rates) // BLOCK_TICKS * BLOCK_TICKS].reshape(-1, BLOCK_TICKS)
    units: NDArray[np.int64] = np.maximum(1, np.ceil(rates.mean(axis=1) / site.unit_rate - TOLERANCE)).astype(np.int64)
    return units


def cheapest(site: Site, least: NDArray[np.int64], worth_s: float = 0.0) -> NDArray[np.int64]:
    """The row of sizes, none below `least`, with the fewest slot-seconds, changes included.

    cost(u -> v) = start * max(0, v - u) + pause * max(u, v) + worth * mean(least)   for u != v
    """
    low, high = int(least.min()), int(least.max())
    sizes = np.arange(low, high + 1)
    before, after = sizes[:, None], sizes[None, :]
    paid = site.start_s * np.maximum(0, after - before) + site.pause_s * np.maximum(before, after)
    moving = np.where(before == after, 0.0, paid + worth_s * least.mean())
    seconds = BLOCK_TICKS * TICK_SECONDS
    cost = np.where(sizes >= least[0], sizes * seconds, np.inf)
    came_from = np.zeros((len(least), len(sizes)), dtype=np.int32)
    for block in range(1, len(least)):
        reached = cost[:, None] + moving
        came_from[block] = reached.argmin(axis=0)
        cost = reached[came_from[block], np.arange(len(sizes))] + np.where(
            sizes >= least[block], sizes * seconds, np.inf
        )
    row = np.empty(len(least), dtype=np.int64)
    position = int(cost.argmin())
    for block in range(len(least) - 1, -1, -1):
        row[block] = sizes[position]
        position = int(came_from[block, position])
    return row


def plan(sites: Sequence[Site], traffics: Sequence[LoadTrace]) -> list[NDArray[np.int64]]:
    """A row of sizes for each, none of which misses its target where a larger one would not."""
    least = [fewest_units(site, traffic) for site, traffic in zip(sites, traffics, strict=True)]
    rows = [cheapest(site, need) for site, need in zip(sites, least, strict=True)]
    open_cases = list(range(len(rows)))
    for _ in range(REPAIRS):
        missed = play([sites[case] for case in open_cases], [traffics[case] for case in open_cases],
                      [rows[case] for case in open_cases]).missed  # fmt: skip
        still = []
        for case, blocks in zip(open_cases, missed, strict=True):
            if not blocks.any():
                continue
            # a queue is made before it is seen: the block before is raised too
            raised = blocks | np.append(blocks[1:], False)
            least[case] = np.minimum(
                np.where(raised, np.maximum(least[case], rows[case]) + 1, least[case]), sites[case].most_units
            )
            rows[case] = cheapest(sites[case], least[case])
            still.append(case)
        open_cases = still
        if not open_cases:
            break
    return rows


def with_few_changes(sites: Sequence[Site], traffics: Sequence[LoadTrace], worth_s: float) -> tuple[float, float]:
    """Slot-hours over those of one to whom changes are worth nothing, and changes, in the mean: what can be had at all
    by one who knows the future and to whom a change is worth the whole pipeline for `worth_s` seconds."""
    over, changes = [], []
    for site, traffic in zip(sites, traffics, strict=True):
        least = fewest_units(site, traffic)
        row = cheapest(site, least, worth_s)
        over.append(row.sum() / cheapest(site, least).sum() - 1)
        changes.append(np.count_nonzero(np.diff(row)))
    return float(np.mean(over)), float(np.mean(changes))


class Played:
    """Rows of sizes on the plant: the plant at the end, and in which blocks the target was missed."""

    def __init__(self, plant: Plant, missed: list[NDArray[np.bool_]]) -> None:
        self.plant = plant
        self.missed = missed


def play(sites: Sequence[Site], traffics: Sequence[LoadTrace], rows: Sequence[NDArray[np.int64]]) -> Played:
    """Units that take long to start are asked for as much earlier."""
    plant = Plant(sites, traffics, [int(row[0]) for row in rows])
    ticks = len(traffics[0].rates)
    rates = np.stack([traffic.rates for traffic in traffics], axis=1)
    missed = np.zeros((ticks // BLOCK_TICKS + 1, len(sites)), dtype=bool)
    ahead = [int(np.ceil(site.start_s / TICK_SECONDS)) for site in sites]
    for tick in range(ticks):
        for case, row in enumerate(rows):
            now = row[min(len(row) - 1, tick // BLOCK_TICKS)]
            soon = row[min(len(row) - 1, (tick + ahead[case]) // BLOCK_TICKS)]
            wanted = max(now, soon)
            if wanted != plant.asked[case]:
                plant.resize(case, int(wanted))
        before = plant.outside_s.copy()
        plant.tick(rates[tick])
        missed[tick // BLOCK_TICKS] |= plant.outside_s > before
    return Played(plant, [missed[: len(row), case] for case, row in enumerate(rows)])
