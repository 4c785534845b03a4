"""The Spark session a run uses."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from penstock.base.errors import BadInputError, ClusterError
from penstock.base.extras import missing_package
from penstock.base.files import temporary_folder
from penstock.spark.internals.class_archive import MAKING_SECONDS, archive_file, keep, making, using
from penstock.spark.internals.error_messages import spark_errors
from penstock.spark.internals.java import end_java, forget_java, has_context
from penstock.spark.internals.settings import (
    FIRST_WITH_PACKAGES,
    PARTITIONS,
    checkpoint_settings,
    daemon_settings,
    release_of,
    socket_settings,
)
from penstock.spark.session.java import find_java
from penstock.spark.session.secret import secret_settings, settings_from_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession


# Shuffle partitions: into how many tasks Spark divides its own operators, whatever slots there are.


FEWEST = 2


def partitions_for(slots: int, *, can_grow: bool = False) -> int:
    """Of a run that begins on `slots`. The first batch with state decides for good: the checkpoint keeps the number.

    A partition for every slot; where slots can be added two, so that twice as many still share the work evenly. More
    would be more tasks and files of state in every batch, for slots that may never come.
    """
    return max(FEWEST, 2 * slots if can_grow else slots)


ATTEMPTS = 8
"""How often a task is tried: a worker that dies must not end the run, and a tuple that kills its worker is found by
trying again."""

END_SECONDS = 20.0
"""How long Java may take to end."""

HERE = "127.0.0.1"
DRIVER_HOST = "spark.driver.host"
PYTHON_SETTING = "spark.pyspark.python"
PYTHON_VARIABLE = "PYSPARK_PYTHON"
SAFE_PATH_VARIABLE = "PYTHONSAFEPATH"
"""If it is set, Python imports nothing from the current folder of a process."""
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_SETTINGS = {
    "spark.ui.enabled": "false",
    # executors too: each would write some ten lines for every task to a file without a size limit
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
    PARTITIONS: str(FEWEST),
    "spark.sql.streaming.metricsEnabled": "false",
    # report soon that no data arrives
    "spark.sql.streaming.noDataProgressEventInterval": "1000",
    # Stopping a query inside foreachBatch can unwind a deep stack. A parallel collector would take cores from the
    # operators; Java's second compiler does so too, in the first minute, but rows pass twice as fast behind it.
    DRIVER_OPTIONS: "-Xss8m -XX:+UseSerialGC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    # on a machine that is busy a worker takes longer than 15 s to start, and that is no reason to give up a run
    "spark.python.authenticate.socketTimeout": "90s",
    **daemon_settings("penstock.spark.internals.worker_daemon"),
}

_LOG = logging.getLogger(__name__)


@contextmanager
def embedded_session(
    slots: int, *, warm: bool = True, log: Path | None = None, makes_archive: bool = False
) -> Iterator[SparkSession]:
    """A session of its own that ends with the block, and its Java process with it.

    What the Java process writes goes to `log`; without one it goes with the session.
    """
    with temporary_folder("spark") as folder:
        session = start_session(
            slots, log or folder / "java.log", warm=warm, scratch=folder / "scratch", makes_archive=makes_archive
        )
        try:
            yield session
        finally:
            end_session(session)


@contextmanager
def one_slot(session: SparkSession) -> Iterator[None]:
    """Queries that begin inside have one task at a time, whatever slots there are, and read all rows of their files: an
    operator that leaves rows out is measured with rows, as it gets them behind other operators."""
    with with_settings(session, _ONE_SLOT):
        yield


@contextmanager
def divided_for(session: SparkSession, slots: int) -> Iterator[None]:
    """Queries that begin inside are divided as a run on so many slots would be, whatever slots there are."""
    with with_settings(session, {PARTITIONS: str(partitions_for(slots))}):
        yield


@contextmanager
def with_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Queries that begin inside have them; the session is left as it was."""
    before = {key: session.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, was in before.items():
            if was is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, was)


_ONE_SLOT = {
    PARTITIONS: "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.parquet.filterPushdown": "false",
}


