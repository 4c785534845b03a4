"""Penstock plans, places and runs streaming pipelines on Apache Spark.

    import penstock

    plan = penstock.plan("linear", rate=100)
    plan.document()["slots"]

What is exported is listed in `__init__.pyi`, and loaded when it is first used: importing the package costs nothing.
"""

import logging
import warnings
from importlib import import_module
from typing import Any

import lazy_loader

__version__ = "0.1.0"
logging.getLogger(__name__).addHandler(logging.NullHandler())  # whoever uses the package says where its log goes
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

FORMER_NAMES = {
    "CasesFailedError": "penstock_lab.sweep:CasesFailedError",
    "Finding": "penstock_lab.sweep:Finding",
    "draw_experiment": "penstock_lab.api:draw_experiment",
    "known_experiments": "penstock_lab.api:known_experiments",
    "results_page": "penstock_lab.api:results_page",
    "run_experiment": "penstock_lab.api:run_experiment",
    "run_experiments": "penstock_lab.api:run_experiments",
    "run_live_experiments": "penstock_lab.api:run_live_experiments",
}
"""Names that version 0.1 exported, and the place of each now: they work and warn."""


def __getattr__(name: str) -> Any:
    if name not in FORMER_NAMES:
        return _load(name)
    module, _, attribute = FORMER_NAMES[name].partition(":")
    warnings.warn(f"penstock.{name} is now {module}.{attribute}", DeprecationWarning, stacklevel=2)
    return getattr(import_module(module), attribute)
