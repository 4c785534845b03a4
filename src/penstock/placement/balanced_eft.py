"""Earliest finish time for streams that never end: the bottleneck first, then the critical path.

The published rule finishes one second's work soonest and lets one machine carry whatever that takes; but a stream is
there again the next second, so the most loaded machine decides the rate. Here no machine is loaded above a limit while
others have room, work also goes into gaps of a queue, operators are only fused while a machine can carry them, and
what runs stays unless moving it gains more than a migration costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.errors import Refusal
from penstock.placement.contract import Placement
from penstock.placement.eft import bundles_of
from penstock.placement.eft_floor import held_now, new_floor, refusal
from penstock.placement.eft_schedule import Rules, Schedule, Shortfall, schedule
from penstock.placement.eft_timeline import Gaps, Queue
from penstock.placement.eft_work import work_of
from penstock.registry import Weight  # noqa: TC001 - options are checked by their annotations at run time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from penstock.placement.contract import Request, Room
    from penstock.placement.eft_schedule import Machines, Tasks
    from penstock.placement.eft_timeline import Timeline
    from penstock.placement.eft_work import Work

    Held = Mapping[tuple[int, int], NDArray[np.float64]]

LIMITS = (1.0, 1.1, 1.3, np.inf)
"""Loads allowed, as multiples of the least any schedule can have; each is tried."""


@dataclass(frozen=True, slots=True)
class BalancedEft:
    """The best of a few schedules: the published one and, for some limits on the load of a machine, one with gaps
    filled. Best: the least `bottleneck + migration x instances moved`, then the earliest finish.

    Instances of one operator go to different machines while there are enough, then to the same.
    """

    delta: Weight = 1.0
    migration: Weight = 0.05
    """Seconds of load, or of finish time, that moving one instance must save."""

    name: ClassVar[str] = "balanced-eft"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True
    keeps_current: ClassVar[bool] = True

    def place(self, request: Request, room: Room) -> Placement | Refusal:
        work = work_of(self.name, request, room, self.delta, capped=True)
        if isinstance(work, Refusal):
            return work
        current = held_now(work)
        best: tuple[tuple[float, float], Placement] | None = None
        refusals: list[Refusal] = []
        for timeline, rules in self._attempts(work, current):
            if rules.tightest and best is not None:
                break
            floor = new_floor(work)
            found = schedule(work.tasks, work.machines, floor, timeline, rules)
            if isinstance(found, Shortfall):
                refusals.append(refusal(self.name, work, floor, found))
                continue
            score = self.score(found, len(found.moved(current)))
            if best is None or score < best[0]:
                best = score, Placement(request.pipeline, self.name, bundles_of(work, floor, found))
        return best[1] if best is not None else refusals[0]

    def _attempts(self, work: Work, current: Held) -> Iterator[tuple[Timeline, Rules]]:
        """The published schedule, some with a limit on loads, and at last one that packs tightly."""
        idle = work.machines.idle
        least = least_bottleneck(work.tasks, work.machines)
        yield Queue(idle), Rules(apart=False, current=current)
        for limit in LIMITS:
            yield Gaps(idle), Rules(False, current, self.migration, limit * least)
        yield Gaps(idle), Rules(apart=False, current=current, tightest=True)

    def score(self, found: Schedule, moved: int) -> tuple[float, float]:
        return round(found.bottleneck + self.migration * moved, 9), round(found.makespan, 9)


def least_bottleneck(tasks: Tasks, machines: Machines) -> float:
    """No schedule loads its busiest machine less: not below the mean load, nor below what the largest instance is on
    the fastest machine. `max((sum of work + what is in the queues) / sum of power, largest work / highest power)`."""
    total = sum(kind.count * kind.work for kinds in tasks.vertices for kind in kinds)
    largest = max((kind.work for kinds in tasks.vertices for kind in kinds), default=0.0)
    queued = float((machines.idle * machines.power).sum())
    return max((total + queued) / float(machines.power.sum()), largest / float(machines.power.max()))
