"""The cores this process has: fewer than its machine where it is bound to some of them, or a container limits it."""

from __future__ import annotations

import math
import os
from pathlib import Path, PurePosixPath

from penstock.base.text import is_whole

GROUPS = Path("/sys/fs/cgroup")
GROUPS_OF_THIS_PROCESS = Path("/proc/self/cgroup")


def cores_here() -> int:
    """Those it is bound to, or what its control groups let it use, whichever is less. A part of a core counts as one,
    as it does for Java."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = cpu_limit(_read(GROUPS_OF_THIS_PROCESS) or "", GROUPS)
    return bound if limit is None else max(1, min(bound, math.ceil(limit)))


def cpu_limit(groups: str, mounted: Path) -> float | None:
    """Cores that the control groups of a process allow: `quota / period`, the least of its groups and of those above.

    `groups` is what /proc/self/cgroup says, `NUMBER:CONTROLLERS:PATH` in every line; those of the second version have
    no controllers. In a container the path may be that outside of it: then what is mounted is its own group. None:
    there is no limit.
    """
    limits = []
    for line in groups.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        within = PurePosixPath(path.lstrip("/"))
        for group in (within, *within.parents):
            if not controllers:
                quota = _read(mounted / group / "cpu.max")
            elif "cpu" in controllers.split(","):
                folder = mounted / "cpu" / group
                quota = f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}"
            else:
                break
            limit = _quotient(quota)
            if limit is not None:
                limits.append(limit)
    return min(limits, default=None)


def _quotient(quota: str | None) -> float | None:
    """Of a quota and its period; `max`, and -1, are none."""
    match (quota or "").split():
        case [allowed, period] if is_whole(allowed) and is_whole(period) and int(period):
            return int(allowed) / int(period)
    return None


def _read(file: Path) -> str | None:
    try:
        return file.read_text("utf-8", errors="replace").strip()
    except OSError:
        return None
