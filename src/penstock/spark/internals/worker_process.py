"""The end of a Python worker of Spark's: resources its code opened are closed before.

A worker does not end as other Python processes do: it leaves by `os._exit` when Java hangs up (the session ends, an
executor goes, it was idle for a minute), or dies of the SIGHUP that its parent sends; either comes first. Before every
task it resets signals, and looks up the function that runs a task, which can be replaced there.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import sys
import threading
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from penstock.spark.internals.declarations import touches

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


REUSE = "SPARK_REUSE_WORKER"
"""Variable in the environment of workers that get more than one task."""
CLOSING_SECONDS = 15.0
"""Max seconds for closing what a worker's code opened; after them it ends without."""
KEPT_BY_DAEMON = "worker_main"
_SIGNALS = (signal.SIGHUP, signal.SIGTERM)

_closers: list[Callable[[], None]] = []


@touches(
    "`pyspark.worker.main`, the name `worker_main` in older daemons, SPARK_REUSE_WORKER",
    "A worker leaves by `os._exit`, and has no hook that is called before.",
)
def close_at_end(close: Callable[[], None]) -> None:
    """Register `close`, from inside a task: the worker's main thread calls it when the worker ends between tasks, or
    after a task that failed."""
    if not _closers:
        _wrap_tasks()
    if close not in _closers:
        _closers.append(close)


def die_of_signals() -> None:
    """Let signals end the worker for the rest of a task: work under way cannot be closed, and is run again
    elsewhere."""
    if _closers and threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)


def _wrap_tasks() -> None:
    import pyspark.worker  # noqa: PLC0415 - a worker has loaded it

    run_task: Callable[[Any, Any], None] = pyspark.worker.main

    def main(infile: Any, outfile: Any) -> None:
        """It waits for a task first."""
        for number in _SIGNALS:
            signal.signal(number, _leave)
        try:
            run_task(infile, outfile)
        except BaseException:  # Java has hung up, or the task has failed: there will be no other
            _close_all()
            raise

    pyspark.worker.main = main
    # older daemons looked it up once, and keep it among their own names
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if KEPT_BY_DAEMON in frame.f_globals:
            frame.f_globals[KEPT_BY_DAEMON] = main
        frame = frame.f_back


def _leave(_number: int, _frame: Any) -> None:
    _close_all()
    os._exit(0)


def _close_all() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    limit = threading.Timer(CLOSING_SECONDS, os._exit, (1,))
    limit.daemon = True
    limit.start()
    while _closers:
        with suppress(Exception):
            _closers.pop()()
    limit.cancel()


# Module search path of the process that Spark's Python workers are forked from.


@touches("`pyspark.daemon`, run as a program", "Spark has no hook in the process that its workers are forked from.")
def become_daemon() -> None:
    """Run Spark's daemon in this process, with everything that is loaded by now; it does not return."""
    # Loaded objects stay: Spark's workers collect garbage after every task, and to look at all this takes 30 to 50 ms
    # of CPU each time, as much as a whole batch of few tuples.
    gc.freeze()
    runpy.run_module("pyspark.daemon", run_name="__main__")


@touches("`pyspark.cloudpickle`", "The module is not documented; functions must be pickled as Spark pickles them.")
def pickled(value: Any) -> bytes:
    from pyspark import cloudpickle  # noqa: PLC0415 - Spark loads only when it is used

    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call] # ships no types
    return data


@touches("`pyspark.cloudpickle`", "The module is not documented; functions must be pickled as Spark pickles them.")
def unpickled(data: bytes) -> Any:
    from pyspark import cloudpickle  # noqa: PLC0415 - Spark loads only when it is used

    return cloudpickle.loads(data)


@touches(
    "names on a worker's `sys.path`: pyspark.zip, spark-core*.jar, py4j-*-src.zip",
    "Spark puts them in front of what pip installed, and there is no setting.",
)
def leave_out_spark_archives() -> None:
    """Called before pyspark is imported. Spark puts archives of its own in front of Python's path: pyspark as source
    text, which every process would compile anew, and a jar of 15 MB, whose list of contents every worker would read.
    Where pip's pyspark is on the path too, that one is taken."""
    kept = [place for place in sys.path if not _is_sparks(place)]
    if any(PathFinder.find_spec(name, kept) is None for name in ("pyspark", "py4j")):
        return
    for place in set(sys.path) - set(kept):
        sys.path_importer_cache.pop(place, None)
    sys.path[:] = kept


def _is_sparks(place: str) -> bool:
    name = PurePath(place).name
    is_jar = name.startswith("spark-core") and name.endswith(".jar")
    return name == "pyspark.zip" or is_jar or (name.startswith("py4j-") and name.endswith("-src.zip"))
