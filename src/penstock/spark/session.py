"""The Spark session a run uses."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from penstock.errors import BadInputError
from penstock.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

ATTEMPTS = 4
"""How often a task is tried: a worker that dies must not end the run."""

END_SECONDS = 20.0
"""How long Java may take to end."""

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # Checkpoints on a local disk: a rename is enough, and several times faster than the default.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.metricsEnabled": "false",
    # Stopping a query inside foreachBatch can unwind a deep stack. What Java does here is short and little: its second
    # compiler and a parallel collector would only take cores from the operators in the first minute.
    "spark.driver.extraJavaOptions": "-Xss8m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.python.daemon.module": "penstock.spark.daemon",
}


@contextmanager
def embedded_session(slots: int, *, warm: bool = True) -> Iterator[SparkSession]:
    """A session of its own that ends with the block, and its Java process with it."""
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as folder:
        session = start_session(slots, Path(folder) / "java.log", warm=warm)
        try:
            yield session
        finally:
            end_session(session)


def start_session(slots: int, log: Path, name: str = "penstock", *, warm: bool = True) -> SparkSession:
    """A session of its own on this machine, with one task slot for every slot of the plan.

    What the Java process writes to standard error goes to `log`. Without `warm` the first job pays for starting its
    workers.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return configured_session(
        f"local[{slots},{ATTEMPTS}]",
        log,
        name,
        {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"},
        warm_slots=slots if warm else 0,
    )


def configured_session(
    master: str, log: Path, name: str, settings: Mapping[str, str], warm_slots: int = 0
) -> SparkSession:
    """A session with the settings all of ours share, and these; `warm_slots` of its workers are started already."""
    os.environ.setdefault("JAVA_HOME", str(Path(find_java()).resolve().parent.parent))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # What this process can import, its workers can import too: the user's own modules above all.
    os.environ["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - Spark loads only when it is used
    except ImportError as error:
        raise BadInputError("running needs pyspark; install it with: pip install 'penstock[spark]'") from error
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**_SETTINGS, **settings}.items():
        builder = builder.config(key, value)
    with _nothing_left_behind():
        with _jvm_messages_in(log), _own_interrupts():
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        if warm_slots:
            _warm_up(session, warm_slots)
    return session


def end_session(session: SparkSession) -> None:
    """Stops a session and its Java process, so that nothing is left and another session can start in this process."""
    from pyspark import SparkContext  # noqa: PLC0415 - Spark loads only when it is used

    gateway: Any = session.sparkContext._gateway
    with _interrupts_later():
        try:
            session.stop()
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()
            try:
                gateway.proc.wait(timeout=END_SECONDS)
            except subprocess.TimeoutExpired:
                gateway.proc.kill()
                gateway.proc.wait()
            SparkContext._gateway = None
            SparkContext._jvm = None


@contextmanager
def _nothing_left_behind() -> Iterator[None]:
    """A start that fails, or that Ctrl-C interrupts, ends the Java process it has started already."""
    before = set(psutil.Process().children(recursive=True))
    try:
        yield
    except BaseException:
        from pyspark import SparkContext  # noqa: PLC0415 - Spark loads only when it is used

        with _interrupts_later():
            for process in set(psutil.Process().children(recursive=True)) - before:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            SparkContext._gateway = None
            SparkContext._jvm = None
            SparkContext._active_spark_context = None
        raise


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Spark's context takes Ctrl-C for itself (it asks Java to cancel jobs first, which may hang): take it back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    own = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, own)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """A second Ctrl-C while everything is being stopped already must not leave half of it behind."""
    with _own_interrupts():
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        yield


@contextmanager
def _jvm_messages_in(log: Path) -> Iterator[None]:
    """The Java process inherits standard error when it starts: lend it a file meanwhile."""
    sys.stderr.flush()
    own = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(own, 2)
            os.close(own)


def _warm_up(session: SparkSession, slots: int) -> None:
    """One small job through Python, so that the first batch of a run finds workers and compiled code."""
    session.range(0, slots, 1, slots).mapInArrow(lambda batches: batches, "id bigint").toArrow()
