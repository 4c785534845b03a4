"""A Spark session on a cluster: a standalone one, in which every slot of a plan can have an executor of its own, or for
fused runs one that any manager of Spark's has."""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError, ClusterError
from penstock.base.files import temporary_folder
from penstock.spark.internals.class_archive import using
from penstock.spark.session.embedded import ATTEMPTS, SAFE_PATH_VARIABLE, configured_session, end_session, own_archive
from penstock.spark.session.hadoop import resource_managers
from penstock.spark.session.java import find_java
from penstock.spark.session.user_modules import own_archive_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession


# Whether a master is there at all, before a session is started: Spark itself would wait for minutes.
#
# One deadline holds for all addresses it may have. One that takes a connection is asked for something it does not
# have: in Spark's own protocol (a frame: its length, the type of message, a name), elsewhere by HTTP, which a server
# that speaks TLS or Hadoop's protocol answers too, if only with an error. A live one replies that it has none, whether
# or not it wants a secret later; one that speaks another protocol hangs up. Both are answers.


ANSWER_SECONDS = 10.0
"""A master that has much to do answers within one or two."""
LEAST_SECONDS = 0.05
"""Even where looking up names took all the time there was."""
STREAM_REQUEST = 6
NO_FILE = b"/files/is-anybody-there"
HTTP_QUESTION = b"GET /version HTTP/1.0\r\n\r\n"


def spark_question() -> bytes:
    message = struct.pack(">bi", STREAM_REQUEST, len(NO_FILE)) + NO_FILE
    # the length counts itself
    return struct.pack(">q", 8 + len(message)) + message


def answering_host(master: str, places: Sequence[tuple[str, int]], question: bytes) -> str:
    """The first host, of hosts and ports, that answers; raises where none does. Each address, connection and answer
    together, gets an equal part of the time that is left."""
    watch = Stopwatch()
    complaint = "nobody answers there"
    addresses = list(_addresses(places))
    for number, (host, family, address) in enumerate(addresses):
        left = ANSWER_SECONDS - watch.seconds()
        until = watch.seconds() + left / (len(addresses) - number)
        if isinstance(address, OSError):
            complaint = f"nobody answers there: {address.strerror or address}"
            continue
        try:
            with socket.socket(family, socket.SOCK_STREAM) as connection:
                connection.settimeout(max(LEAST_SECONDS, until - watch.seconds()))
                connection.connect(address)
                if has_answered(connection, question, max(LEAST_SECONDS, until - watch.seconds())):
                    return host
                complaint = f"it takes connections, and did not answer within {ANSWER_SECONDS:g} s"
        except OSError as error:
            complaint = f"nobody answers there: {error.strerror or error}"
    raise BadInputError(f"master '{master}': {complaint}")


def _addresses(places: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int, tuple[str, int] | OSError]]:
    """Host, family and address, as often as a host has one; why it has none, where its name is not known."""
    for host, port in places:
        try:
            for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                yield host, family, address  # type: ignore[misc] # of TCP, the first two are these
        except OSError as error:
            yield host, 0, error


def has_answered(connection: socket.socket, question: bytes, seconds: float) -> bool:
    """Whether anything at all comes back."""
    connection.settimeout(seconds)
    try:
        connection.sendall(question)
        connection.recv(1)
    except TimeoutError:
        return False
    except ConnectionError:  # it hung up
        return True
    return True


LOOPBACK = ("127.0.0.1", "localhost")
_PORTS = {"https": 443, "http": 80}
EXPECTED = {"spark": "spark://HOST:PORT", "k8s": "k8s://https://HOST:PORT"}
YARN_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_YARN_SETTINGS = {
    # its own patience is a quarter of an hour
    "spark.hadoop.yarn.resourcemanager.connect.max-wait.ms": "15000",
    "spark.hadoop.yarn.resourcemanager.connect.retry-interval.ms": "1000",
    "spark.hadoop.ipc.client.connect.max.retries": "3",
    # and of an address that is dead, 45 times 20 seconds
    "spark.hadoop.ipc.client.connect.max.retries.on.timeouts": "1",
    "spark.hadoop.ipc.client.connect.timeout": "5000",
}

EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
_LOST_SOON = {
    # The Master reports nothing more of a released executor, and the driver lists it for 5 s after its end in case a
    # reason arrives.
    "spark.standalone.executorRemoveDelayOnDisconnection": "200ms",
}
_SETTINGS = {
    **_LOST_SOON,
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    # These hold for every profile by itself: one executor per slot, when it is first needed, and kept.
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "1",
    "spark.dynamicAllocation.executorIdleTimeout": "30d",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": "1s",
    "spark.locality.wait": "0",
    # A slot's Java process only holds its Python workers: it should start fast and stay small.
    EXECUTOR_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.task.maxFailures": "4",
    # A slot that fails is not shunned: its bundles can run nowhere else.
    "spark.excludeOnFailure.enabled": "false",
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
}


