"""Asking a placer, with the constraints it knows nothing of kept for it, or refused by name.

Some constraints only say which nodes a pipeline may have at all: where all its operators ask for the same, a placer
keeps those by never seeing the other nodes. What says more than that the placer must look at itself (`keeps`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.placement.constraints.refusals import kept_out, not_kept
from penstock.placement.constraints.where import OF_NODES, Constraint, allowed, asked, open_to, preference
from penstock.placement.contract import KeepsConstraints, Placement

if TYPE_CHECKING:
    from penstock.errors import Refusal
    from penstock.placement.contract import PlacementRequest, Placer, Room


def ask(placer: Placer, request: PlacementRequest, room: Room) -> Placement | Refusal:
    """What the placer makes of the pipeline within all its constraints."""
    wishes = dict(asked(request))
    keeps = placer.keeps if isinstance(placer, KeepsConstraints) else frozenset()
    mask = open_to(request, room)
    if room.cluster.excluded and not placer.whole_cluster:
        mask = mask & (room.slots > 0)  # those that fill slots of the cluster one by one do not ask who is excluded
    if wishes or room.cluster.tainted:
        for constraint, who in wishes.items():
            if constraint not in keeps and constraint not in OF_NODES:
                return not_kept(placer.name, constraint, who, request)
        masks = allowed(request, room)
        preferred = {frozenset(operator.constraints.preferred_labels) for operator in request.operators}
        if masks and len(preferred) == 1 and all((own == masks[0]).all() for own in masks):
            mask = mask & masks[0]
            wanted = preference(request.operators[0], room)
            best = mask & (wanted == wanted[mask].max(initial=0))
            if wanted.any() and best.any():
                answer = placer.place(request, room.only(best))
                if isinstance(answer, Placement):
                    return answer
        elif masks and not keeps >= OF_NODES:
            constraint, who = next(
                ((c, who) for c, who in wishes.items() if c in OF_NODES), (Constraint.TAINTS, request.pipeline)
            )
            return not_kept(placer.name, constraint, who, request, "that differ within one pipeline")
    if mask.all():
        return placer.place(request, room)
    if not mask.any() and request.operators:
        return kept_out(placer.name, request, room, 0)
    return placer.place(request, room.only(mask))
