"""Penstock plans, places and runs streaming pipelines on Apache Spark.

    import penstock

    plan = penstock.plan("linear", rate=100)
    plan.document()["slots"]

What is exported is listed in `__init__.pyi`, and loaded when it is first used: importing the package costs nothing.
"""

import logging

import lazy_loader

__version__ = "0.1.0"
logging.getLogger(__name__).addHandler(logging.NullHandler())  # whoever uses the package says where its log goes
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
