"""CPU and memory of whole process trees: Spark's Java process, the Python workers below it, and what those started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """CPU seconds used so far, and resident memory now (MB; pages that processes share count for each of them)."""

    cpu_seconds: float
    memory_mb: float


def java_process(session: SparkSession) -> psutil.Process:
    """The Java process of a session on this machine."""
    gateway: Any = session.sparkContext._gateway
    return psutil.Process(gateway.proc.pid)


def tree_usage(root: psutil.Process) -> TreeUsage:
    """Of a process and all below it; of those that ended, the CPU their parent was told of when it waited for them."""
    cpu = memory = 0.0
    for process in _tree(root):
        try:
            times = process.cpu_times()
            cpu += times.user + times.system
            cpu += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
            memory += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return TreeUsage(cpu, memory / 2**20)


def _tree(root: psutil.Process) -> Iterator[psutil.Process]:
    yield root
    try:
        yield from root.children(recursive=True)
    except psutil.NoSuchProcess:
        return


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """Core seconds of the whole machine so far: there were, were used, and were used by this process and all below."""

    there: float
    used: float
    own: float

    @classmethod
    def now(cls) -> MachineUsage:
        times = psutil.cpu_times()
        # what a guest uses stands in its host's user time as well; waiting for a disk is not using the core
        parts = {name: value for name, value in times._asdict().items() if not name.startswith("guest")}
        idle = parts.get("idle", 0.0) + parts.get("iowait", 0.0)
        return cls(sum(parts.values()), sum(parts.values()) - idle, tree_usage(psutil.Process()).cpu_seconds)


def share_of_others(before: MachineUsage, after: MachineUsage) -> float:
    """The part of the machine other processes used: `(used - own) / there`, from one look to the next."""
    there = after.there - before.there
    others = (after.used - before.used) - (after.own - before.own)
    return min(1.0, max(0.0, others / there)) if there > 0 else 0.0
