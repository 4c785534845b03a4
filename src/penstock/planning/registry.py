"""All allocators, placers, segmenters and sharing policies by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.registry import Registry

if TYPE_CHECKING:
    from penstock.planning.allocation.contract import Allocator
    from penstock.planning.placement.contract import Placer
    from penstock.planning.segmentation import Segmenter
    from penstock.planning.sharing.contract import Sharer


ALLOCATORS: Registry[Allocator] = Registry(
    kind="allocator",
    group="penstock.allocators",
    built_in={
        "lsa": "penstock.planning.allocation.baselines:LinearScaling",
        "mba": "penstock.planning.allocation.mba:ModelBased",
        "profiled": "penstock.planning.allocation.profiled:Profiled",
        "per-node": "penstock.planning.allocation.baselines:PerNode",
        "joint": "penstock.planning.allocation.joint:JointPacking",
        "e-stream": "penstock.planning.allocation.e_stream:EStream",
    },
)

DEFAULT_ALLOCATOR = "mba"


PLACERS: Registry[Placer] = Registry(
    kind="placer",
    group="penstock.placers",
    built_in={
        "round-robin": "penstock.planning.placement.placers.baselines:RoundRobin",
        "rsm": "penstock.planning.placement.placers.rsm:Rsm",
        "sam": "penstock.planning.placement.placers.sam:Sam",
        "r-storm": "penstock.planning.placement.placers.r_storm:RStorm",
        "compact": "penstock.planning.placement.placers.compact:Compact",
        "random": "penstock.planning.placement.placers.baselines:RandomFeasible",
        "packing": "penstock.planning.placement.placers.packing:Packing",
        "metis": "penstock.planning.placement.placers.metis:Metis",
        "eft": "penstock.planning.placement.placers.eft:Eft",
        "balanced-eft": "penstock.planning.placement.placers.balanced_eft:BalancedEft",
        "joint": "penstock.planning.placement.placers.joint:Joint",
        "exact": "penstock.planning.placement.placers.exact:Exact",
        "even-split": "penstock.planning.placement.placers.even_split:EvenSplit",
    },
    needs={"metis": ("pymetis", "metis")},
)

DEFAULT_PLACER = "sam"
DEFAULT_WHOLE_CLUSTER_PLACER = "compact"


SEGMENTERS: Registry[Segmenter] = Registry(
    kind="segmenter",
    group="penstock.segmenters",
    built_in={
        "whole": "penstock.planning.segmenters:Whole",
        "single": "penstock.planning.segmenters:Single",
        "ends": "penstock.planning.segmenters:EndsApart",
        "ccr": "penstock.planning.segmenters:Ccr",
    },
)

DEFAULT_SEGMENTER = "ccr"
DEFAULT_PLACED_SEGMENTER = "ends"
"""Default for placed runs. It joins a source or a sink with its only neighbour."""


SHARERS: Registry[Sharer] = Registry(
    kind="sharing policy",
    group="penstock.sharers",
    built_in={
        "shared": "penstock.planning.sharing.baselines:Shared",
        "isolation": "penstock.planning.sharing.baselines:Isolation",
        "static-priority": "penstock.planning.sharing.baselines:StaticPriority",
        "dynamic-priority": "penstock.planning.sharing.baselines:DynamicPriority",
        "e-stream": "penstock.planning.sharing.e_stream:EStreamMaxMin",
        "max-min": "penstock.planning.sharing.max_min:MaxMin",
        "fair-priority": "penstock.planning.sharing.fair_priority:FairPriority",
        "fair-max-min": "penstock.planning.sharing.max_min:FairMaxMin",
        "dominant-fair": "penstock.planning.sharing.dominant_fair:DominantFair",
    },
)

DEFAULT_SHARER = "fair-priority"
