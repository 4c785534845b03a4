"""Processes of this machine: start them in sessions of their own, find them again, end them; and its free ports."""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import ClusterError
from penstock.base.extras import missing_package
from penstock.base.process_identity import identity_of

try:
    import psutil
except ImportError as error:
    raise missing_package("psutil") from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.base.process_identity import ProcessIdentity

MARK = "PENSTOCK_CLUSTER_ID"
"""Environment variable that every process of a cluster inherits: executors and Python workers carry it too."""

LOOPBACK = "127.0.0.1"

PATIENCE_SECONDS = 5.0
"""Seconds a process may take to end when asked, before it is killed."""

KILL_ROUNDS = 5

ProcessError = psutil.Error
"""A process may not be looked at or ended."""


def machine_memory_mb() -> float:
    return float(psutil.virtual_memory().total) / 2**20


def free_port(host: str = LOOPBACK) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def start(command: Sequence[str], environment: Mapping[str, str], log: Path | None) -> ProcessIdentity:
    """Start a process in a session of its own, so that Ctrl-C in a terminal does not reach it.

    It writes to `log`; without one, to the output of this process.
    """
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    ]
    if log is not None:
        actions += [
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
    pid = os.posix_spawn(
        command[0],
        list(command),
        dict(environment),
        file_actions=actions,
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGINT],
    )
    try:
        return identity_of(pid)
    except OSError:  # no file descriptor is left: an unidentified process must not run
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def find(identity: ProcessIdentity) -> psutil.Process | None:
    """The process itself if it still runs, never another one that was given its number.

    Raises `OSError` if that cannot be found out.
    """
    try:
        process = psutil.Process(identity.pid)
    except psutil.NoSuchProcess:
        return None
    return process if identity.is_there and _runs(process) else None


def _runs(process: psutil.Process) -> bool:
    """Return whether it has not ended. A child of this process that has ended is collected.

    A Java process looks ended while the last of its threads still are: it counts until they are gone.
    """
    try:
        if process.status() != psutil.STATUS_ZOMBIE:
            return bool(process.is_running())
        try:
            process.wait(timeout=0)
        except psutil.TimeoutExpired:
            return bool(process.ppid() == os.getpid() or process.num_threads() > 1)
    except psutil.NoSuchProcess:
        return False
    return False


def tree(identity: ProcessIdentity) -> list[psutil.Process]:
    """A process and all below it; nothing if it has ended."""
    root = find(identity)
    if root is None:
        return []
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def marked(mark: str) -> list[psutil.Process]:
    """Every process that inherited `mark`: those whose parent is gone too."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.pid != os.getpid():
                processes.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue  # ended meanwhile, or another user's
    return processes


def end(processes: Iterable[psutil.Process], patience: float = PATIENCE_SECONDS) -> None:
    """Ask all to end, make those that do not, and wait for them.

    psutil checks the start time before it sends a signal, so a number that was given away is never hit.
    """
    asked = list(dict.fromkeys(processes))
    _send(asked, signal.SIGTERM)
    kill(_left_after(asked, patience))


def kill(processes: Iterable[psutil.Process]) -> None:
    """End all at once, in the order given, without asking."""
    hit = list(processes)
    _send(hit, signal.SIGKILL)
    _left_after(hit, PATIENCE_SECONDS)


def kill_marked(mark: str) -> None:
    """Kill all marked processes, until none is left: one may have been starting another meanwhile."""
    for _ in range(KILL_ROUNDS):
        left = marked(mark)
        if not left:
            return
        kill(left)
    raise ClusterError(f"processes that do not end: {', '.join(str(process.pid) for process in left)}")


def _send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def _left_after(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that still run when the time is over, or none as soon as all have ended."""
    watch = Stopwatch()
    left = [process for process in processes if _runs(process)]
    while left and watch.seconds() < seconds:
        pause(0.02)
        left = [process for process in left if _runs(process)]
    return left
