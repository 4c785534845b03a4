"""E-Stream's placement: every operator to where it is finished first (E-Stream, sections 4.4 and 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.base.errors import Refusal
from penstock.base.files import Weight  # noqa: TC001 - options are checked by their annotations at run time
from penstock.planning.placement.contract import Placement
from penstock.planning.placement.placers.eft_schedule import Queue, Rules, Shortfall, schedule
from penstock.planning.placement.placers.eft_work import held_now, new_floor, refusal, work_of
from penstock.planning.placement.slots import bundled

if TYPE_CHECKING:
    from penstock.planning.placement.contract import PlacedBundle, PlacementRequest, Room
    from penstock.planning.placement.placers.eft_schedule import Schedule
    from penstock.planning.placement.placers.eft_work import NodeFloor, SlotFloor, Work


@dataclass(frozen=True, slots=True)
class Eft:
    """The published rule.

    Operators whose communication-to-computation ratio is above `delta` are fused, with all on paths between them.
    Vertices go by falling upward rank, each to the machine with the earliest finish time, appended to its queue.
    Rule 1: instances of one vertex go to different machines, or the pipeline is refused. Rule 2: of equal finish times
    the machine with the most power left. Rule 3: before that, the one where it runs already.
    O(operators x machines) in vectorised passes, and O(threads).
    """

    delta: Weight = 1.0

    name: ClassVar[str] = "eft"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True
    keeps_current: ClassVar[bool] = True

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        work = work_of(self.name, request, room, self.delta, capped=False)
        if isinstance(work, Refusal):
            return work
        floor = new_floor(work)
        rules = Rules(current=held_now(work))
        scheduled = schedule(work.tasks, work.machines, floor, Queue(work.machines.idle), rules)
        if isinstance(scheduled, Shortfall):
            return refusal(self.name, work, floor, scheduled)
        return Placement(request.pipeline, self.name, bundles_of(work, floor, scheduled))


def bundles_of(work: Work, floor: SlotFloor | NodeFloor, scheduled: Schedule) -> tuple[PlacedBundle, ...]:
    """Threads on slots, from instances on machines."""
    operators: list[int] = []
    nodes: list[int] = []
    slots: list[int] = []
    reasons: list[str] = []
    explain = work.request.explain
    for position, each in enumerate(scheduled.assigned):
        node, slot = floor.slot(position, each)
        for operator, threads in work.kinds[each.vertex][each.kind].threads:
            operators += [operator] * threads
            nodes += [node] * threads
            slots += [slot] * threads
            if explain:
                reason = f"done first here: from {each.start:.3g} s to {each.finish:.3g} s of a second of the stream"
                if len(work.groups[each.vertex]) > 1:
                    reason += f", fused as {work.name(each.vertex)}"
                reasons += [reason] * threads
    return bundled(work.request, work.room, operators, nodes, slots, reasons)
