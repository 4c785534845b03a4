"""The sharing policies there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.sharing.contract import Sharer

SHARERS: Registry[Sharer] = Registry(
    kind="sharing policy",
    group="penstock.sharers",
    built_in={
        "shared": "penstock.sharing.shared:Shared",
        "isolation": "penstock.sharing.isolation:Isolation",
        "static-priority": "penstock.sharing.static_priority:StaticPriority",
        "dynamic-priority": "penstock.sharing.dynamic_priority:DynamicPriority",
        "max-min": "penstock.sharing.max_min:MaxMin",
        "fair-priority": "penstock.sharing.fair_priority:FairPriority",
        "fair-max-min": "penstock.sharing.fair_max_min:FairMaxMin",
        "dominant-fair": "penstock.sharing.dominant_fair:DominantFair",
    },
)

DEFAULT_SHARER = "fair-priority"
