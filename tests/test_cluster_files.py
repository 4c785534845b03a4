"""What a cluster file says, and what is wrong with it."""

from __future__ import annotations

import math

import pytest

from penstock.base.errors import BadInputError
from penstock.cluster.file import parse_cluster


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"nodes": []}, "c.yaml: nodes: expected at least one node"),
        ({}, "c.yaml: nodes: Field required"),
        ([], "c.yaml: expected a mapping with the keys of a clusterfile, found list"),
        ({"nodes": [{"slots": 0}]}, r"c.yaml: nodes\[0\].slots: .*equal to 1, found 0"),
        ({"nodes": [{"slots": 2.5}]}, r"c.yaml: nodes\[0\].slots: .*valid integer, found 2.5"),
        ({"nodes": [{"slots": 1, "count": 0}]}, r"c.yaml: nodes\[0\].count: .*equal to 1, found 0"),
        ({"nodes": [{"slots": 1, "count": 10**9}]}, "c.yaml: nodes: 1000000000 nodes in all, expected at most 20000"),
        ({"nodes": [{"slots": 10**8}]}, "c.yaml: nodes: 100000000 slots in all, expected at most"),
        ({"nodes": [{"slots": 10**6, "count": 10**4}]}, "c.yaml: nodes: 10000000000 slots in all, expected at most"),
        ({"nodes": [{"slots": 1, "memory_mb": 0}]}, r"c.yaml: nodes\[0\].memory_mb: .*equal to 0.001, found 0"),
        ({"nodes": [{"slots": 1, "cpu": 0}]}, r"c.yaml: nodes\[0\].cpu: .*greater than 0, found 0"),
        ({"nodes": [{"slots": 1, "cpu": math.nan}]}, r"c.yaml: nodes\[0\].cpu: .*, found nan"),
        ({"nodes": [{"slots": 1, "price": -1}]}, r"c.yaml: nodes\[0\].price: .*equal to 0, found -1"),
        ({"nodes": [{"slots": 1, "resources": {"gpu": -1}}]}, r"c.yaml: nodes\[0\].resources.gpu: .*found -1"),
        ({"nodes": [{"slots": 1, "resources": {"cpu": 1}}]}, "c.yaml: nodes: give 'cpu' as a key of the node"),
        ({"nodes": [{"slots": 1, "rak": "r"}]}, r"c.yaml: nodes\[0\]: unknown key 'rak'; did you mean 'rack'"),
        ({"nodes": [{"slots": 1, "name": "a"}] * 2}, r"c.yaml: nodes\[1\].name: node 'a' is declared twice"),
        ({"nodes": [{"slots": 1, "name": "n2"}, {"slots": 1}]}, r"c.yaml: nodes\[1\].*: node 'n2' is declared twice"),
        ({"nodes": [{"slots": 1}], "dimensions": {"gpu": {}}}, "c.yaml: dimensions.gpu: no node offers 'gpu'"),
        (
            {"nodes": [{"slots": 1}], "dimensions": {"cpu": {"weight": -1}}},
            "c.yaml: dimensions.cpu.weight: .*equal to 0, found -1",
        ),
    ],
)
def test_bad_cluster_files(data: object, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint) as caught:
        parse_cluster(data, "c.yaml")
    assert "\n" not in str(caught.value)


def test_a_cluster_file() -> None:
    found = parse_cluster(
        {
            "nodes": [
                {"count": 2, "slots": 4, "rack": "r1", "memory_mb": 14336, "size": "D3"},
                {"name": "big", "slots": 8, "rack": "r2", "cpu": 1600, "resources": {"gpu": 2}},
                {"name": "pair", "count": 2, "slots": 1},
            ],
            "dimensions": {"gpu": {"hard": False, "weight": 0.5}},
        },
        "c.yaml",
    )
    assert [node.name for node in found.nodes] == ["n1", "n2", "big", "pair-1", "pair-2"]
    # 100 points and 3584 MB a slot where nothing is said; a node that does not name a resource has none of it
    assert [dict(node.capacity) for node in found.nodes[1:4]] == [
        {"cpu": 400, "memory_mb": 14336, "gpu": 0},
        {"cpu": 1600, "memory_mb": 8 * 3584, "gpu": 2},
        {"cpu": 100, "memory_mb": 3584, "gpu": 0},
    ]
    assert [(d.name, d.hard, d.weight) for d in found.dimensions][-1] == ("gpu", False, 0.5)
    assert len(found.slots) == 4 + 4 + 8 + 1 + 1
    same_slot, same_node, same_rack, other = (found.slots[0], found.slots[1], found.slots[4], found.slots[8])
    assert [int(found.distance(same_slot, to)) for to in (same_slot, same_node, same_rack, other)] == [0, 1, 2, 3]


def test_a_dimension_entry_changes_only_what_it_says() -> None:
    nodes = [{"slots": 4}]
    plain = parse_cluster({"nodes": nodes}, "c").dimensions
    for entry in ({}, {"hard": False}, {"weight": 1e-4}):
        assert parse_cluster({"nodes": nodes, "dimensions": {"cpu": entry}}, "c").dimensions == plain
