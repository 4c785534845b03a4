"""CPU and memory of whole process trees: Spark's Java process, the Python workers below it, and what those started."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from penstock.spark.internals.java import java_pid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """CPU seconds used so far, and resident memory now (MB; pages that processes share count for each of them)."""

    cpu_seconds: float
    memory_mb: float


def java_process(session: SparkSession) -> psutil.Process | None:
    """The Java process of a session; None: it is not among the processes seen from here, as from another container.
    Java itself says its number: `spark-submit` and the shell start Java before Python, which then started nothing."""
    try:
        process = psutil.Process(java_pid(session))
        return process if "java" in process.name() else None
    except psutil.NoSuchProcess:
        return None


def java_started_here(session: SparkSession) -> psutil.Process:
    """The Java process of a session that this process started."""
    process = java_process(session)
    if process is None:
        raise AssertionError("the Java process of a session that was started here is not on this machine")
    return process


def tree_cpu_seconds(root: psutil.Process | None) -> float | None:
    """CPU seconds so far of a process and all below it; None: of nobody that is seen from here."""
    return None if root is None else tree_usage(root).cpu_seconds


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


def cpu_by_process(root: psutil.Process, without: psutil.Process | None = None) -> dict[int, float]:
    """CPU seconds so far of every process of a tree, by its id; a tree `without` is left out."""
    left_out = {process.pid for process in _tree(without)} if without is not None else set()
    seconds: dict[int, float] = {}
    for process in _tree(root):
        if process.pid not in left_out:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds[process.pid] = times.user + times.system
    return seconds


def cpu_between(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """What the processes that are there now used since. One that ended takes only its own last bit with it: Spark ends
    idle workers at times, and a sum over all would fall by all they ever used."""
    return sum(max(0.0, seconds - before.get(pid, 0.0)) for pid, seconds in after.items())


def _tree(root: psutil.Process) -> Iterator[psutil.Process]:
    """A process and those below it, but not this one, which `spark-submit` starts below Java and is none of Spark's."""
    yield root
    try:
        yield from (process for process in root.children(recursive=True) if process.pid != os.getpid())
    except psutil.NoSuchProcess:
        return


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """Core seconds of the whole machine so far: there were, were used, and were used by this process and each below.
    What the host of a virtual machine took while a core was wanted counts as used."""

    there: float
    used: float
    own: Mapping[int, float]
    taken: float = 0.0
    """By the host."""

    @classmethod
    def now(cls, java: psutil.Process | None = None) -> MachineUsage:
        """`java`: Spark's, which counts as own wherever it is; `spark-submit` starts it above this process."""
        times = psutil.cpu_times()
        # what a guest uses stands in its host's user time as well; waiting for a disk is not using the core
        parts = {name: value for name, value in times._asdict().items() if not name.startswith("guest")}
        idle = parts.get("idle", 0.0) + parts.get("iowait", 0.0)
        own = cpu_by_process(psutil.Process()) | ({} if java is None else cpu_by_process(java))
        return cls(sum(parts.values()), sum(parts.values()) - idle, own, parts.get("steal", 0.0))


def share_of_others(before: MachineUsage, after: MachineUsage) -> float:
    """The part of the machine other processes used: `(used - own) / there`, from one look to the next."""
    there = after.there - before.there
    others = (after.used - before.used) - cpu_between(before.own, after.own)
    return min(1.0, max(0.0, others / there)) if there > 0 else 0.0


def share_given(before: MachineUsage, after: MachineUsage) -> float:
    """The part of the time in which a core was wanted that the host gave one: `1 - taken / used`. No process's CPU
    seconds have in them what the host took."""
    used = after.used - before.used
    return 1 - min(1.0, max(0.0, (after.taken - before.taken) / used)) if used > 0 else 1.0


def engine_cpu(used_before: float | None, used: float | None, own: float, elapsed: float) -> float | None:
    """Cores Spark's processes used beside the slots' own code: `(used - used before - own) / elapsed`; None: they are
    not seen from here."""
    if used_before is None or used is None:
        return None
    return max(0.0, used - used_before - own) / elapsed
