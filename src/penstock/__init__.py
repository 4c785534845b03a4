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

import lazy_loader  # noqa: E402

__version__ = "0.1.0"
logging.getLogger(__name__).addHandler(logging.NullHandler())  # whoever uses the package says where its log goes
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
