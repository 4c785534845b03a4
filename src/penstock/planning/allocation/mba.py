"""MBA, model-based allocation (Shukla and Simmhan, Algorithm 3): whole slots at their peak, then the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.base.tolerance import exceeds, whole_down
from penstock.planning.allocation.contract import OperatorAllocation, ThreadBundle, idle_operator

if TYPE_CHECKING:
    from penstock.modelling.model import Model


@dataclass(frozen=True, slots=True)
class ModelBased:
    """`n = floor(w / w^)` full bundles of t^ threads, each charged a whole slot.

    A remainder r > 0 takes t' = T(r) threads: C(t'), M(t') for t' > 1, and C(1)*r/I(1), M(1)*r/I(1) for t' = 1.
    """

    name: ClassVar[str] = "mba"

    def allocate(self, operator: str, rate: float, model: Model) -> OperatorAllocation:
        if rate <= 0:
            return idle_operator(operator, rate)
        full = whole_down(rate / model.peak_rate)
        rest = rate - full * model.peak_rate
        bundles = [(full, ThreadBundle(model.peak_threads, 1.0, 1.0, exclusive=True))] if full else []
        reason = (
            f"a slot of '{model.name}' peaks at {model.peak_rate:g}/s with {model.peak_threads} threads: "
            f"{full} full slot{'' if full == 1 else 's'} for {full * model.peak_rate:g}/s"
        )
        if not full or exceeds(rate, full * model.peak_rate):
            threads = model.threads_for(rest)
            part = rest / model.rate(1) if threads == 1 else 1.0
            bundles.append((1, ThreadBundle(threads, model.cpu(threads) * part, model.memory(threads) * part)))
            reason += f", then {threads} thread{'' if threads == 1 else 's'} for the remaining {rest:g}/s"
        return OperatorAllocation(operator, rate, tuple(bundles), reason)
