"""CPU and memory of whole process trees: Spark's Java process, the Python workers below it, and what those started."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    yield root
    try:
        yield from root.children(recursive=True)
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
    def now(cls) -> MachineUsage:
        times = psutil.cpu_times()
        # what a guest uses stands in its host's user time as well; waiting for a disk is not using the core
        parts = {name: value for name, value in times._asdict().items() if not name.startswith("guest")}
        idle = parts.get("idle", 0.0) + parts.get("iowait", 0.0)
        return cls(
            sum(parts.values()), sum(parts.values()) - idle, cpu_by_process(psutil.Process()), parts.get("steal", 0.0)
        )


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
