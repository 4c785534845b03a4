"""Where the processes that Spark's Python workers are forked from look for modules."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import PurePath


def leave_out_spark_archives() -> None:
    """Called before pyspark is imported. Spark puts archives of its own in front of Python's path: pyspark as source
    text, which every process would compile anew, and a jar of 15 MB, whose list of contents every worker would read.
    Where pip's pyspark is on the path too, that one is taken."""
    kept = [place for place in sys.path if not _is_sparks(place)]
    if any(PathFinder.find_spec(name, kept) is None for name in ("pyspark", "py4j")):
        return
    for place in set(sys.path) - set(kept):
        sys.path_importer_cache.pop(place, None)
    sys.path[:] = kept


def _is_sparks(place: str) -> bool:
    name = PurePath(place).name
    is_jar = name.startswith("spark-core") and name.endswith(".jar")
    return name == "pyspark.zip" or is_jar or (name.startswith("py4j-") and name.endswith("-src.zip"))
