"""A broker to try with: one Kafka in KRaft mode on this machine's loopback, 256 MB, its data in a folder.

It starts as `cluster up` starts Spark's processes: in a session of its own, known again by number and start time.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import ClusterError
from penstock.base.files import Count, Spec, private_folder, read_value, write_text
from penstock.base.process_identity import ProcessIdentity
from penstock.base.processes import LOOPBACK, end, find, free_port, start, tree
from penstock.base.state_folder import locked, state_folder
from penstock.spark.broker.jars import BROKER, fetch
from penstock.spark.session.java import find_java

STATE, DATA, PROPERTIES, LOG = "broker.json", "data", "server.properties", "broker.log"
HEAP = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=64m")
FORMAT_SECONDS = 60.0
START_SECONDS = 60.0
END_SECONDS = 10.0
"""It may outlive a request to end by some seconds."""


class RunningBroker(Spec):
    folder: Path
    port: Count
    process: ProcessIdentity

    @property
    def servers(self) -> str:
        """What clients are told as bootstrap.servers."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def address(self) -> str:
        return f"kafka:{self.servers}"


def broker_up(folder: str | Path | None = None, port: int | None = None) -> RunningBroker:
    """Start the broker of a folder, with the data it has there; it goes on when this process ends."""
    home = broker_folder(folder)
    with locked(home):
        known = _known(home)
        if known is not None:
            if find(known.process) is not None:
                raise ClusterError(f"a broker runs already at {known.servers}; penstock dev broker down ends it")
            port = port or known.port
        jars = fetch(BROKER)
        chosen = port or free_port(LOOPBACK)
        classpath = os.pathsep.join(map(str, jars))
        java = [find_java(), *HEAP, "-cp", classpath, f"-Djava.io.tmpdir={private_folder(home / 'tmp')}"]
        write_text(home / PROPERTIES, _properties(home, chosen, free_port(LOOPBACK)))
        if not (home / DATA / "meta.properties").exists():
            _format(java, home)
        daemon = start([*java, "kafka.Kafka", str(home / PROPERTIES)], {**os.environ, "LOG_DIR": str(home)}, home / LOG)
        broker = RunningBroker(folder=home, port=chosen, process=daemon)
        write_text(home / STATE, broker.model_dump_json(indent=1))
        _await(broker)
        return broker


def broker_down(folder: str | Path | None = None, *, keep: bool = False) -> bool:
    """End it; its data goes too unless it is to be kept for the next `up`. False: none was running."""
    home = broker_folder(folder)
    with locked(home):
        known = _known(home)
        ran = known is not None and find(known.process) is not None
        if known is not None:
            end(tree(known.process), END_SECONDS)
        if not keep:
            for name in (DATA, "tmp"):
                shutil.rmtree(home / name, ignore_errors=True)
            (home / PROPERTIES).unlink(missing_ok=True)
            (home / STATE).unlink(missing_ok=True)
        return ran


def running_broker(folder: str | Path | None = None) -> RunningBroker | None:
    known = _known(broker_folder(folder))
    return known if known is not None and find(known.process) is not None else None


def broker_folder(folder: str | Path | None) -> Path:
    return private_folder(state_folder(folder) / "broker")


def _known(home: Path) -> RunningBroker | None:
    return read_value(RunningBroker, home / STATE) if (home / STATE).exists() else None


def _properties(home: Path, port: int, controller: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": home / DATA,
        # one broker: there is none to replicate to
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # a slip of a name is an error, not a topic
        "auto.create.topics.enable": "false",
        "log.retention.check.interval.ms": 1000,
        "log.initial.task.delay.ms": 1000,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _format(java: list[str], home: Path) -> None:
    name = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = [*java, "kafka.tools.StorageTool", "format", "-t", name, "-c", str(home / PROPERTIES)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_SECONDS, check=False)  # noqa: S603 - our own command
    except subprocess.TimeoutExpired as error:
        raise ClusterError("the broker's storage was not formatted in time") from error
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise ClusterError(f"the broker's storage cannot be formatted: {lines[-1] if lines else 'it did not say why'}")


def _await(broker: RunningBroker) -> None:
    watch = Stopwatch()
    while watch.seconds() < START_SECONDS:
        if find(broker.process) is None:
            raise ClusterError(f"the broker ended at once; its log is {broker.folder / LOG}")
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex((LOOPBACK, broker.port)) == 0:
                return
        pause(0.1)
    raise ClusterError(f"the broker does not answer after {START_SECONDS:g} s; its log is {broker.folder / LOG}")
