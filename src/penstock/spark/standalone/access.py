"""What it takes to use a cluster: where its Master is, and the secret it asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import ClusterError
from penstock.spark.session.secret import read_secret
from penstock.spark.standalone.cluster import find_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.spark.standalone.state import RunningCluster


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """`cluster` is the one of `penstock cluster up` on this machine, where it is that one."""

    master_url: str
    secret: str | None = field(default=None, repr=False)
    cluster: RunningCluster | None = None


def find_access(master: str | None, secret_file: Path | None) -> ClusterAccess:
    """Access to the cluster at `master`; None asks for the one of `penstock cluster up`, whose secret is at hand."""
    secret = None if secret_file is None else read_secret(secret_file)
    try:
        own = find_cluster()
    except ClusterError:
        if master is None:
            raise
        return ClusterAccess(master, secret)
    if master not in {None, own.master_url}:
        return ClusterAccess(str(master), secret)
    return ClusterAccess(own.master_url, own.secret() if secret is None else secret, own)
