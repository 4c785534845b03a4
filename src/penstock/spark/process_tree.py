"""CPU and memory of a whole process tree: Spark's Java process and the Python workers below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """CPU seconds used so far, and memory held now (MB; pages shared between processes count once where known)."""

    cpu_seconds: float
    memory_mb: float


def java_process(session: SparkSession) -> psutil.Process:
    """The Java process of a session on this machine."""
    gateway: Any = session.sparkContext._gateway
    return psutil.Process(gateway.proc.pid)


def tree_usage(root: psutil.Process) -> TreeUsage:
    """Of a process and all below it; one that ends meanwhile is left out."""
    cpu = memory = 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
            cpu += times.user + times.system
            memory += process.memory_full_info().uss
        except psutil.NoSuchProcess:
            continue
    return TreeUsage(cpu, memory / 2**20)
