"""Earliest finish time for streams that never end: the bottleneck first, then the critical path.

The published rule finishes one second's work soonest and lets one machine carry whatever that takes; but a stream is
there again the next second, so the most loaded machine decides the rate. Here no machine is loaded above a limit while
others have room, work also goes into gaps of a queue, operators are only fused while a machine can carry them, and
what runs stays unless moving it gains more than a migration costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from penstock.base.errors import Refusal
from penstock.base.files import Weight  # noqa: TC001 - options are checked by their annotations at run time
from penstock.base.tolerance import TOLERANCE, tie_key
from penstock.planning.placement.contract import Placement
from penstock.planning.placement.placers.eft_schedule import Gaps, Queue, Rules, Schedule, Shortfall, schedule
from penstock.planning.placement.placers.eft_work import bundles_of, held_now, new_floor, refusal, work_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from penstock.planning.placement.contract import PlacementRequest, Room
    from penstock.planning.placement.placers.eft_schedule import Floor, Machines, Tasks, Timeline

    Held = Mapping[tuple[int, int], NDArray[np.float64]]

LIMITS = (1.0, 1.1, 1.3, np.inf)
"""Loads allowed, as multiples of the least any schedule can have; each is tried."""


@dataclass(frozen=True, slots=True)
class BalancedEft:
    """The best of a few schedules: the published one and, for some limits on the load of a machine, one with gaps
    filled (`best_schedule`).

    Instances of one operator go to different machines while there are enough, then to the same.
    """

    delta: Weight = 1.0
    migration: Weight = 0.05
    """Seconds of load, or of finish time, that moving one instance must save."""
    slack: Weight = 0.1
    """Share by which a bottleneck may be higher for an earlier finish."""

    name: ClassVar[str] = "balanced-eft"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True
    keeps_current: ClassVar[bool] = True

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        work = work_of(self.name, request, room, self.delta, capped=True)
        if isinstance(work, Refusal):
            return work
        scheduled, floor = best_schedule(work.tasks, work.machines, lambda: new_floor(work), held_now(work), self)
        if isinstance(scheduled, Shortfall):
            return refusal(self.name, work, floor, scheduled)
        return Placement(request.pipeline, self.name, bundles_of(work, floor, scheduled))


F = TypeVar("F", bound="Floor")


def best_schedule(
    tasks: Tasks, machines: Machines, new_floor: Callable[[], F], current: Held, options: BalancedEft
) -> tuple[Schedule | Shortfall, F]:
    """Return the best schedule and the floor it was made on, or the first shortfall if there is none.

    With `cost = bottleneck + migration x instances moved`, of all schedules whose cost is at most `1 + slack` times the
    least the one that is done first. Packing tightly is only tried when nothing else fits.
    """
    made: list[tuple[float, Schedule, F]] = []
    short: tuple[Shortfall, F] | None = None
    for timeline, rules in _attempts(tasks, machines, current, options.migration):
        if rules.tightest and made:
            break
        floor = new_floor()
        scheduled = schedule(tasks, machines, floor, timeline, rules)
        if isinstance(scheduled, Schedule):
            made.append((scheduled.bottleneck + options.migration * len(scheduled.moved(current)), scheduled, floor))
        else:
            short = short or (scheduled, floor)
    if not made:
        assert short is not None  # noqa: S101 - every attempt gives a schedule or a shortfall
        return short
    good = min(cost for cost, _, _ in made) * (1 + options.slack + TOLERANCE)
    dearest, longest = max(cost for cost, _, _ in made), max(done.makespan for _, done, _ in made)
    _, best, floor = min(
        (each for each in made if each[0] <= good),
        key=lambda each: (tie_key(each[1].makespan, longest), tie_key(each[0], dearest)),
    )
    return best, floor


def _attempts(tasks: Tasks, machines: Machines, current: Held, migration: float) -> Iterator[tuple[Timeline, Rules]]:
    """The published schedule, some with a limit on loads, and at last one that packs tightly."""
    least = least_bottleneck(tasks, machines)
    yield Queue(machines.idle), Rules(apart=False, current=current)
    for limit in LIMITS:
        yield Gaps(machines.idle), Rules(False, current, migration, limit * least)
        if current:
            yield Gaps(machines.idle), Rules(False, current, np.inf, limit * least)
    yield Gaps(machines.idle), Rules(apart=False, current=current, tightest=True)


def least_bottleneck(tasks: Tasks, machines: Machines) -> float:
    """Return a lower bound of the busiest machine's load in any schedule: the mean load, or the largest instance on the
    fastest machine. `max((sum of work + work in the queues) / sum of power, largest work / highest power)`."""
    total = sum(kind.count * kind.work for kinds in tasks.vertices for kind in kinds)
    largest = max((kind.work for kinds in tasks.vertices for kind in kinds), default=0.0)
    queued = float((machines.idle * machines.power).sum())
    return max((total + queued) / float(machines.power.sum()), largest / float(machines.power.max()))
