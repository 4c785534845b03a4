"""A master that takes a connection and says nothing: Spark itself would wait for a minute and more.

While a session starts, its Java process is at work; one that waits for its master's answer is not. So it is looked at
how much CPU it uses, and not only at the clock: on a machine that is busy a start takes long, and is no silence.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

SILENT_SECONDS = 9
"""So long Java may be idle before its session is there; that of a master that answers is for less than a second."""
IDLE_CPU_SECONDS = 0.6
"""What Java may use meanwhile and still counts as idle: its own housekeeping."""


@contextmanager
def expecting_an_answer(master: str) -> Iterator[None]:
    """Inside, a session is started: where its master is silent, Java is ended, and what comes of that is one line."""
    over, was_silent = threading.Event(), threading.Event()
    before = set(psutil.Process().children(recursive=True))
    watch = threading.Thread(target=_watch, args=(before, over, was_silent), daemon=True, name="silent master")
    watch.start()
    try:
        yield
    except Exception as error:
        if not was_silent.is_set():
            raise
        raise BadInputError(
            f"master '{master}': it takes connections, and did not answer within {SILENT_SECONDS} s as a master of "
            "Spark's does"
        ) from error
    finally:
        over.set()
        watch.join()


def _watch(before: set[psutil.Process], over: threading.Event, was_silent: threading.Event) -> None:
    used: deque[float] = deque(maxlen=SILENT_SECONDS + 1)
    while not over.wait(1.0):
        java = [process for process in psutil.Process().children(recursive=True) if process not in before]
        try:
            java = [process for process in java if process.name() == "java"]
            seconds = sum(times.user + times.system for times in (process.cpu_times() for process in java))
        except psutil.NoSuchProcess:
            continue
        # only from when it runs at all
        if java:
            used.append(seconds)
        if len(used) > SILENT_SECONDS and used[-1] - used[0] < IDLE_CPU_SECONDS:
            was_silent.set()
            for process in java:
                process.kill()
            return
