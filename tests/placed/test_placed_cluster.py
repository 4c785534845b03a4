"""The nodes a placed run knows: those of the cluster's files as they are now."""

from __future__ import annotations

from pathlib import Path

import penstock
from penstock.engines.placed.application import PlacedCluster
from penstock.planning.files import SavedPlan
from penstock.spark.clusters.local.cluster import LocalCluster
from penstock.spark.clusters.local.lifecycle import requested_cluster
from penstock.spark.clusters.local.state import ClusterNode, RunningCluster, write_cluster_file, write_state


def running(folder: Path, *names: str) -> RunningCluster:
    nodes = tuple(ClusterNode(name=name, rack="r1", slots=2, memory_mb=768) for name in names)
    state = RunningCluster(id="some", folder=folder, master_url="spark://m:1", nodes=nodes)
    write_state(state)
    write_cluster_file(state, requested_cluster(len(names), 2, 768, None, None))
    return state


def test_a_node_that_joined_is_known_and_spoilt_files_change_nothing(tmp_path: Path) -> None:
    plan = SavedPlan.model_validate(penstock.plan("linear", 5).document())
    known = PlacedCluster(LocalCluster(running(tmp_path, "n1", "n2")), plan)
    assert (set(known.nodes()), len(known.slots())) == ({"n1", "n2"}, 4)
    running(tmp_path, "n1", "n2", "n3")
    assert (set(known.nodes()), len(known.slots())) == ({"n1", "n2", "n3"}, 6)
    assert known.machines.find("n3") is not None
    (tmp_path / "state.json").write_text("{", encoding="utf-8")
    assert set(known.nodes()) == {"n1", "n2", "n3"}
