"""The model of operators that run one after the other in the same threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.modelling.model import Model, Point

if TYPE_CHECKING:
    from collections.abc import Sequence


def fused_model(name: str, parts: Sequence[tuple[Model, float]]) -> Model:
    """`parts` are models with how many tuples each handles for one that enters the fused operator.

    A thread is busy with one part at a time, so at t threads
    `I(t) = 1 / sum of f_k / I_k(t)` and `C(t) = I(t) * sum of f_k C_k(t) / I_k(t)`; memory is held: `sum of M_k`.
    """
    if not any(share > 0 for _, share in parts):
        raise BadInputError(f"operator '{name}' receives nothing: there is no model of it")
    points = []
    for threads in sorted({point.threads for model, _ in parts for point in model.points}):
        busy = sum(share / model.rate(threads) for model, share in parts)
        points.append(
            Point(
                threads=threads,
                rate=1 / busy,
                cpu=sum(share * model.cpu(threads) / model.rate(threads) for model, share in parts) / busy,
                memory=sum(model.memory(threads) for model, _ in parts),
            )
        )
    return Model(name, tuple(points))
