"""The cluster asked for, and the file that says what was got."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.base.errors import BadInputError
from penstock.cluster.file import cluster_document, parse_cluster, read_cluster
from penstock.cluster.topology import CPU, MEMORY, Acquisition, Cluster, find_catalogue, rent
from penstock.spark.clusters.local.lifecycle import requested_cluster


@pytest.mark.parametrize(
    ("nodes", "racks", "expected"),
    [
        # rack of node i (from 0) is floor(i R / N): 0 0 0; 0 0 1 (0, 2/3, 4/3); 0 0 1 1 2 (0, 3/5, 6/5, 9/5, 12/5)
        (3, None, ["r1", "r1", "r1"]),
        (3, 2, ["r1", "r1", "r2"]),
        (5, 3, ["r1", "r1", "r2", "r2", "r3"]),
        (2, 2, ["r1", "r2"]),
    ],
)
def test_nodes_are_spread_over_racks_in_blocks(nodes: int, racks: int | None, expected: list[str]) -> None:
    found = requested_cluster(nodes, 2, None, racks, None)
    assert [node.rack for node in found.nodes] == expected
    assert [node.name for node in found.nodes] == [f"n{number}" for number in range(1, nodes + 1)]


def test_equal_nodes_have_the_names_and_memory_of_a_plan() -> None:
    found = requested_cluster(2, 4, None, None, None)
    rented = rent(16, find_catalogue("azure-d"), Acquisition.COVER)  # 8 + 8 slots
    assert [node.name for node in found.nodes] == [node.name for node in rented.nodes]
    assert found.nodes[0].capacity[MEMORY] == 4 * 3584
    assert requested_cluster(1, 3, 1000, None, None).nodes[0].capacity == {CPU: 300, MEMORY: 3000}


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ((None, None, None, None, None), "expected nodes and slots, or a cluster file"),
        ((2, None, None, None, None), "expected nodes and slots"),
        ((2, 2, None, 3, None), "racks: expected 1 to 2"),
        ((2, 2, 511, None, None), "node 'n1': 511 MB for a slot, expected at least 512"),
        ((2, 0, None, None, None), "expected at least 1 of each"),
        ((65, 1, None, None, None), "65 nodes, expected at most 64"),
        ((2, None, None, None, Cluster(())), "give either"),
    ],
)
def test_clusters_that_cannot_be(given_: tuple[Any, ...], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        requested_cluster(*given_)


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "cluster",
    [
        requested_cluster(3, 2, 700.5, 2, None),
        read_cluster(EXAMPLES / "cluster.yaml"),
        parse_cluster(
            {
                "nodes": [
                    {"slots": 4, "size": "D3", "price": 0.25, "cpu": 150},
                    {"name": "yes", "slots": 1, "rack": "2", "resources": {"gpu": 2}},
                ],
                "dimensions": {"gpu": {"weight": 0.5}, "cpu": {"hard": True}},
            },
            "here",
        ),
    ],
)
def test_the_file_written_is_read_as_the_same_cluster(cluster: Cluster) -> None:
    text = yaml.safe_dump(cluster_document(cluster), sort_keys=False)
    assert parse_cluster(yaml.safe_load(text), "there") == cluster
