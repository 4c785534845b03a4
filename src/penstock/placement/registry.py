"""The placers there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.placement.contract import Placer

PLACERS: Registry[Placer] = Registry(
    kind="placer",
    group="penstock.placers",
    built_in={
        "round-robin": "penstock.placement.round_robin:RoundRobin",
        "rsm": "penstock.placement.rsm:Rsm",
        "sam": "penstock.placement.sam:Sam",
        "r-storm": "penstock.placement.r_storm:RStorm",
        "compact": "penstock.placement.compact:Compact",
        "random": "penstock.placement.random_feasible:RandomFeasible",
        "packing": "penstock.placement.packing:Packing",
        "metis": "penstock.placement.metis:Metis",
        "eft": "penstock.placement.eft:Eft",
        "balanced-eft": "penstock.placement.balanced_eft:BalancedEft",
        "joint": "penstock.placement.joint:Joint",
        "exact": "penstock.placement.exact:Exact",
        "even-split": "penstock.placement.even_split:EvenSplit",
    },
    needs={"metis": ("pymetis", "metis")},
)

DEFAULT_PLACER = "sam"
DEFAULT_WHOLE_CLUSTER_PLACER = "compact"
