"""The worked cases of the published ways to share a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from adapters import Given, cases, close
from penstock.cluster.topology import Cluster, Node
from penstock.planning.registry import SHARERS
from penstock.planning.sharing.contract import Sharer, Tenant, Tenants
from penstock.planning.sharing.division import filled, whole_shares
from penstock.planning.sharing.max_min import by_fairness
from penstock.planning.sharing.measures import Served, fairness_degree
from penstock.planning.sharing.share import Moves, hand_over, share_cluster


def standing(got: float, wanted: float) -> str:
    if got >= wanted:
        return "full"
    return "partial" if got > 0 else "starved"


def tenants(given: Given, **fields: Any) -> Tenants:
    """The topologies of a case on its nodes; what a case does not say plays no part in it."""
    slots = given.get("slots_per_node", 2)
    nodes: int | Cluster = (
        given["C"] if "C" in given else Cluster(tuple(Node(name, "r", slots, {}) for name in given["nodes"]))
    )
    everyone = [
        Tenant(
            topology["name"],
            desired=topology.get("desired", 1),
            minimum=topology.get("minimum", 1),
            priority=topology["priority"],
            workers=topology.get("workers"),
            threads=len(topology["executors"]) if "executors" in topology else None,
            current=tuple(fields.get("current", {}).get(topology["name"], ())),
        )
        for topology in given["topologies"]
    ]
    return Tenants.of(nodes, everyone, slots)


@pytest.mark.parametrize(("given", "expected"), cases("sps"))
def test_static_priority(given: Given, expected: dict[str, int]) -> None:
    policy = "static-priority:printed=true" if given.get("variant") == "printed" else "static-priority"
    assert SHARERS.create(policy).share(tenants(given)).nodes == expected


@pytest.mark.parametrize(("given", "expected"), cases("dps"))
def test_dynamic_priority(given: Given, expected: dict[str, int]) -> None:
    assert SHARERS.create("dynamic-priority").share(tenants(given)).nodes == expected


@pytest.mark.parametrize("moves", Moves)
@pytest.mark.parametrize(("given", "expected"), cases("isolation"))
def test_isolation(given: Given, expected: dict[str, Any], moves: Moves) -> None:
    asked = tenants(given)
    found = share_cluster(asked, SHARERS.create("isolation"), moves)
    assert found.handed is not None
    for tenant in asked.pipelines:
        assert list(found.handed.holdings[tenant.name].nodes) == expected[tenant.name]["nodes"]
        assert standing(found.nodes[tenant.name], tenant.desired) == expected[tenant.name]["status"]


@pytest.mark.parametrize(("given", "expected"), cases("default"))
def test_shared(given: Given, expected: dict[str, Any]) -> None:
    found = SHARERS.create("shared").share(tenants(given))
    for topology in given["topologies"]:
        wanted = expected[topology["name"]]
        slots = [f"{slot.node}:{slot.number}" for slot in found.slots[topology["name"]]]
        assert slots == wanted["workers"]
        assert standing(len(slots), topology["workers"]) == wanted["status"]
        dealt = {executor: slots[number % len(slots)] for number, executor in enumerate(topology["executors"]) if slots}
        assert dealt == wanted["executors"]


@pytest.mark.parametrize(("given", "expected"), cases("resource_allocator"))
def test_the_published_resource_allocator(given: Given, expected: dict[str, Any]) -> None:
    sharer: Sharer = SHARERS.create("static-priority")
    found = hand_over(tenants(given, current=given["current"]), given["cn"], sharer, Moves.PUBLISHED)
    for topology in given["topologies"]:
        holding, wanted = found.holdings[topology["name"]], expected[topology["name"]]
        where = {
            topology["executors"][thread]: f"{slot.node}:{slot.number}"
            for slot, threads in holding.layout.items()
            for thread in threads
        }
        assert list(holding.nodes) == wanted["nodes"]
        assert holding.kept == wanted["kept"]
        assert where == wanted["executors"]


@pytest.mark.parametrize(("given", "expected"), cases("es_fairness"))
def test_fairness_degree(given: Given, expected: dict[str, Any]) -> None:
    degrees = []
    for history in given["histories"]:
        served = Served()
        for seconds, allocated, needed in history:
            served = served.after(seconds, allocated, needed)
        degrees.append(served.degree)
    assert degrees == close(expected["fd"])
    assert fairness_degree(degrees) == close(expected["F"])


@pytest.mark.parametrize(("given", "expected"), cases("es_max_min"))
def test_max_min(given: Given, expected: list[float]) -> None:
    wanted = given["demands"]
    if given.get("integer"):
        order = by_fairness(given["fd"]) if "fd" in given else None
        ones = [1.0] * len(wanted)
        assert whole_shares(given["capacity"], [0] * len(wanted), wanted, ones, order) == expected
    else:
        assert filled(wanted, given["capacity"]) == close(expected)
