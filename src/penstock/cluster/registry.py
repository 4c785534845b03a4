"""ClusterManager managers by the scheme of the master URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.base.registry import Registry
from penstock.cluster.contract import ClusterAddress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.cluster.contract import ClusterManager

OWN = "cluster"
"""Master of the cluster that `penstock cluster up` has started."""
EXPECTED_MASTER = "expected local[N], spark://HOST:PORT, yarn, k8s://... or cluster"

CLUSTERS: Registry[Callable[[ClusterAddress], ClusterManager]] = Registry(
    kind="cluster manager",
    group="penstock.clusters",
    built_in={
        OWN: "penstock.spark.clusters.local.cluster:open_own",
        "local-cluster": "penstock.spark.clusters.local.cluster:open_own",
        "spark": "penstock.spark.clusters.local.cluster:open_spark",
        "yarn": "penstock.spark.clusters.spark_cluster:open_any",
        "k8s": "penstock.spark.clusters.spark_cluster:open_any",
        "simulated": "penstock.cluster.simulated:open_simulated",
    },
)


def open_cluster(
    master: str | None = None,
    *,
    secret_file: Path | None = None,
    folder: str | Path | None = None,
    web_url: str | None = None,
) -> ClusterManager:
    """Return the cluster at a master URL; None asks for the one of `penstock cluster up`.

    Nothing is started. The secret of the cluster of this machine is read from its folder if no file is given.
    """
    wanted = master or OWN
    scheme = wanted.partition(":")[0]
    if scheme not in CLUSTERS.names():
        raise BadInputError(f"master '{wanted}': {EXPECTED_MASTER}")
    return CLUSTERS.load(scheme)(ClusterAddress(wanted, secret_file, folder, web_url))