_FUSED_SETTINGS = {
    **_LOST_SOON,
    # An executor is one core: a collector beside its tasks would take it from them, and threads of its own to start.
    EXECUTOR_OPTIONS: "-XX:+UseSerialGC",
    "spark.locality.wait": "0",
    "spark.task.maxFailures": str(ATTEMPTS),
    "spark.excludeOnFailure.enabled": "false",
}


@contextmanager
def cluster_session(
    master: str,
    name: str,
    settings: Mapping[str, str] | None = None,
    *,
    secret: str | None = None,
    log: Path | None = None,
) -> Iterator[SparkSession]:
    """A session on a cluster that ends with the block, and its Java process with it.

    What the Java process writes goes to `log`; without one it goes with the session.
    """
    with temporary_folder("spark") as folder:
        modules = None if urlsplit(master).hostname in LOOPBACK else own_archive_in(folder / "modules")
        session = start_cluster_session(
            master, log or folder / "java.log", name, settings or {}, secret=secret, scratch=folder / "scratch"
        )
        try:
            if modules is not None:
                session.sparkContext.addPyFile(str(modules))
            yield session
        finally:
            end_session(session)


def start_cluster_session(
    master: str,
    log: Path,
    name: str,
    settings: Mapping[str, str],
    *,
    secret: str | None = None,
    scratch: Path | None = None,
) -> SparkSession:
    """For placed runs: every profile has one executor, when it is first needed."""
    if not master.startswith("spark://"):
        raise BadInputError(f"master '{master}': expected spark://HOST:PORT")
    return _started(master, log, name, {**_SETTINGS, **settings}, secret, scratch)


def start_fused_session(
    master: str,
    log: Path,
    name: str,
    settings: Mapping[str, str],
    *,
    secret: str | None = None,
    scratch: Path | None = None,
) -> SparkSession:
    """For fused runs: executors are the slots of one query, on whatever cluster manager `master` names."""
    return _started(master, log, name, {**_FUSED_SETTINGS, **settings}, secret, scratch)


def _started(
    master: str, log: Path, name: str, settings: Mapping[str, str], secret: str | None, scratch: Path | None
) -> SparkSession:
    python = {"PYTHONPATH": os.pathsep.join(sys.path), SAFE_PATH_VARIABLE: "1"}
    chosen = {**{f"spark.executorEnv.{name}": value for name, value in python.items()}, **settings}
    match master.partition(":")[0]:
        case "spark":
            own = own_address(_reached(master, master), urlsplit(master).port or 0)
            # not the name of this machine: other machines may not know it
            chosen = {"spark.driver.bindAddress": own, "spark.driver.host": own, **chosen}
            if own == LOOPBACK[0]:
                # executors are on this machine, and so is the archive
                os.environ.setdefault("JAVA_HOME", str(Path(find_java()).resolve().parent.parent))
                chosen[EXECUTOR_OPTIONS] = f"{chosen.get(EXECUTOR_OPTIONS, '')} {using(own_archive())}".strip()
        case "k8s":
            address = master.removeprefix("k8s://")
            _reached(master, address if "://" in address else f"https://{address}")
        case "yarn":
            folders = [Path(folder) for name in YARN_FOLDERS if (folder := os.environ.get(name))]
            if not folders:
                raise BadInputError(f"master 'yarn': {' or '.join(YARN_FOLDERS)} must name the folder of its settings")
            if places := next(filter(None, map(resource_managers, folders)), None):
                answering_host(master, places, HTTP_QUESTION)
            chosen = {**_YARN_SETTINGS, **chosen}
        case _:
            raise BadInputError(f"master '{master}': expected local[N], spark://HOST:PORT, yarn, k8s://... or cluster")
    try:
        return configured_session(master, log, name, chosen, secret=secret, scratch=scratch)
    except ClusterError as error:
        advice = "does it ask for a secret (--secret-file)?" if secret is None else "is it this cluster's secret?"
        raise ClusterError(f"{error} {advice}") from error


def own_address(host: str, port: int) -> str:
    """The address of this machine by which it reaches another, and that one reaches it."""
    if host in LOOPBACK:
        return LOOPBACK[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        return str(probe.getsockname()[0])


def _reached(master: str, address: str) -> str:
    """The host of a master that answers at `address`; Spark itself would try for a minute and more."""
    parts = urlsplit(address)
    try:
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        port = None
    if not parts.hostname or port is None:
        raise BadInputError(
            f"master '{master}': expected a host and a port, as in {EXPECTED[master.partition(':')[0]]}"
        )
    question = spark_question() if parts.scheme == "spark" else HTTP_QUESTION
    return answering_host(master, [(parts.hostname, port)], question)
