"""Penstock plans, places and runs streaming pipelines on Apache Spark.

    import penstock

    plan = penstock.plan("linear", rate=100)
    plan.document()["slots"]

What is exported is listed in `__init__.pyi`, and loaded when it is first used: importing the package costs nothing.
"""

import sys

_IS_STARTED = sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].split(".")[0] in ("penstock", "-mpenstock")
if _IS_STARTED and not sys.flags.safe_path:
    # `python -m penstock`: files in the current folder must not stand in for modules of the same name
    del sys.path[0]

import logging  # noqa: E402 - after the folder is left out
import warnings  # noqa: E402
from importlib import import_module  # noqa: E402
from typing import Any  # noqa: E402

import lazy_loader  # noqa: E402

__version__ = "0.1.0"
logging.getLogger(__name__).addHandler(logging.NullHandler())  # whoever uses the package says where its log goes
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

FORMER_NAMES = {
    "CasesFailedError": "penstock_lab.sweep:CasesFailedError",
    "PlacedHandle": "penstock.runs.run:Run",
    "RunHandle": "penstock.runs.run:Run",
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
