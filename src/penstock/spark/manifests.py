"""What Kubernetes is given: the controller with its page, and the pod of an executor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable


NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
PORT = 8080
USER = 10001
STATE = "/var/lib/penstock"
TOKENS = "/etc/penstock/tokens"


def checked_name(name: str, what: str) -> str:
    """A name as Kubernetes takes it."""
    if not NAME.fullmatch(name):
        raise BadInputError(f"{what}: '{name}' is no name Kubernetes takes: a-z, 0-9 and -, at most 63 letters")
    return name


def controller_manifests(name: str, namespace: str, image: str, nodes: int, slots: int) -> list[dict[str, Any]]:
    """In the order in which they are applied. The secret with the tokens is yours to make: none stands in a file.
    It holds `token`, `read-token` and `attach-token`; an application is given the last one alone."""
    labels = {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/instance": name}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "automountServiceAccountToken": False},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": meta,
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                # one controller writes a store: the old one ends before the new one starts
                "replicas": 1,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _pod(name, namespace, image, nodes, slots)},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": labels, "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": meta,
            "spec": {
                "podSelector": {"matchLabels": labels},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": "http", "protocol": "TCP"}]}],
            },
        },
    ]


def _pod(name: str, namespace: str, image: str, nodes: int, slots: int) -> dict[str, Any]:
    hosts = (name, f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local")
    arguments = ["serve", "--simulated", "--host", "0.0.0.0", "--port", str(PORT), "--token-folder", TOKENS]  # noqa: S104
    # attached applications are admitted executor by executor
    arguments += ["--nodes", str(nodes), "--slots", str(slots), "--unit-slots", "1"]
    for host in hosts:
        arguments += ["--answer-to", host]
    return {
        "serviceAccountName": name,
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "fsGroup": USER},
        "terminationGracePeriodSeconds": 30,
        "containers": [
            {
                "name": "controller",
                "image": image,
                "command": ["penstock"],
                "args": arguments,
                "env": [{"name": "PENSTOCK_STATE", "value": STATE}],
                "ports": [{"name": "http", "containerPort": PORT}],
                "readinessProbe": {**_probe("ready", name), "periodSeconds": 5},
                # fails only when a restart would help: the loop has ended, or hangs
                "livenessProbe": {**_probe("live", name), "periodSeconds": 20, "failureThreshold": 3},
                "resources": {"requests": {"cpu": "250m", "memory": "384Mi"}, "limits": {"memory": "1Gi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "state", "mountPath": STATE},
                    {"name": "tokens", "mountPath": TOKENS, "readOnly": True},
                    {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - in the container
                ],
            }
        ],
        "volumes": [
            {"name": "state", "persistentVolumeClaim": {"claimName": name}},
            {"name": "tokens", "secret": {"secretName": f"{name}-tokens", "defaultMode": 0o440}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _probe(what: str, host: str) -> dict[str, Any]:
    headers = [{"name": "Host", "value": host}]
    return {"httpGet": {"path": f"/health/{what}", "port": "http", "httpHeaders": headers}}


def executor_pod(size: ApplicationSize, resources: Iterable[str] = ()) -> dict[str, Any]:
    """A pod template. `resources` are extended resources of nodes, one of each: an executor then runs only where they
    are offered, as a slot of a named node does on a standalone cluster."""
    extended = dict.fromkeys(resources, "1")
    for name in extended:
        if "/" not in name:
            raise BadInputError(f"resource '{name}': Kubernetes takes names such as penstock.io/node-a")
    memory = f"{int(size.memory_mb * 1.4)}Mi"  # Spark's own overhead for code that is not of the JVM
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"app.kubernetes.io/part-of": size.name}},
        "spec": {
            "securityContext": {"runAsNonRoot": True},
            "containers": [
                {
                    "name": "executor",
                    "resources": {
                        "requests": {"cpu": "1", "memory": memory, **extended},
                        "limits": {"memory": memory, **extended},
                    },
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


def application_account(size: ApplicationSize, namespace: str) -> list[dict[str, Any]]:
    """What the driver of an application needs to make and end its executors' pods, and no more."""
    meta = {"name": size.name, "namespace": namespace}
    rules = [
        {
            "apiGroups": [""],
            "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"],
            "verbs": ["create", "get", "list", "watch", "delete", "deletecollection", "patch"],
        }
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": size.name}
    subject = {"kind": "ServiceAccount", "name": size.name, "namespace": namespace}
    group = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": group, "kind": "Role", "metadata": meta, "rules": rules},
        {"apiVersion": group, "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]},
    ]


# Spark settings for an application whose executors come and go, by cluster manager.


NEVER = "30d"


class Manager(StrEnum):
    KUBERNETES = "kubernetes"
    YARN = "yarn"


@dataclass(frozen=True, slots=True)
class ApplicationSize:
    """Executors of one core each."""

    name: str
    minimum: int = 1
    maximum: int = 8
    memory_mb: int = 1024
    driver_memory_mb: int = 1024

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= self.maximum:
            raise BadInputError(f"maximum: {self.maximum} is below the minimum of {self.minimum}, or that is below 1")
        if min(self.memory_mb, self.driver_memory_mb) < 512:
            raise BadInputError("memory: expected at least 512 MB for driver and executors")


def spark_settings(manager: Manager, size: ApplicationSize, image: str = "", namespace: str = "") -> dict[str, str]:
    """Dynamic allocation is on, or executors could not come and go, and silent, or Spark would decide by itself."""
    prefix = "spark.dynamicAllocation"
    settings = {
        "spark.executor.cores": "1",
        "spark.executor.memory": f"{size.memory_mb}m",
        "spark.driver.memory": f"{size.driver_memory_mb}m",
        f"{prefix}.enabled": "true",
        f"{prefix}.shuffleTracking.enabled": "true",
        f"{prefix}.minExecutors": str(size.minimum),
        f"{prefix}.initialExecutors": str(size.minimum),
        f"{prefix}.maxExecutors": str(size.maximum),
        f"{prefix}.schedulerBacklogTimeout": NEVER,
        f"{prefix}.sustainedSchedulerBacklogTimeout": NEVER,
        f"{prefix}.executorIdleTimeout": NEVER,
        f"{prefix}.shuffleTracking.timeout": NEVER,
    }
    if manager is Manager.YARN:
        return settings | {"spark.yarn.maxAppAttempts": "1", "spark.yarn.tags": f"penstock,{size.name}"}
    return settings | {
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.authenticate.driver.serviceAccountName": size.name,
        "spark.kubernetes.executor.podTemplateFile": "executor-pod.yaml",
        "spark.kubernetes.executor.podNamePrefix": size.name,
        "spark.kubernetes.allocation.batch.size": str(size.maximum),
    }
