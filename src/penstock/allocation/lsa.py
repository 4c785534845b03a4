"""LSA, linear scaling (Shukla and Simmhan, Algorithm 2): every thread does what one thread alone did."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.allocation.contract import Bundle, OperatorAllocation, idle_operator

if TYPE_CHECKING:
    from penstock.modelling.model import Model


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """`n = floor(w / I(1))` threads of C(1), M(1); a remainder r > 0 adds one thread of C(1)*r/I(1), M(1)*r/I(1)."""

    name: ClassVar[str] = "lsa"

    def allocate(self, operator: str, rate: float, model: Model) -> OperatorAllocation:
        one_rate, one_cpu, one_memory = model.rate(1), model.cpu(1), model.memory(1)
        if rate <= 0:
            return idle_operator(operator, rate)
        whole = math.floor(rate / one_rate + 1e-9)
        rest = (rate - whole * one_rate) / one_rate
        bundles = [(whole, Bundle(1, one_cpu, one_memory))] if whole else []
        if rest > 1e-9 or not whole:
            bundles.append((1, Bundle(1, one_cpu * rest, one_memory * rest)))
        reason = (
            f"one thread of '{model.name}' supports {one_rate:g}/s: {rate:g} / {one_rate:g} = {whole} whole threads"
        )
        if rest > 1e-9 or not whole:
            reason += f" and one for the remaining {rest * one_rate:g}/s"
        return OperatorAllocation(operator, rate, tuple(bundles), reason)
