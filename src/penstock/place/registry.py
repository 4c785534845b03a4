"""The placers there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.place.contract import Placer

PLACERS: Registry[Placer] = Registry(
    kind="placer",
    group="penstock.placers",
    built_in={
        "round-robin": "penstock.place.round_robin:RoundRobin",
        "rsm": "penstock.place.rsm:Rsm",
        "sam": "penstock.place.sam:Sam",
        "r-storm": "penstock.place.r_storm:RStorm",
        "compact": "penstock.place.compact:Compact",
        "random": "penstock.place.random_feasible:RandomFeasible",
    },
)

DEFAULT_PLACER = "sam"
DEFAULT_WHOLE_CLUSTER_PLACER = "compact"
