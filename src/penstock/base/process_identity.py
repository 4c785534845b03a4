"""The identity of a process: its number, and the start that the kernel has written down for it.

A number may be given to another process later. The start is counted in clock ticks since boot (field 22 of
/proc/PID/stat) and kept with the id of that boot: neither changes when the machine's clock is set. Systems without
/proc (macOS) have psutil's `create_time` instead, and so have files of Penstock 0.1. The promise is weaker there: if it
follows the clock, a step of more than `SAME_START_SECONDS` makes a process that lives look like another.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock.base.files import Amount, Count, Spec

SAME_START_SECONDS = 2.0
"""Tolerance for start times that are computed from the machine's clock."""

PROC = Path("/proc")
_BOOT = "sys/kernel/random/boot_id"
_START, _FIRST_AFTER_NAME = 22, 3
"""Numbers of fields of /proc/PID/stat, from 1."""


class ProcessIdentity(Spec):
    pid: Count
    started: Amount = 0.0
    """Seconds since the epoch; 0 if the ticks are known."""
    ticks: int | None = None
    """Start of the process in clock ticks since boot."""
    boot: str = ""
    """Id of the boot that the ticks count from."""

    @property
    def is_there(self) -> bool:
        """Whether this process, not another with its number, is there: it runs, or waits to be collected.

        Raises `OSError` if that cannot be found out, as when this process has no file descriptor left.
        """
        if self.ticks is not None:
            return self.boot == boot_id() and _ticks(self.pid) == self.ticks
        return abs(_create_time(self.pid) - self.started) <= SAME_START_SECONDS


def own_identity() -> ProcessIdentity:
    return identity_of(os.getpid())


def identity_of(pid: int) -> ProcessIdentity:
    """Raises `ProcessLookupError` if there is no such process."""
    boot = boot_id()
    if not boot:
        if (started := _create_time(pid)) < 0:
            raise ProcessLookupError(f"no process {pid}")
        return ProcessIdentity(pid=pid, started=started)
    ticks = _ticks(pid)
    if ticks is None:
        raise ProcessLookupError(f"no process {pid}")
    return ProcessIdentity(pid=pid, ticks=ticks, boot=boot)


def boot_id() -> str:
    """Empty on systems without /proc."""
    try:
        return (PROC / _BOOT).read_text("ascii").strip()
    except FileNotFoundError:
        return ""


def _ticks(pid: int) -> int | None:
    """None: there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name of the program stands in parentheses, and may hold blanks and parentheses itself
    return int(text.rpartition(b")")[2].split()[_START - _FIRST_AFTER_NAME])


def _create_time(pid: int) -> float:
    """Seconds since the epoch; -inf: there is no such process."""
    import psutil  # noqa: PLC0415 - belongs to an extra, and Linux does without

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return float("-inf")
