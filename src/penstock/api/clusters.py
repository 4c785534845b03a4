"""Start and end a standalone cluster and a Kafka broker on this machine; write files for Kubernetes and YARN."""

from __future__ import annotations

from pathlib import Path

import yaml

from penstock.base.files import write_output
from penstock.base.text import one_of
from penstock.spark.broker.broker import RunningBroker, broker_down, broker_up, running_broker
from penstock.spark.clusters.local.lifecycle import cluster_down, cluster_status, cluster_up
from penstock.spark.manifests import (
    ApplicationSize,
    Manager,
    application_account,
    checked_name,
    controller_manifests,
    executor_pod,
    spark_settings,
)

__all__ = [
    "RunningBroker",
    "broker_down",
    "broker_up",
    "cluster_down",
    "cluster_status",
    "cluster_up",
    "manifests",
    "running_broker",
]


DEFAULT_IMAGE = "penstock:0.1.0"


def manifests(
    folder: str | Path,
    *,
    manager: Manager | str = Manager.KUBERNETES,
    name: str = "penstock",
    application: str = "application",
    namespace: str = "default",
    image: str = DEFAULT_IMAGE,
    minimum: int = 1,
    maximum: int = 8,
    memory_mb: int = 1024,
    nodes: int = 2,
    slots: int = 4,
    resources: tuple[str, ...] = (),
) -> list[Path]:
    """Writes files into `folder` and returns which. Kubernetes: the controller, an account for the driver of an
    application, a pod template for its executors, its Spark settings. YARN: the Spark settings. `resources` are
    extended resources of nodes (`penstock.io/node-a`) that every executor asks one of."""
    chosen = one_of(Manager, manager, "manager")
    size = ApplicationSize(checked_name(application, "application"), minimum, maximum, memory_mb)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    files = {"spark-defaults.conf": _settings(spark_settings(chosen, size, image, namespace))}
    if chosen is Manager.KUBERNETES:
        checked_name(name, "name")
        checked_name(namespace, "namespace")
        files |= {
            "controller.yaml": yaml.safe_dump_all(
                controller_manifests(name, namespace, image, nodes, slots), sort_keys=False
            ),
            "application.yaml": yaml.safe_dump_all(application_account(size, namespace), sort_keys=False),
            "executor-pod.yaml": yaml.safe_dump(executor_pod(size, resources), sort_keys=False),
        }
    for file, text in files.items():
        write_output(target / file, text)
    return [target / file for file in files]


def _settings(values: dict[str, str]) -> str:
    width = max(map(len, values))
    return "".join(f"{key:<{width}}  {value}\n" for key, value in values.items())
