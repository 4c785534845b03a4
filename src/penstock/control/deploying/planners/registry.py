"""Planners of rounds by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.control.deploying.planners.contract import RoundPlanner

_HERE = "penstock.control.deploying.planners"
ROUND_PLANNERS: Registry[RoundPlanner] = Registry(
    kind="planner",
    group="penstock.round_planners",
    built_in={"measured": f"{_HERE}.measured:MeasuredCosts", "published": f"{_HERE}.published:PublishedCosts"},
)
DEFAULT_ROUND_PLANNER = "measured"
