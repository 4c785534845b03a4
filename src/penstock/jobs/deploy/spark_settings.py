"""Spark settings for an application whose executors come and go, by cluster manager."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.errors import BadInputError

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
