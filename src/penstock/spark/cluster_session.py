"""A Spark session on a standalone cluster, in which every slot of a plan can have an executor of its own."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.errors import BadInputError
from penstock.spark.session import configured_session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

LOOPBACK = ("127.0.0.1", "localhost")

_SETTINGS = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    # These hold for every profile by itself: one executor per slot, when it is first needed, and kept.
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "1",
    "spark.dynamicAllocation.executorIdleTimeout": "30d",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": "1s",
    "spark.locality.wait": "0",
    # A slot's Java process only hands tickets on: it should start fast and stay small.
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.task.maxFailures": "4",
    # A slot that fails is not shunned: its bundles can run nowhere else.
    "spark.excludeOnFailure.enabled": "false",
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
}


def start_cluster_session(master: str, log: Path, name: str, settings: Mapping[str, str]) -> SparkSession:
    parts = urlsplit(master)
    if parts.scheme != "spark" or parts.hostname is None or parts.port is None:
        raise BadInputError(f"master '{master}': expected spark://HOST:PORT")
    chosen = {**_SETTINGS, "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path), **settings}
    if parts.hostname in LOOPBACK:
        chosen |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return configured_session(master, log, name, chosen)
