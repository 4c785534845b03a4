"""`penstock.diff(...)`: what moves from one plan to another."""

from __future__ import annotations

from penstock.jobs.find import PlanLike, saved_plan
from penstock.planning.diff import PlanDiff
from penstock.planning.diff import diff as diff_plans


def diff(before: PlanLike, after: PlanLike) -> PlanDiff:
    """What changes and what moves from one plan, or plan file, to another."""
    return diff_plans(saved_plan(before), saved_plan(after))
