"""The allocators there are."""

from __future__ import annotations

from penstock.allocate.contract import Allocator
from penstock.registry import Registry

ALLOCATORS: Registry[Allocator] = Registry(
    kind="allocator",
    group="penstock.allocators",
    built_in={
        "lsa": "penstock.allocate.lsa:LinearScaling",
        "mba": "penstock.allocate.mba:ModelBased",
    },
)

DEFAULT_ALLOCATOR = "mba"
