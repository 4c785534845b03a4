"""E-Stream's placement: every operator to the machine on which it finishes first (E-Stream, sections 4.4 and 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.base.errors import Refusal
from penstock.base.files import Weight  # noqa: TC001 - options are checked by their annotations at run time
from penstock.planning.placement.contract import Placement
from penstock.planning.placement.placers.eft_beside import finish_seconds, place_beside
from penstock.planning.placement.placers.eft_schedule import Queue, Rules, Shortfall, schedule
from penstock.planning.placement.placers.eft_work import bundles_of, held_now, new_floor, refusal, work_of

if TYPE_CHECKING:
    from penstock.planning.placement.contract import Beside, PlacementRequest, Room


@dataclass(frozen=True, slots=True)
class Eft:
    """The published rule.

    Operators whose communication-to-computation ratio is above `delta` are fused, with all on paths between them.
    Vertices go by falling upward rank, each to the machine with the earliest finish time, appended to its queue. Rule
    1: instances of one vertex go to different machines, or the pipeline is refused. Rule 2: of equal finish times the
    machine with the most power left. Rule 3: before that, the machine on which it runs already. O(operators x machines)
    in vectorised passes, and O(threads).

    A pipeline that runs keeps its threads, and new ones are placed beside them by the same rule. All is placed anew if
    that is done earlier by more than `slack`: rule 3 with a limit.
    """

    delta: Weight = 1.0
    slack: Weight = 0.1

    name: ClassVar[str] = "eft"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True
    keeps_current: ClassVar[bool] = True

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        if request.beside is not None and room.slot_memory_shared:
            return place_beside(self.name, request, request.beside, room)
        work = work_of(self.name, request, room, self.delta, capped=False)
        if isinstance(work, Refusal):
            return work
        floor = new_floor(work)
        rules = Rules(current=held_now(work))
        scheduled = schedule(work.tasks, work.machines, floor, Queue(work.machines.idle), rules)
        if isinstance(scheduled, Shortfall):
            return refusal(self.name, work, floor, scheduled)
        return Placement(request.pipeline, self.name, bundles_of(work, floor, scheduled))

    def finish_seconds(self, whole: Beside) -> float:
        return finish_seconds(whole)
