"""Spark's own Master and Worker as command lines, settings and environments."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.files import write_text
from penstock.spark.java import find_java
from penstock.spark.processes import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK = "127.0.0.1"

DEFAULT_EXECUTOR_MB = 1024
"""Spark's default executor, which empty batches use, fits beside all slots of a node."""

LOWEST_SLOT_MB = 512
"""An executor refuses to start with less heap than 450 MB."""

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"

_SECRET_VARIABLE = "_SPARK_AUTH_SECRET"  # noqa: S105 - the name of Spark's variable, not a secret


@dataclass(frozen=True, slots=True)
class Settled:
    """What all processes of one cluster on one machine share."""

    mark: str
    folder: Path
    host: str = LOOPBACK
    secret: str | None = None


def resource_name(node: str) -> str:
    """The name of the custom resource of a node: what its Worker offers and its executors ask for.

    `node-` and the node's name; every character but ASCII letters, digits and `-` becomes `_` and two hex digits per
    byte of UTF-8. Spark takes the name up to the first dot of a setting's key, and `cores`, `memory` and others are
    its own: so no dots, and a prefix. Different nodes get different names.
    """
    return "node-" + "".join(
        letter if re.fullmatch("[A-Za-z0-9-]", letter) else "".join(f"_{byte:02x}" for byte in letter.encode())
        for letter in node
    )


def worker_cores(slots: int) -> int:
    """Cores a Worker claims: more than its executors ever ask for, because slots limit, not cores."""
    return max(64, 16 * slots)


def worker_memory_mb(slots: int, slot_memory_mb: float) -> int:
    """`slots * slot_memory_mb` rounded up, and room for the default executor."""
    return -int(-slots * slot_memory_mb // 1) + DEFAULT_EXECUTOR_MB


def properties_text(settings: Mapping[str, str]) -> str:
    """A Java properties file; backslashes would escape, so they are doubled."""
    return "".join(f"{key}={value}\n" for key, value in settings.items()).replace("\\", "\\\\")


def offered_resources(node: str, slots: int) -> list[dict[str, object]]:
    """What a Worker offers, in the shape Spark reads: one address for every slot, its number."""
    identity = {"componentName": "spark.worker", "resourceName": resource_name(node)}
    return [{"id": identity, "addresses": [str(number) for number in range(slots)]}]


def spark_home() -> Path:
    """The folder of pip's pyspark, which holds all of Spark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise BadInputError("this needs pyspark; install it with: pip install 'penstock[spark]'")
    return Path(found.submodule_search_locations[0])


def free_port(host: str) -> int:
    with socket.socket() as one:
        one.bind((host, 0))
        return int(one.getsockname()[1])


def environment(settled: Settled, given: Mapping[str, str]) -> dict[str, str]:
    """That of this process without what it says about other Sparks; only where to spill is left to the user."""
    kept = {key: value for key, value in given.items() if not key.startswith(("SPARK_", "_SPARK_"))}
    made = {
        **kept,
        "JAVA_HOME": str(Path(find_java()).resolve().parent.parent),
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(settled.folder / "conf"),
        "SPARK_LOCAL_DIRS": given.get("SPARK_LOCAL_DIRS", str(settled.folder / "scratch")),
        "SPARK_LOCAL_IP": settled.host,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        MARK: settled.mark,
    }
    return made if settled.secret is None else {**made, _SECRET_VARIABLE: settled.secret}


def session_settings(secret: str | None) -> dict[str, str]:
    """What a session needs to be let in."""
    if secret is None:
        return {}
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
    }


def _common(settled: Settled) -> dict[str, str]:
    settings = {"spark.ui.killEnabled": "false"}
    if settled.secret is not None:
        settings |= {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    return settings


def master_command(settled: Settled, port: int, web_port: int) -> list[str]:
    """The Master; its submission server, which would run anybody's program, stays off."""
    settings = _common(settled) | {"spark.master.rest.enabled": "false", "spark.port.maxRetries": "0"}
    file = settled.folder / "conf" / "master.properties"
    _prepare(settled)
    write_text(file, properties_text(settings))
    ports = ["--port", str(port), "--webui-port", str(web_port)]
    return [*_launcher(), _MASTER, "--host", settled.host, *ports, "--properties-file", str(file)]


def worker_command(settled: Settled, node: str, slots: int, slot_memory_mb: float, master_url: str) -> list[str]:
    """The Worker of a node, which offers its slots as addresses of the node's resource."""
    name = resource_name(node)
    conf = settled.folder / "conf"
    _prepare(settled)
    offered = conf / f"{name}.json"
    write_text(offered, json.dumps(offered_resources(node, slots)))
    settings = _common(settled) | {
        "spark.worker.resourcesFile": str(offered),
        f"spark.worker.resource.{name}.amount": str(slots),
    }
    file = conf / f"{name}.properties"
    write_text(file, properties_text(settings))
    return [
        *_launcher(),
        _WORKER,
        *("--host", settled.host, "--port", "0", "--webui-port", "0"),
        *("--cores", str(worker_cores(slots)), "--memory", f"{worker_memory_mb(slots, slot_memory_mb)}M"),
        *("--work-dir", str(settled.folder / "work" / name), "--properties-file", str(file)),
        master_url,
    ]


def _prepare(settled: Settled) -> None:
    for name in ("conf", "logs", "scratch", "work"):
        (settled.folder / name).mkdir(mode=0o700, exist_ok=True)


def _launcher() -> list[str]:
    return [str(spark_home() / "bin" / "spark-class")]


def own_environment(settled: Settled) -> dict[str, str]:
    return environment(settled, os.environ)
