"""The allocators there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.allocation.contract import Allocator

ALLOCATORS: Registry[Allocator] = Registry(
    kind="allocator",
    group="penstock.allocators",
    built_in={
        "lsa": "penstock.allocation.lsa:LinearScaling",
        "mba": "penstock.allocation.mba:ModelBased",
        "profiled": "penstock.allocation.profiled:Profiled",
        "per-node": "penstock.allocation.per_node:PerNode",
        "joint": "penstock.allocation.joint.allocator:JointPacking",
    },
)

DEFAULT_ALLOCATOR = "mba"
