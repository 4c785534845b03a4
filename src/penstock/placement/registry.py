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
        "round-robin": "penstock.placement.baselines.round_robin:RoundRobin",
        "rsm": "penstock.placement.resource_aware.rsm:Rsm",
        "sam": "penstock.placement.slot_aware.sam:Sam",
        "r-storm": "penstock.placement.resource_aware.r_storm:RStorm",
        "compact": "penstock.placement.compact.placer:Compact",
        "random": "penstock.placement.baselines.random_feasible:RandomFeasible",
        "packing": "penstock.placement.packing.placer:Packing",
        "metis": "penstock.placement.baselines.metis:Metis",
        "eft": "penstock.placement.eft.placer:Eft",
        "balanced-eft": "penstock.placement.eft.balanced:BalancedEft",
        "joint": "penstock.placement.slot_aware.joint:Joint",
        "exact": "penstock.placement.slot_aware.exact:Exact",
        "even-split": "penstock.placement.slot_aware.even_split:EvenSplit",
    },
    needs={"metis": ("pymetis", "metis")},
)

DEFAULT_PLACER = "sam"
DEFAULT_WHOLE_CLUSTER_PLACER = "compact"
