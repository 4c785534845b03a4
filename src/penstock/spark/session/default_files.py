"""On which file system of Hadoop's a path without a scheme lies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.session.hadoop_settings import LOCAL, hadoop_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
_KEYS = ("fs.defaultFS", "fs.default.name")


def is_local_by_default(settings: Mapping[str, str], session: Any = None) -> bool:
    """Whether it lies on this machine's disks: as a session says that is there already; else as one would find it, in
    its own settings or in `core-site.xml` of the folders it looks in."""
    if session is not None:
        return str(session.sparkContext._jsc.hadoopConfiguration().get(_KEYS[0])).startswith(LOCAL)
    named = [settings.get(f"spark.hadoop.{key}") for key in _KEYS]
    for variable in FOLDERS:
        if folder := os.environ.get(variable):
            in_file = hadoop_settings(Path(folder) / "core-site.xml")
            named += [in_file.get(key) for key in _KEYS]
    return next(filter(None, named), LOCAL).startswith(LOCAL)
