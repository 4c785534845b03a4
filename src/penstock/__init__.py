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
from importlib import import_module  # noqa: E402
from typing import Any  # noqa: E402

import lazy_loader  # noqa: E402

__version__ = "0.1.0"
logging.getLogger(__name__).addHandler(logging.NullHandler())  # applications configure the log output
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_TYPES = (
    "Acquisition Advice Attachment Audit BatchObservation BundlePlace Capacity Client ClusterLike ClusterPlacement "
    "ClusterStatus Compared DeployRound Deployment Figures HandOver Limit LoadLike Logic Manager Measured MeasuredOn "
    "Mode ModelsLike Moves OnError OutputMode Per PipelineLike PipelineResult PlacedResult PlanDiff "
    "PlanLike Point Prediction Produced ProducerSpec Progress QueryAdvice Resumed RewrittenPipeline Routing "
    "RunResult RunnableLike RunningBroker RunningCluster SavedPlan Segmentation SharedMemory Sharing Shortage "
    "SimulatedResult TriedRate UpController WholeCluster WhyNot"
)
FORMER_NAMES = {
    **dict.fromkeys(("PlacedHandle", "RunHandle"), "penstock.runs.run:Run"),
    **{name: f"penstock.types:{name}" for name in _TYPES.split()},
    **{name: f"penstock.testing:{name}" for name in ("broker_down", "broker_up", "running_broker")},
    **{name: f"penstock_lab.sweep:{name}" for name in ("CasesFailedError", "Finding")},
    **{name: f"penstock_lab.api:{name}" for name in ("draw_experiment", "known_experiments", "results_page")},
    **{name: f"penstock_lab.api:{name}" for name in ("run_experiment", "run_experiments", "run_live_experiments")},
}
"""Names that version 0.1 exported, and the place of each now: they work, and warn once."""


def __getattr__(name: str) -> Any:
    if name == "runs":  # a package, and in version 0.1 a function
        return import_module("penstock.runs")
    if name not in FORMER_NAMES:
        return _load(name)
    from penstock.base.former_names import report_former_name  # noqa: PLC0415 - importing the package costs nothing

    module, _, attribute = FORMER_NAMES[name].partition(":")
    report_former_name(f"penstock.{name}", f"{module}.{attribute}")
    return getattr(import_module(module), attribute)
