"""`penstock cluster share`, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from outcome import Penstock

import penstock as package
from penstock import Tenant, Tenants

EXAMPLE = Path(__file__).parents[2] / "examples" / "tenants.yaml"
PIPELINE = "  - {name: a, desired: 4, minimum: 2}\n"


@pytest.mark.parametrize(
    ("policy", "nodes", "expected"),
    [
        ("static-priority", 16, [6, 6, 2, 2]),
        ("dynamic-priority", 16, [8, 8, 0, 0]),
        ("isolation", 16, [8, 8, 0, 0]),
        ("max-min", 16, [4, 4, 4, 4]),
        ("fair-priority", 12, [4, 4, 2, 2]),
        ("fair-priority:ratio=1", 16, [5, 5, 3, 3]),
        ("dominant-fair", 24, [8, 8, 4, 4]),
    ],
)
def test_json_has_the_agreed_keys(penstock: Penstock, policy: str, nodes: int, expected: list[int]) -> None:
    outcome = penstock("cluster", "share", EXAMPLE, "--policy", policy, "--nodes", nodes, "--json")
    document = outcome.document
    assert outcome.code == 0
    assert {"policy", "nodes", "shares", "waiting"} <= set(document)
    assert document["policy"] == policy.partition(":")[0]
    assert document["nodes"] == nodes
    assert list(document["shares"].values()) == expected
    assert list(document["shares"]) == ["EventTP1", "EventTP2", "ArchivalTP1", "ArchivalTP2"]
    assert set(document["waiting"]) == {name for name, share in document["shares"].items() if not share}


def test_minima_above_the_cluster_exit_with_1_and_say_who_waits(penstock: Penstock) -> None:
    outcome = penstock("cluster", "share", EXAMPLE, "--nodes", 10, "--json")
    assert outcome.code == 1
    assert outcome.document["shares"] == {"EventTP1": 4, "EventTP2": 4, "ArchivalTP1": 2, "ArchivalTP2": 0}
    assert "needs at least 2 nodes, 0 left" in outcome.document["waiting"]["ArchivalTP2"]
    people = penstock("cluster", "share", EXAMPLE, "--nodes", 10)
    assert people.code == 1
    assert "waiting    ArchivalTP2: needs at least 2 nodes" in people.out


def test_for_people(penstock: Penstock) -> None:
    outcome = penstock("cluster", "share", EXAMPLE)
    assert outcome.code == 0
    assert "16 nodes shared by fair-priority" in outcome.out
    assert "n7, n8, n9, n10, n11, n12" in outcome.out
    assert "Jain's index 0.962" in outcome.out


def test_compare_shows_every_policy_and_what_moves(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text(
        "nodes: 6\npipelines:\n"
        "  - {name: a, desired: 4, minimum: 2, priority: 1, current: [n1, n2, n3]}\n"
        "  - {name: b, desired: 4, minimum: 2, priority: 2, current: [n4, n5, n6]}\n"
    )
    outcome = penstock("cluster", "share", file, "--compare")
    assert outcome.code == 0
    for name in ("shared", "isolation", "static-priority", "dynamic-priority", "max-min", "fair-priority"):
        assert name in outcome.out
    document = penstock("cluster", "share", file, "--compare", "--json").document
    rows = {row["policy"]: row for row in document["policies"]}
    assert rows["fair-priority"]["shares"] == {"a": 4, "b": 2}
    # 8 threads each on 3 nodes of 2 slots; a: 2, 2, 1, 1, 1, 1 spread over 8 slots moves 2, b: the 2 threads of a node
    # plus none; published starts all 16 anew
    assert rows["fair-priority"]["moved_threads_published"] == 16
    assert 0 < rows["fair-priority"]["moved_threads"] <= 6
    assert rows["max-min"]["moved_threads"] == rows["max-min"]["moved_threads_published"] == 0
    assert rows["shared"]["moved_threads"] is None


def test_many_pipelines_are_summed_up(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "tenants.json"
    file.write_text(
        json.dumps({"nodes": 99, "pipelines": [{"name": f"p{n}", "desired": 1 + n % 3} for n in range(50)]})
    )
    assert "and 10 more: --json prints all" in penstock("cluster", "share", file).out
    assert "1 to 3" in penstock("cluster", "share", file, "--compare").out


def test_a_picture(penstock: Penstock, tmp_path: Path) -> None:
    picture = tmp_path / "shares.svg"
    outcome = penstock("cluster", "share", EXAMPLE, "--policy", "dynamic-priority", "--plot", picture)
    assert outcome.code == 0
    text = picture.read_text()
    for words in ("16 nodes shared by dynamic-priority", "ArchivalTP2", "8 of 8", "0 of 4", "level 2", "minimum"):
        assert words in text
    many = tmp_path / "many.png"
    file = tmp_path / "many.json"
    file.write_text(json.dumps({"nodes": 90, "pipelines": [{"name": f"p{n}", "desired": 2} for n in range(80)]}))
    assert penstock("cluster", "share", file, "--plot", many).code == 0
    assert many.read_bytes().startswith(b"\x89PNG")


def test_from_python() -> None:
    found = package.share(EXAMPLE, policy="static-priority")
    assert found.nodes == {"EventTP1": 6, "EventTP2": 6, "ArchivalTP1": 2, "ArchivalTP2": 2}
    own = Tenants.of(6, [Tenant("a", 4, 2), Tenant("b", 4, 2, priority=2)])
    assert package.share(own).nodes == {"a": 4, "b": 2}
    assert package.share(own, nodes=4, moves="published").nodes == {"a": 2, "b": 2}
    assert {sharing.shares.policy for sharing, _ in package.compare_shares(own)} >= {"shared", "dominant-fair"}


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"desired": float("nan")}, "pipeline 'a': desired: expected a whole number of at least 1, found nan"),
        ({"desired": 2.5}, "pipeline 'a': desired: expected a whole number of at least 1, found 2.5"),
        ({"priority": "high"}, "pipeline 'a': priority: expected a whole number of at least 1, found 'high'"),
        ({"workers": 0}, "pipeline 'a': workers: expected a whole number of at least 1, found 0"),
        ({"waited": float("nan")}, "pipeline 'a': waited"),
        ({"resources": {"cpu": float("inf")}}, "pipeline 'a': resources: cpu: expected a finite amount"),
    ],
)
def test_python_is_checked_like_files(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(package.BadInputError, match=complaint):
        Tenants.of(4, [Tenant("a", **{"desired": 2, **wrong})])


def test_nodes_from_python_are_checked() -> None:
    with pytest.raises(package.BadInputError, match=r"nodes: expected 1 to 20,000 nodes, found 2\.5"):
        package.share(EXAMPLE, nodes=2.5)  # type: ignore[arg-type]


def test_nodes_that_differ_and_declared_resources(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text(
        "nodes: [{count: 4, slots: 2}, {count: 1, slots: 8, resources: {gpu: 4}}]\n"
        "pipelines:\n"
        "  - {name: a, desired: 6, minimum: 4, resources: {cpu: 100, memory_mb: 1000}}\n"
        "  - {name: b, desired: 4, minimum: 2, resources: {gpu: 1}}\n"
    )
    document = penstock("cluster", "share", file, "--json").document
    assert document["nodes"] == 8  # the large one counts as four
    # 8 * 6/10 = 4.8 and 8 * 4/10 = 3.2; the large one and a small one, and three small ones
    assert document["shares"] == {"a": 5, "b": 3}
    assert document["held"] == {"a": ["n3", "n5"], "b": ["n1", "n2", "n4"]}
    fair = penstock("cluster", "share", file, "--policy", "dominant-fair", "--json").document
    # all of both fit: 6 x 100 of 1600 points of CPU, 4 of 4 gpus
    assert fair["shares"] == {"a": 6, "b": 4}
    assert fair["dominant_shares"] == {"a": 600 / 1600, "b": 1.0}


BAD = {
    "zero nodes": ("nodes: 0\npipelines:\n" + PIPELINE, "nodes: expected 1 to 20,000 nodes, found 0"),
    "no nodes": ("nodes: []\npipelines:\n" + PIPELINE, "at least one node"),
    "half a node": ("nodes: 2.5\npipelines:\n" + PIPELINE, "nodes"),
    "nobody": ("nodes: 4\npipelines: []\n", "at least one pipeline"),
    "duplicate name": ("nodes: 4\npipelines:\n" + 2 * PIPELINE, "pipeline 'a' is declared twice"),
    "minimum above desired": (
        "nodes: 4\npipelines: [{name: a, desired: 2, minimum: 3}]\n",
        "pipeline 'a': minimum 3 is above desired 2",
    ),
    "unknown key": ("nodes: 4\npipelines: [{name: a, desired: 2, prioritty: 1}]\n", "did you mean 'priority'?"),
    "level 0": ("nodes: 4\npipelines: [{name: a, desired: 2, priority: 0}]\n", "pipelines[0].priority"),
    "negative wait": ("nodes: 4\npipelines: [{name: a, desired: 2, waited: -1}]\n", "pipelines[0].waited"),
    "unfair fairness": ("nodes: 4\npipelines: [{name: a, desired: 2, fairness: 2}]\n", "pipelines[0].fairness"),
    "unknown resource": (
        "nodes: 4\npipelines: [{name: a, desired: 2, resources: {gpu: 1}}]\n",
        "pipeline 'a': resources: no node offers 'gpu'",
    ),
    "no demand": (
        "nodes: 4\npipelines: [{name: a, desired: 2, resources: {cpu: 0}}]\n",
        "pipeline 'a': resources: expected at least one amount above 0",
    ),
    "held twice": (
        "nodes: 4\npipelines: [{name: a, desired: 2, current: [n1]}, {name: b, desired: 2, current: [n1]}]\n",
        "pipeline 'b': current: node 'n1' is held by 'a' too",
    ),
    "held twice by one": (
        "nodes: 4\npipelines: [{name: a, desired: 2, current: [n1, n1]}]\n",
        "pipeline 'a': current: a node is named twice",
    ),
    "uneven sizes": (
        "nodes: [{slots: 2}, {slots: 3}]\npipelines:\n" + PIPELINE,
        "'n2' has 3 slots, which is no whole number of standard nodes of 2 slots",
    ),
    "a node without slots": ("nodes: [{slots: 2}, {slots: 0}]\npipelines:\n" + PIPELINE, "nodes[1].slots"),
    "nodes in words": ("nodes: four\npipelines:\n" + PIPELINE, "nodes: Input should be a valid integer, found 'four'"),
    "more threads than memory": (
        "nodes: 4\npipelines: [{name: a, desired: 1000000000}]\n",
        "pipeline 'a': its 2,000,000,000 threads",
    ),
    "a list": ("- 1\n", "expected a mapping with the keys of a tenantsfile, found list"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(penstock: Penstock, tmp_path: Path, case: str) -> None:
    text, expected = BAD[case]
    file = tmp_path / "tenants.yaml"
    file.write_text(text)
    outcome = penstock("cluster", "share", file, "--plot", tmp_path / "shares.png")
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert str(file) in outcome.err
    assert expected in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["tenants.yaml"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--nodes", 0), "nodes: expected 1 to 20,000 nodes, found 0"),
        (("--policy", "fair-prioritty"), "unknown sharing policy 'fair-prioritty'; did you mean 'fair-priority'?"),
        (("--policy", "fair-priority:ratio=0.5"), "ratio"),
        (("--policy", "fair-priority:patience=0"), "patience"),
        (("--moves", "most"), "unknown way to move 'most'"),
        (("--compare", "--policy", "shared"), "--compare"),
        (("--plot", "shares.gif"), "shares.gif"),
    ],
)
def test_bad_arguments_of_share(penstock: Penstock, words: tuple[object, ...], expected: str) -> None:
    outcome = penstock("cluster", "share", EXAMPLE, *words)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert expected in outcome.err
