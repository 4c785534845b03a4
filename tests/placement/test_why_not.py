"""What kept a pipeline out, and changes that let it in."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from place_builders import node, pipeline
from test_constraints import labelled, with_rules

from penstock.base.errors import BadInputError
from penstock.cluster.file import cluster_document, parse_cluster
from penstock.cluster.topology import Cluster, Exclusion, FailureRule, after_failures, in_force
from penstock.dataflow.builder import pipeline as build
from penstock.dataflow.code import parse_pipeline, pipeline_document
from penstock.planning.files import parse_whole_cluster
from penstock.planning.placement.placers.compact import Compact
from penstock.planning.replanning.priorities import queue
from penstock.planning.whole_cluster import place_all
from penstock.planning.why_not import Cause, WhyNot, why_not

if TYPE_CHECKING:
    from penstock.planning.placement.contract import PlacementRequest


def asked(cluster: Cluster, requests: list[tuple[PlacementRequest, int]], name: str) -> WhyNot:
    result = place_all(cluster, requests, Compact())
    return why_not(name, queue(requests, cluster, {}), cluster, result, Compact())


def test_a_resource_that_is_used_up() -> None:
    # 400 points of which 300 are taken: 200 are asked for.
    requests = [(pipeline([(3, 100, 10)], name="x"), 1), (pipeline([(2, 100, 10)], name="y"), 2)]
    found = asked(Cluster((node("a"),)), requests, "y")
    assert found.cause is Cause.RESOURCE
    assert found.because == "needs 200 cpu in all, and 100 are left"
    assert "closest is a with 0" in str(found.nearest_node)
    assert found.changes == (
        "1 of its 2 threads fewer, every operator cut alike",
        "1 more node of 400 cpu, 4000 memory_mb",
    )


def test_what_is_stranded() -> None:
    # CPU is left on a and memory on b, and neither may move: both are held to their node by a label.
    nodes = (labelled("a", "left"), labelled("b", "right"))
    cpu = with_rules(pipeline([(1, 350, 100)], name="cpu"), o0={"required_labels": ("left",)})
    memory = with_rules(pipeline([(1, 50, 3500)], name="memory"), o0={"required_labels": ("right",)})
    both = pipeline([(1, 300, 3000)], name="both")
    found = asked(Cluster(nodes), [(cpu, 1), (memory, 1), (both, 2)], "both")
    assert found.cause is Cause.STRANDING
    assert "3,900 memory_mb on 1 nodes that lack another resource" in found.because
    assert "1 more node of 400 cpu" in found.changes[0]


def test_a_thread_larger_than_every_node_needs_a_larger_one() -> None:
    # 500 points: a has 400. b has 1000, but 5 MB for the 10 it needs: nobody may say that no node has more than 400.
    alone = asked(Cluster((node("a"),)), [(pipeline([(2, 500, 10)], name="x"), 1)], "x")
    assert (
        alone.because == "one thread of operator 'o0' needs 500 cpu, and no kind of node it may be on has more than 400"
    )
    assert alone.changes == ("2 more nodes of at least 500 cpu, 10 memory_mb",)
    beside = asked(Cluster((node("a"), node("b", cpu=1000, memory=5))), [(pipeline([(1, 500, 10)], name="x"), 1)], "x")
    assert beside.because == (
        "one thread of operator 'o0' needs 500 cpu, the kind of node that comes closest has 400, "
        "and those with more lack something else"
    )


def test_a_constraint() -> None:
    request = with_rules(pipeline([(2, 10, 10)], name="x"), o0={"most_per_node": 1})
    found = asked(Cluster((node("a"),)), [(request, 1)], "x")
    assert found.cause is Cause.CONSTRAINT
    assert "at most 1 can be placed" in found.because
    assert found.changes[0] == "constraint most_per_node of 'o0' dropped"
    assert "1 more node" in found.changes[-1]


def test_others_of_its_priority_out_of_the_way() -> None:
    requests = [(pipeline([(1, cpu, 10)], name=name), 1) for name, cpu in [("s1", 200), ("s2", 200), ("big", 400)]]
    found = asked(Cluster((node("a"),)), requests, "big")
    assert "s1, s2 out of the way (2 threads of its own priority)" in found.changes


def test_lower_priorities_are_in_nobodys_way() -> None:
    # 14 threads of 100 points, three nodes of 400: 12 fit, so 2 must go. The 8 of low, placed after it, do not count.
    requests = [(pipeline([(14, 100, 10)], name="high"), 1), (pipeline([(8, 100, 10)], name="low"), 9)]
    found = asked(Cluster((node("a"), node("b"), node("c"))), requests, "high")
    assert found.cause is Cause.RESOURCE
    assert found.changes[:2] == (
        "2 of its 14 threads fewer, every operator cut alike",
        "1 more node of 400 cpu, 4000 memory_mb",
    )


def test_one_that_is_placed_and_one_that_is_not_known() -> None:
    requests = [(pipeline([(3, 100, 10)], name="x"), 1)]
    assert asked(Cluster((node("a"),)), requests, "x").cause is Cause.PLACED
    with pytest.raises(BadInputError, match="unknown pipeline 'y'"):
        asked(Cluster((node("a"),)), requests, "y")


# Excluded nodes.


def test_nodes_are_set_aside_after_failures_and_let_in_again() -> None:
    rule = FailureRule(failures=3, within_seconds=100, for_seconds=50)
    failed = {"often": [10.0, 60.0, 100.0], "seldom": [0.0, 100.0, 190.0], "twice": [1.0, 2.0]}
    # often: 100 - 10 = 90 <= 100, until 150. seldom: 190 - 0 > 100.
    assert in_force(after_failures(failed, 149.0, rule), 149.0) == {"often": "failed 3 times within 100 s"}
    assert after_failures(failed, 150.0, rule) == []
    assert after_failures(failed, 99.0, rule) == []


def test_exclusions_end() -> None:
    exclusions = [Exclusion("a"), Exclusion("b", "maintenance", 10.0)]
    assert in_force(exclusions, 9.0) == {"a": "by hand", "b": "maintenance"}
    assert in_force(exclusions, 10.0) == {"a": "by hand"}


# Files.

CLUSTER: dict[str, Any] = {
    "nodes": [
        {"name": "a", "slots": 2, "labels": ["ssd"], "taints": ["spot"]},
        {"name": "b", "slots": 2},
    ],
    "excluded": ["b", {"node": "a", "reason": "old", "until": "2001-01-01T00:00:00Z"}],
}


def test_a_cluster_file_says_labels_taints_and_exclusions() -> None:
    cluster = parse_cluster(CLUSTER, "c.yaml")
    assert cluster.node("a").labels == {"ssd"}
    assert cluster.node("a").taints == {"spot"}
    assert cluster.excluded == {"b": "by hand"}
    assert parse_cluster(json.loads(json.dumps(cluster_document(cluster))), "again") == cluster


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"excluded": ["c"]}, r"excluded\[0\].node: node 'c' does not exist; known: a, b"),
        ({"excluded": [{"node": "a", "until": "tomorrow"}]}, "until"),
        ({"excluded": [{"node": "a", "until": "2030-01-01T00:00:00"}]}, "timezone"),
    ],
)
def test_exclusions_that_make_no_sense(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        parse_cluster({**CLUSTER, **change}, "c.yaml")


def whole_file(**of_pipeline: Any) -> dict[str, Any]:
    operator = {"name": "o", "threads": 1, "cpu": 1, "memory_mb": 1}
    return {"nodes": CLUSTER["nodes"], "pipelines": [{"name": "p", "operators": [operator], **of_pipeline}]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (whole_file(constraints={"tolerates": ["spto"]}), "unknown taint 'spto': no node has it; did you mean 'spot'"),
        (whole_file(constraints={"apart_on_nodes": [["o", "x"]]}), "constraints: unknown operator 'x'; known: o"),
        (whole_file(constraints={"apart_on_nodes": [["o", "o"]]}), "most_per_node: 1"),
        (whole_file(constraints={"isolatd": True}), "unknown key 'isolatd'; did you mean 'isolated'"),
        ({**whole_file(owner="eve"), "owners": {"ada": {"cpu": 1, "memory_mb": 1}}}, "owner 'eve' has no guarantee"),
        ({**whole_file(), "owners": {"ada": {"cpu": 1, "memory_mb": 1}}}, "pipeline 'p': it has no owner"),
        ({**whole_file(), "excluded": ["z"]}, "node 'z' does not exist"),
        (
            whole_file(worker_max_heap_mb=10, constraints={"shared_memory": [{"operators": ["o"], "mb": 20}]}),
            "shared_memory of 20 MB in one slot contradicts worker_max_heap_mb 10",
        ),
    ],
)
def test_bad_constraints_in_a_whole_cluster_file(data: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message) as error:
        parse_whole_cluster(data, "w.yaml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ({"required_labels": ["sdd"]}, "operator 'o': unknown label 'sdd': no node has it; did you mean 'ssd'"),
        ({"required_labels": ["ssd"], "forbidden_labels": ["ssd"]}, "'ssd' is both required and forbidden"),
        ({"preferred_labels": ["ssd"], "forbidden_labels": ["ssd"]}, "'ssd' is both preferred and forbidden"),
        ({"most_per_node": 0}, "most_per_node"),
    ],
)
def test_bad_constraints_of_an_operator(constraints: dict[str, Any], message: str) -> None:
    data = whole_file()
    data["pipelines"][0]["operators"] = [
        {"name": "o", "threads": 1, "cpu": 1, "memory_mb": 1, "constraints": constraints}
    ]
    with pytest.raises(BadInputError, match=message):
        parse_whole_cluster(data, "w.yaml")


def test_a_whole_cluster_file_with_everything() -> None:
    data = whole_file(owner="ada", worker_max_heap_mb=100, constraints={"tolerates": ["spot"], "isolated": True})
    data["owners"] = {"ada": {"cpu": 10, "memory_mb": 10}}
    operator = data["pipelines"][0]["operators"][0]
    data["pipelines"][0]["operators"] = [{**operator, "constraints": {"off_heap_mb": 5, "required_labels": ["ssd"]}}]
    whole = parse_whole_cluster(data, "w.yaml")
    request = whole.requests[0][0]
    assert request.operators[0].demand == (1, 6)
    assert request.constraints.isolated
    assert whole.guarantees == {"ada": {"cpu": 10, "memory_mb": 10}}
    result = place_all(whole.cluster, whole.requests, Compact(), whole.guarantees)
    assert {bundle.slot.node for bundle in result.placements["p"].bundles} == {"a"}


def test_a_pipeline_file_and_python_say_the_same() -> None:
    data = {
        "name": "p",
        "operators": {
            "s": {"kind": "source"},
            "o": {
                "threads": 1,
                "cpu": 1,
                "memory_mb": 1,
                "constraints": {"most_per_node": 2, "required_labels": ["ssd"]},
            },
        },
        "streams": [{"from": "s", "to": "o"}],
        "constraints": {"apart_on_slots": [["s", "o"]]},
    }
    read = parse_pipeline(data, "p.yaml")
    built = (
        build("p")
        .source("s")
        .then("o", threads=1, cpu=1, memory_mb=1, constraints={"most_per_node": 2, "required_labels": ["ssd"]})
        .constrain(apart_on_slots=[("s", "o")])
        .build()
    )
    assert read.constraints == built.constraints
    assert read.operators["o"].constraints == built.operators["o"].constraints
    assert parse_pipeline(pipeline_document(built), "again") == read
    with pytest.raises(BadInputError, match="constraints: unknown operator 'x'"):
        parse_pipeline({**data, "constraints": {"apart_on_slots": [["s", "x"]]}}, "p.yaml")


def test_excluded_nodes_lose_what_runs_there() -> None:
    cluster = Cluster((node("a"), node("b")))
    requests = [(pipeline([(1, 100, 10)], name="x"), 1)]
    before = place_all(cluster, requests, Compact())
    used = next(iter(before.placements["x"].by_slot())).node
    after = place_all(cluster.without([used]), requests, Compact())
    assert used not in {slot.node for slot in after.placements["x"].by_slot()}
    with pytest.raises(BadInputError, match="excluded node 'z' does not exist"):
        cluster.without(["z"])
    assert replace(cluster, excluded={}).excluded == {}
