"""The Spark session a run uses."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

ATTEMPTS = 4
"""How often a task is tried: a worker that dies must not end the run."""

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # Checkpoints on a local disk: a rename is enough, and several times faster than the default.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.metricsEnabled": "false",
    # Stopping a query inside foreachBatch can unwind a deep stack.
    "spark.driver.extraJavaOptions": "-Xss8m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
}


def start_session(slots: int, log: Path, name: str = "penstock") -> SparkSession:
    """A session of its own on this machine, with one task slot for every slot of the plan.

    What the Java process writes to standard error goes to `log`.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = configured_session(
        f"local[{slots},{ATTEMPTS}]",
        log,
        name,
        {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"},
    )
    _warm_up(session, slots)
    return session


def configured_session(master: str, log: Path, name: str, settings: Mapping[str, str]) -> SparkSession:
    """A session with the settings all of ours share, and these."""
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
    with _jvm_messages_in(log):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


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
