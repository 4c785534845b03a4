"""Spark's own Master and Worker as command lines, settings and environments."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.files import private_folder, write_text
from penstock.base.processes import LOOPBACK, MARK
from penstock.cluster.slot_resources import RACK, SLOT, resource_name, slot_resource_name
from penstock.spark.internals.class_archive import using
from penstock.spark.session.java import classes_of_spark, java_home, spark_home
from penstock.spark.session.secret import properties_text, secret_settings, web_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DEFAULT_EXECUTOR_MB = 1024
"""Spark's default executor, which empty batches use, fits beside all slots of a node."""

LOWEST_SLOT_MB = 512
"""An executor refuses to start with less heap than 450 MB."""

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


@dataclass(frozen=True, slots=True)
class ClusterEnvironment:
    """What all processes of one cluster on one machine share."""

    mark: str
    folder: Path
    host: str = LOOPBACK
    secret: str | None = field(default=None, repr=False)

    @property
    def conf(self) -> Path:
        """The folder of Spark's settings, the secret among them: for its owner alone."""
        return self.folder / "conf"


def worker_cores(slots: int) -> int:
    """Cores a Worker claims: more than its executors ever ask for, because slots limit, not cores."""
    return max(64, 16 * slots)


def worker_memory_mb(slots: int, slot_memory_mb: float) -> int:
    """`slots * slot_memory_mb` rounded up, and room for the default executor."""
    return -int(-slots * slot_memory_mb // 1) + DEFAULT_EXECUTOR_MB


def offered_resources(node: str, slots: int, rack: str | None = None) -> list[dict[str, object]]:
    """What a Worker offers, in the shape Spark reads, with one address for every slot: of the node's own resource its
    number; of `slot`, which every node offers, the node as well, so that an executor knows where it is; and every slot
    by itself. `rack` is the address of a resource `rack`."""
    offered = {
        resource_name(node): [str(number) for number in range(slots)],
        SLOT: [f"{node}/{number}" for number in range(slots)],
        **{slot_resource_name(node, number): [f"{node}/{number}"] for number in range(slots)},
        **({} if rack is None else {RACK: [rack]}),
    }
    return [
        {"id": {"componentName": "spark.worker", "resourceName": name}, "addresses": addresses}
        for name, addresses in offered.items()
    ]


def environment(cluster: ClusterEnvironment, given: Mapping[str, str]) -> dict[str, str]:
    """That of this process without what it says about other Sparks; only where to spill is left to the user."""
    kept = {key: value for key, value in given.items() if not key.startswith(("SPARK_", "_SPARK_"))}
    java, spark = java_home(), spark_home()
    return {
        **kept,
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(spark),
        # settings are named on the command line; a folder that is not empty on the class path spoils a class archive
        "SPARK_CONF_DIR": str(spark / "conf"),
        "SPARK_LOCAL_DIRS": given.get("SPARK_LOCAL_DIRS", str(cluster.folder / "scratch")),
        "SPARK_LOCAL_IP": cluster.host,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {using(classes_of_spark())}".strip(),
        MARK: cluster.mark,
    }


def _common(cluster: ClusterEnvironment) -> dict[str, str]:
    return {"spark.ui.killEnabled": "false"} | secret_settings(cluster.secret)


def master_command(cluster: ClusterEnvironment, port: int, web_port: int) -> list[str]:
    """The Master; its submission server, which would run anybody's program, stays off."""
    settings = _common(cluster) | {"spark.master.rest.enabled": "false", "spark.port.maxRetries": "0"}
    file = cluster.conf / "master.properties"
    _prepare(cluster)
    write_text(file, properties_text(settings))
    ports = ["--port", str(port), "--webui-port", str(web_port)]
    return [*_launcher(), _MASTER, "--host", cluster.host, *ports, "--properties-file", str(file)]


def worker_command(
    cluster: ClusterEnvironment, node: str, slots: int, slot_memory_mb: float, master_url: str, rack: str | None = None
) -> list[str]:
    """The Worker of a node, which offers its slots as addresses of two resources, the node's own and `slot`, and each
    as a resource of its own."""
    name = resource_name(node)
    conf = cluster.conf
    _prepare(cluster)
    offered = conf / f"{name}.json"
    write_text(offered, json.dumps(offered_resources(node, slots, rack)))
    # its page shows what executors print
    settings = (
        _common(cluster)
        | web_settings(cluster.secret)
        | {
            "spark.worker.resourcesFile": str(offered),
            f"spark.worker.resource.{name}.amount": str(slots),
            f"spark.worker.resource.{SLOT}.amount": str(slots),
            **{f"spark.worker.resource.{slot_resource_name(node, number)}.amount": "1" for number in range(slots)},
            **({} if rack is None else {f"spark.worker.resource.{RACK}.amount": "1"}),
        }
    )
    file = conf / f"{name}.properties"
    write_text(file, properties_text(settings))
    return [
        *_launcher(),
        _WORKER,
        *("--host", cluster.host, "--port", "0", "--webui-port", "0"),
        *("--cores", str(worker_cores(slots)), "--memory", f"{worker_memory_mb(slots, slot_memory_mb)}M"),
        *("--work-dir", str(cluster.folder / "work" / name), "--properties-file", str(file)),
        master_url,
    ]


def _prepare(cluster: ClusterEnvironment) -> None:
    for name in ("conf", "logs", "scratch", "work"):
        private_folder(cluster.folder / name)


def _launcher() -> list[str]:
    return [str(spark_home() / "bin" / "spark-class")]


def own_environment(cluster: ClusterEnvironment) -> dict[str, str]:
    return environment(cluster, os.environ)
