"""Even split: bundles that plain shuffle routing does not overfeed.

Shuffle gives every thread the same share, so an operator with t threads does `min over its slots of I(t_k) t / t_k`:
the published 60 + 60 + 40 threads of the Table task do 80 tuples/s, although their slots support 100; 54 + 53 + 53
do 99.6. Where I(t) / t rises with t the published split can be the better one, so each operator takes its better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.base.tolerance import TOLERANCE, exceeds, first_smallest, tie_key
from penstock.planning.placement.contract import PlacedBundle, Placement
from penstock.planning.placement.slots import free_slots, too_few, too_large

if TYPE_CHECKING:
    from penstock.base.errors import Refusal
    from penstock.modelling.model import Model
    from penstock.planning.placement.contract import OperatorRequest, PlacementRequest, Room


@dataclass(frozen=True, slots=True)
class EvenSplit:
    """Keep the number of bundles of an operator, with threads that differ by at most one, if shuffle routing then
    supports a higher rate; otherwise keep the allocation's bundles.

    The demand of a bundle is its use if its threads get an equal share of the rate; they are placed best fit, the
    largest first, never two of one operator with a model on a slot, where they would be one larger bundle. O(bundles x
    slots).
    """

    name: ClassVar[str] = "even-split"
    whole_cluster: ClassVar[bool] = False
    keeps_resources: ClassVar[bool] = False

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        slots = free_slots(room)
        if (refused := too_large(self.name, request, slots)) is not None:
            return refused
        pieces = [piece for operator in request.operators for piece in _pieces(operator)]
        pieces.sort(key=lambda piece: -tie_key(max(piece[2], piece[3]), 1.0))
        left = np.ones((len(slots), 2))
        free_of = {o.name: np.ones(len(slots), dtype=bool) for o in request.operators}
        split = {operator.name for operator in request.operators if operator.model is not None}
        placed: list[PlacedBundle] = []
        for operator, threads, cpu, memory, why in pieces:
            after = left - [cpu, memory]
            spare = np.where((after >= -TOLERANCE).all(axis=1) & free_of[operator], after.sum(axis=1), np.inf)
            best = first_smallest(spare, 1.0) if len(slots) else 0
            if not len(slots) or np.isinf(spare[best]):
                return too_few(self.name, request, len(slots) + 1, len(slots))
            left[best] = after[best]
            free_of[operator][best] = operator not in split
            placed.append(PlacedBundle(operator, threads, slots[best], why if request.explain else ""))
        return Placement(request.pipeline, self.name, tuple(placed))


Piece = tuple[str, int, float, float, str]


def shuffled(model: Model, split: list[int]) -> float:
    """Return the rate of an operator whose threads are split in this way: `min_k I(t_k) t / t_k`."""
    total = sum(split)
    return min(model.rate(threads) * total / threads for threads in split)


def even(threads: int, bundles: int) -> list[int]:
    """Return `threads` in `bundles` parts that differ by at most one, the larger first."""
    return [threads // bundles + (part < threads % bundles) for part in range(bundles)]


def chosen_split(operator: OperatorRequest) -> list[int]:
    """The split of an operator's threads that shuffle routing supports most with; the allocation's on a tie."""
    published = [bundle.threads for count, bundle in operator.bundles for _ in range(count)]
    if operator.model is None or len(published) < 2:
        return published
    split = even(operator.threads, len(published))
    better = exceeds(shuffled(operator.model, split), shuffled(operator.model, published))
    return split if better else published


def _pieces(operator: OperatorRequest) -> list[Piece]:
    split = chosen_split(operator)
    model = operator.model
    if model is None or operator.rate <= 0:
        return [
            (operator.name, bundle.threads, bundle.cpu, bundle.memory, "as allocated")
            for count, bundle in operator.bundles
            for _ in range(count)
        ]
    why = f"split {' + '.join(map(str, split[:4]))}{' ...' * (len(split) > 4)}: " + (
        f"{shuffled(model, split):.4g}/s with shuffle routing"
    )
    pieces = []
    for threads in split:
        part = min(1.0, operator.rate * threads / operator.threads / model.rate(threads))
        pieces.append(
            (operator.name, threads, min(1.0, part * model.cpu(threads)), min(1.0, part * model.memory(threads)), why)
        )
    return pieces
