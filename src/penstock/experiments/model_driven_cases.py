"""The cases of model-driven scheduling's evaluation, and what one gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import api
from penstock.cluster.catalogue import Catalogue, find_catalogue
from penstock.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.experiments.contract import Case, Measures
    from penstock.planning.plan import Plan

MICRO = ("linear", "diamond", "star")
APPLICATIONS = ("app-finance", "app-traffic", "app-grid")
COMPARED = ("lsa+rsm", "mba+sam")
"""Figs 7 and 8."""
PAIRS = ("lsa+dsm", "lsa+rsm", "mba+dsm", "mba+rsm", "mba+sam")
"""Figs 9 to 13."""
MICRO_RATES = (50, 100, 200)
APPLICATION_RATES = (50, 100)

_OURS = {"dsm": "round-robin"}
"""Placers with another name here."""


def policies(pair: str) -> tuple[str, str]:
    """The allocator and the placer of a published pair."""
    allocator, _, placer = pair.partition("+")
    return allocator, _OURS.get(placer, placer)


def d3_catalogue() -> Catalogue:
    """Sizes up to D3, four slots: the largest the document rents."""
    whole = find_catalogue("azure-d")
    return Catalogue(whole.name, tuple(size for size in whole.sizes if size.slots <= 4), whole.currency)


def slot_cases() -> list[Case]:
    asked = [(name, rate) for name in MICRO for rate in MICRO_RATES]
    asked += [(name, rate) for name in APPLICATIONS for rate in APPLICATION_RATES]
    return [
        {"part": "slots", "pipeline": name, "rate": rate, "pair": pair} for name, rate in asked for pair in COMPARED
    ]


def run_slots(case: Case) -> Measures:
    """Figs 7 and 8: slots allocated, slots the placer added."""
    allocator, placer = policies(case["pair"])
    try:
        plan = api.plan(case["pipeline"], case["rate"], allocator=allocator, placer=placer, catalogue=d3_catalogue())
    except RefusedError as refused:
        return {"refused": str(refused)}
    return plan_measures(plan)


def plan_measures(plan: Plan) -> Measures:
    operators = {
        operator.name: {"threads": operator.threads, "cpu": operator.cpu, "memory": operator.memory}
        for operator in plan.allocation.operators
    }
    allocated = plan.allocation.slots
    return {
        "allocated": allocated,
        "placed": plan.slots_asked,
        "extra": plan.slots_asked - allocated,
        "bound": plan.fewest_slots,
        "operators": operators,
        "predicted_shuffle": plan.prediction.shuffle.rate,
        "predicted_slot_aware": plan.prediction.slot_aware.rate,
    }


def without_ends(operators: dict[str, dict[str, float]], ends: Sequence[str] = ("source", "sink")) -> dict[str, float]:
    """Sums over the operators, without source and sink as the document counts."""
    kept = [values for name, values in operators.items() if name not in ends]
    return {key: sum(one[key] for one in kept) for key in ("threads", "cpu", "memory")}
