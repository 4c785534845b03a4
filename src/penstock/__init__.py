"""Penstock plans, places and runs streaming pipelines on Apache Spark.

    import penstock

    plan = penstock.plan("linear", rate=100)
    plan.document()["slots"]

What is exported here is loaded when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.api import (
        capacity,
        compare,
        compare_shares,
        diff,
        find_pipeline,
        import_models,
        init,
        models,
        place,
        plan,
        share,
    )
    from penstock.cluster.catalogue import Catalogue
    from penstock.cluster.topology import Cluster, Node, Slot
    from penstock.dataflow.builder import pipeline
    from penstock.dataflow.logic import logic
    from penstock.dataflow.pipeline import Grouping, Operator, Pipeline, Stream
    from penstock.errors import BadInputError, PenstockError, Refusal, RefusedError
    from penstock.modelling.library import ModelLibrary
    from penstock.modelling.model import Model, Point
    from penstock.planning.plan import Plan
    from penstock.running import profile, run
    from penstock.sharing.tenants import Tenant, Tenants

__version__ = "0.1.0"

_HOMES = {
    "penstock.api": (
        "capacity",
        "compare",
        "compare_shares",
        "diff",
        "find_pipeline",
        "import_models",
        "init",
        "models",
        "place",
        "plan",
        "share",
    ),
    "penstock.cluster.catalogue": ("Catalogue",),
    "penstock.cluster.topology": ("Cluster", "Node", "Slot"),
    "penstock.dataflow.builder": ("pipeline",),
    "penstock.dataflow.pipeline": ("Grouping", "Operator", "Pipeline", "Stream"),
    "penstock.errors": ("BadInputError", "PenstockError", "Refusal", "RefusedError"),
    "penstock.modelling.library": ("ModelLibrary",),
    "penstock.modelling.model": ("Model", "Point"),
    "penstock.planning.plan": ("Plan",),
    "penstock.dataflow.logic": ("logic",),
    "penstock.running": ("profile", "run"),
    "penstock.sharing.tenants": ("Tenant", "Tenants"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BadInputError",
    "Catalogue",
    "Cluster",
    "Grouping",
    "Model",
    "ModelLibrary",
    "Node",
    "Operator",
    "PenstockError",
    "Pipeline",
    "Plan",
    "Point",
    "Refusal",
    "RefusedError",
    "Slot",
    "Stream",
    "Tenant",
    "Tenants",
    "capacity",
    "compare",
    "compare_shares",
    "diff",
    "find_pipeline",
    "import_models",
    "init",
    "logic",
    "models",
    "pipeline",
    "place",
    "plan",
    "profile",
    "run",
    "share",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'penstock' has no attribute '{name}'")
    return getattr(import_module(_HOME_OF[name]), name)
