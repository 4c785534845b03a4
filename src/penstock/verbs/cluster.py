"""`penstock.cluster_up(...)`, `cluster_status()`, `cluster_down()`: a standalone cluster on this machine."""

from __future__ import annotations

from penstock.spark.standalone.cluster import cluster_down, cluster_status, cluster_up

__all__ = ["cluster_down", "cluster_status", "cluster_up"]
