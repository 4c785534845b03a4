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
        "shared": "penstock.sharing.policies.shared:Shared",
        "isolation": "penstock.sharing.policies.isolation:Isolation",
        "static-priority": "penstock.sharing.policies.static_priority:StaticPriority",
        "dynamic-priority": "penstock.sharing.policies.dynamic_priority:DynamicPriority",
        "max-min": "penstock.sharing.policies.max_min:MaxMin",
        "fair-priority": "penstock.sharing.policies.fair_priority:FairPriority",
        "fair-max-min": "penstock.sharing.policies.fair_max_min:FairMaxMin",
        "dominant-fair": "penstock.sharing.policies.dominant_fair:DominantFair",
    },
)

DEFAULT_SHARER = "fair-priority"
