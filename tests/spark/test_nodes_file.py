"""The cluster's file has the nodes of now: those that were added, and not those that were removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cluster.file import read_cluster
from penstock.spark.clusters.local import lifecycle as cluster
from penstock.spark.clusters.local.lifecycle import requested_cluster
from penstock.spark.clusters.local.state import (
    ClusterNode,
    RunningCluster,
    read_state,
    write_cluster_file,
    write_state,
)


def started(state: RunningCluster, _node: ClusterNode) -> RunningCluster:
    """In place of a Worker."""
    write_state(state)
    return state


def test_nodes_that_are_added_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = tuple(ClusterNode(name=name, rack="r1", slots=2, memory_mb=768) for name in ("n1", "n2"))
    state = RunningCluster(id="some", folder=tmp_path, master_url="spark://m:1", nodes=nodes)
    write_state(state)
    write_cluster_file(state, requested_cluster(2, 2, 768, None, None))
    monkeypatch.setattr(cluster, "_start_worker", started)
    assert cluster.add_node(tmp_path).name == "n3"
    there = read_cluster(state.cluster_file)
    assert [(node.name, node.slots) for node in there.nodes] == [("n1", 2), ("n2", 2), ("n3", 2)]
    assert there.node("n3").capacity == there.node("n2").capacity
    cluster.remove_node("n1", tmp_path)
    assert [node.name for node in read_cluster(state.cluster_file).nodes] == ["n2", "n3"]
    now = read_state(tmp_path)
    assert now is not None
    assert [node.name for node in now.nodes] == ["n2", "n3"]