def start_session(
    slots: int,
    log: Path,
    name: str = "penstock",
    *,
    warm: bool = True,
    scratch: Path | None = None,
    settings: Mapping[str, str] | None = None,
    makes_archive: bool = False,
) -> SparkSession:
    """A session of its own on this machine, with one task slot for every slot of the plan.

    What the Java process writes to standard error goes to `log`, what it spills to `scratch`. Without `warm` the first
    job pays for starting its workers.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", HERE)
    return configured_session(
        f"local[{slots},{ATTEMPTS}]",
        log,
        name,
        {
            "spark.driver.bindAddress": HERE,
            DRIVER_HOST: HERE,
            # Java listens for executors here too: a secret that never leaves it keeps all others out.
            "spark.authenticate": "true",
            PARTITIONS: str(partitions_for(slots)),
            **(settings or {}),
        },
        warm_slots=slots if warm else 0,
        scratch=scratch,
        makes_archive=makes_archive,
    )


def configured_session(
    master: str,
    log: Path,
    name: str,
    settings: Mapping[str, str],
    warm_slots: int = 0,
    secret: str | None = None,
    scratch: Path | None = None,
    *,
    makes_archive: bool = False,
) -> SparkSession:
    """A session with the settings all of ours share, and these; `warm_slots` of its workers are started already.

    `settings` stand on Java's command line; the `secret` of the cluster does not. `makes_archive`: where there is none
    of Spark's classes, Java writes one as the session ends, which takes half a minute in all.
    """
    os.environ.setdefault("JAVA_HOME", str(Path(find_java()).resolve().parent.parent))
    # Workers can import all that this process can: the user's own modules above all.
    os.environ["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    try:
        import pyspark  # noqa: PLC0415 - Spark loads only when it is used
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ImportError as error:
        raise missing_package("pyspark", "running needs") from error
    _refuse_to_adopt()
    # their messages are raised as well
    for logger in ("py4j", "DataFrameQueryContextLogger"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    builder = SparkSession.builder.master(master).appName(name)
    spilled = {} if scratch is None else {"spark.local.dir": str(scratch)}
    archive = own_archive()
    options, made = making(archive) if makes_archive else ("", None)
    started = {DRIVER_OPTIONS: f"{_SETTINGS[DRIVER_OPTIONS]} {options or using(archive)}".strip()}
    sockets = socket_settings(scratch if master.startswith("local") else None)
    shared = {
        **_SETTINGS,
        **started,
        **(sockets if release_of(pyspark.__version__) >= FIRST_WITH_PACKAGES else {}),
        **checkpoint_settings(pyspark.__version__),
        **spilled,
    }
    for key, value in {**shared, **settings}.items():
        builder = builder.config(key, value)
    _LOG.info("starting Spark on %s as '%s'; Java writes to %s", master, name, log)
    with _nothing_left_behind():
        with ExitStack() as meanwhile:
            if secret is not None:
                conf = meanwhile.enter_context(temporary_folder("conf"))
                meanwhile.enter_context(settings_from_file(secret_settings(secret), conf / "spark"))
            python = python_of_workers(master, settings, os.environ.get(PYTHON_VARIABLE))
            meanwhile.enter_context(_workers_run(python))
            meanwhile.enter_context(_jvm_messages_in(log))
            meanwhile.enter_context(_own_interrupts())
            try:
                session = builder.getOrCreate()
            except spark_errors() as error:
                raise ClusterError(f"Spark on {master} did not start: {_why(log, error)}") from error
        session.sparkContext.setLogLevel("OFF")
        if warm_slots:
            _warm_up(session, warm_slots)
    if made is not None:
        _archives[session.sparkContext.applicationId] = (made, archive)
    return session


def python_of_workers(master: str, settings: Mapping[str, str], named: str | None) -> str:
    """Where only this machine reaches the driver workers are here, and run this Python. Elsewhere it may lie in another
    place: the setting decides, else what the environment names, else the same path as here."""
    if master.startswith("local") or settings.get(DRIVER_HOST) == HERE:
        return sys.executable
    return settings.get(PYTHON_SETTING) or named or sys.executable


@contextmanager
def _workers_run(python: str) -> Iterator[None]:
    """A context that begins inside has it for good; the variables stay the user's, for sessions elsewhere."""
    wanted = {PYTHON_VARIABLE: python, SAFE_PATH_VARIABLE: "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                del os.environ[name]
            else:
                os.environ[name] = was


_archives: dict[str, tuple[Path, Path]] = {}
"""By application: the archive of classes its Java process writes as it ends, and what it is to be called then."""


def own_archive() -> Path:
    """Of the Java and the Spark that sessions of this process have."""
    import pyspark  # noqa: PLC0415 - Spark loads only when it is used

    return archive_file(Path(os.environ["JAVA_HOME"]), Path(pyspark.__path__[0]), pyspark.__version__)


def _why(log: Path, error: Exception) -> str:
    """The last error Java wrote, in one line; it says more than what arrives here, which is about the consequences."""
    sys.stderr.flush()
    written = log.read_text("utf-8", errors="replace").splitlines() if log.exists() else []
    errors = [line.partition(" ERROR ")[2] for line in written if " ERROR " in line]
    return errors[-1] if errors else str(error).partition("\n")[0]


def _refuse_to_adopt() -> None:
    """Spark would hand us the session this process has already; we would change it, and stop it when we are done."""
    if has_context():
        raise BadInputError(
            "this process has a Spark session already, which is left alone: stop it first, or use another process"
        )


def end_session(session: SparkSession) -> None:
    """Stops a session and its Java process, so that nothing is left and another session can start in this process. A
    Java process that `spark-submit` or the shell started is left: this process lives below it, and it serves the next
    session too."""
    _LOG.info("ending Spark on %s", session.sparkContext.master)
    made, archive = _archives.pop(session.sparkContext.applicationId, (None, None))

    def keep_archive() -> None:
        if made is not None and archive is not None:
            keep(made, archive)

    with _interrupts_later():
        end_java(session, session.stop, END_SECONDS if made is None else MAKING_SECONDS, keep_archive)


@contextmanager
def _nothing_left_behind() -> Iterator[None]:
    """A start that fails, or that Ctrl-C interrupts, ends the Java process it has started already."""
    before = set(psutil.Process().children(recursive=True))
    try:
        yield
    except BaseException:
        with _interrupts_later():
            for process in set(psutil.Process().children(recursive=True)) - before:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            forget_java()
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
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(file)


def _warm_up(session: SparkSession, slots: int) -> None:
    """One small job through Python, so that the first batch of a run finds workers and compiled code."""
    session.range(0, slots, 1, slots).mapInArrow(lambda batches: batches, "id bigint").toArrow()
