"""The prediction for a plan that runs fused: every slot runs the whole pipeline on its share of the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataflow.pipeline import Kind
from penstock.dataflow.tolerance import covers
from penstock.modelling.model import Model
from penstock.planning.plan import FusedPrediction
from penstock.prediction.fused_setup import PlannedRun, fused_setup, most_work_seconds, rehearsals_of

if TYPE_CHECKING:
    from penstock.planning.plan import Plan
    from penstock.prediction.fused import FusedSetup
    from penstock.prediction.rate import Demands

MAX_TIMES_SLOTS = 4
"""Search up to this multiple of the plan's slots for a number that would keep the rate."""


def predict_fused(plan: Plan, demands: Demands, interval_seconds: float) -> FusedPrediction | None:
    """Return the rate, the latency and the batch size of the plan's slots and threads run fused.

    None if an operator has no model.
    """
    code = [name for name, operator in plan.pipeline.operators.items() if operator.kind is Kind.OPERATOR]
    if not code or not all(isinstance(demands[name], Model) for name in code):
        return None
    cores = max(model.measured_on.cores or 1 for model in demands.values() if isinstance(model, Model))
    most_work = most_work_seconds(interval_seconds)

    def setup(slots: int, planned: PlannedRun | None = None) -> FusedSetup:
        """With fewer slots than cores, Spark itself uses the remaining cores."""
        return fused_setup(plan.pipeline, planned, demands, slots, plan.sized_for, max(slots, cores), most_work)

    slots = max(1, plan.slots_used)
    threads = {operator.name: operator.threads for operator in plan.allocation.operators}
    run = setup(slots, PlannedRun(plan.rate, threads, slots, {}))
    rate = run.rate(interval_seconds)
    warning = None
    if rehearsals_of(plan.pipeline, demands) and not covers(rate, plan.sized_for):
        more = range(slots + 1, MAX_TIMES_SLOTS * slots + 1)
        enough = next((n for n in more if covers(setup(n).rate(interval_seconds), plan.sized_for)), None)
        warning = _too_slow(plan, rate, slots, enough)
    return FusedPrediction(rate, run.latency_ms(plan.rate, interval_seconds), run.most_rows, warning)


def _too_slow(plan: Plan, rate: float, slots: int, enough: int | None) -> str:
    """Return the warning for slots that, by the rehearsal of the whole pipeline, will not keep the rate.

    Plans are made from models of single operators, which leave out Spark's own work per row. `enough` slots would do.
    """
    where = f"{slots} slot{'' if slots == 1 else 's'}"
    of = "" if plan.load == 1 else f" of the {plan.sized_for:,.4g}/s it is sized for"
    hint = f"; {enough} slots would do" if enough else ""
    return f"run fused on {where} it will do {rate:,.4g}/s{of}, by what the whole pipeline did in its profile{hint}"
