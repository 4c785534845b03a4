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
        rewrite,
        segments,
        share,
    )
    from penstock.cluster.catalogue import Catalogue
    from penstock.cluster.topology import Cluster, Node, Slot
    from penstock.dataflow.builder import pipeline
    from penstock.dataflow.logic import logic
    from penstock.dataflow.pipeline import Grouping, Operator, Pipeline, Stream
    from penstock.errors import BadInputError, ClusterError, PenstockError, Refusal, RefusedError
    from penstock.experimenting import (
        draw_experiment,
        known_experiments,
        results_page,
        run_experiment,
        run_experiments,
    )
    from penstock.measuring import profile
    from penstock.modelling.conversion import model_of, profile_of
    from penstock.modelling.library import ModelLibrary
    from penstock.modelling.model import Model, Point
    from penstock.modelling.task_profile import TaskProfile
    from penstock.placed import drain, resume, run_placed
    from penstock.planning.plan import Plan
    from penstock.running import run
    from penstock.sharing.tenants import Tenant, Tenants
    from penstock.spark.standalone import cluster_down, cluster_status, cluster_up

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
        "rewrite",
        "segments",
        "share",
    ),
    "penstock.cluster.catalogue": ("Catalogue",),
    "penstock.cluster.topology": ("Cluster", "Node", "Slot"),
    "penstock.dataflow.builder": ("pipeline",),
    "penstock.dataflow.pipeline": ("Grouping", "Operator", "Pipeline", "Stream"),
    "penstock.errors": ("BadInputError", "ClusterError", "PenstockError", "Refusal", "RefusedError"),
    "penstock.modelling.conversion": ("model_of", "profile_of"),
    "penstock.modelling.library": ("ModelLibrary",),
    "penstock.modelling.model": ("Model", "Point"),
    "penstock.modelling.task_profile": ("TaskProfile",),
    "penstock.planning.plan": ("Plan",),
    "penstock.dataflow.logic": ("logic",),
    "penstock.experimenting": (
        "draw_experiment",
        "known_experiments",
        "results_page",
        "run_experiment",
        "run_experiments",
    ),
    "penstock.measuring": ("profile",),
    "penstock.placed": ("drain", "resume", "run_placed"),
    "penstock.running": ("run",),
    "penstock.sharing.tenants": ("Tenant", "Tenants"),
    "penstock.spark.standalone": ("cluster_down", "cluster_status", "cluster_up"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BadInputError",
    "Catalogue",
    "Cluster",
    "ClusterError",
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
    "TaskProfile",
    "Tenant",
    "Tenants",
    "capacity",
    "cluster_down",
    "cluster_status",
    "cluster_up",
    "compare",
    "compare_shares",
    "diff",
    "drain",
    "draw_experiment",
    "find_pipeline",
    "import_models",
    "init",
    "known_experiments",
    "logic",
    "model_of",
    "models",
    "pipeline",
    "place",
    "plan",
    "profile",
    "profile_of",
    "results_page",
    "resume",
    "rewrite",
    "run",
    "run_experiment",
    "run_experiments",
    "run_placed",
    "segments",
    "share",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'penstock' has no attribute '{name}'")
    return getattr(import_module(_HOME_OF[name]), name)
