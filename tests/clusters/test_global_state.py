"""The view of a controller on its nodes: capacity, demand and free amounts of resources, and who holds what."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from penstock.cluster.contract import AppRequest, SlotRequest
from penstock.cluster.file import parse_cluster
from penstock.cluster.simulated import SimulatedCluster
from penstock.cluster.topology import Slot
from penstock.control.contracts import ProviderError
from penstock.control.core.messages import NodeJoined, NodeLost
from penstock.control.core.records import (
    ControllerState,
    NodePhase,
    PipelineRecord,
    PipelineState,
    ServiceTarget,
    Submission,
)
from penstock.control.node_providers import ClusterProvider, ObservedProvider
from penstock.control.sizing import ModelSizing
from penstock.modelling.library import reference_library
from penstock.service import documents

NODES = {
    "nodes": [
        {"name": "big", "slots": 4, "rack": "left", "memory_mb": 8000, "resources": {"gpu": 2}, "labels": ["ssd"]},
        {"name": "small", "slots": 1, "rack": "right", "memory_mb": 1000},
    ]
}


class Usage(ModelSizing):
    """Every pipeline needs 1.5 cores and 900 MB at 10 rows/s, in proportion to its rate."""

    def usage(self, submission: Submission, rate: float) -> tuple[float, float]:
        return 0.15 * rate, 90 * rate


class NoModel(ModelSizing):
    def usage(self, submission: Submission, rate: float) -> None:
        return None


def cluster() -> SimulatedCluster:
    return SimulatedCluster(parse_cluster(NODES, "nodes"))


def state_of(nodes: ObservedProvider, *slots: Slot) -> ControllerState:
    """With a pipeline that has slots, at a target of 20 rows/s."""
    records = [seen.node for seen in nodes.observe(0.0) if isinstance(seen, NodeJoined)]
    target = ServiceTarget(20.0)
    pipeline = PipelineRecord(
        Submission("own", "linear"), 1, PipelineState.STARTING, 0.0, target, 1, 1, 1, assigned=slots
    )
    alive = {each.name: replace(each, state=NodePhase.ALIVE) for each in records}
    return ControllerState(pipelines=MappingProxyType({"own": pipeline}), nodes=MappingProxyType(alive))


def test_nodes_show_resources_demand_and_holders_of_other_applications() -> None:
    manager = cluster()
    stranger = manager.session(AppRequest("stranger", pinned=True, memory_mb=1500))
    manager.acquire(stranger.id, [SlotRequest("big", 3, cores=2)]).result()
    nodes = ObservedProvider(ClusterProvider(manager, price=0.5))
    state = state_of(nodes, Slot("big", 0), Slot("small", 0))
    big, small = documents.nodes(state, nodes.seen(), documents.demands_of(state, Usage(reference_library(), 1)))
    assert (big["rack"], big["slots"], big["free"], big["free_slots"]) == ("left", 4, 2, [1, 2])
    assert (big["labels"], big["pipelines"]) == (["ssd"], ["own"])
    # demand: 20 rows/s take 3 cores and 1800 MB on two slots, half of it here. Free: 3 of 4 slots, 8000 - 1500 MB;
    # the pipeline's own executors are not on the manager's books yet
    assert big["resources"] == {
        "cpu": {"capacity": 400, "demand": pytest.approx(150), "free": 300},
        "memory_mb": {"capacity": 8000, "demand": pytest.approx(900), "free": 6500},
        "gpu": {"capacity": 2, "demand": None, "free": 2},
    }
    assert [(each["slot"], each["pipeline"], each["name"], each["memory_mb"]) for each in big["holders"]] == [
        (0, "own", None, None),
        (3, None, "stranger", 1500),
    ]
    assert big["holders"][1]["application"] == stranger.id
    assert (small["free"], small["resources"]["memory_mb"]["capacity"]) == (0, 1000)


def test_a_pipeline_without_a_model_has_no_known_demand() -> None:
    nodes = ObservedProvider(ClusterProvider(cluster()))
    state = state_of(nodes, Slot("big", 0))
    (big, small) = documents.nodes(state, nodes.seen(), documents.demands_of(state, NoModel(reference_library(), 1)))
    assert big["resources"]["cpu"]["demand"] is None
    # nothing is there: 0 of everything
    assert small["resources"]["cpu"]["demand"] == 0


def test_without_a_manager_the_slots_that_are_free_have_their_part() -> None:
    state = state_of(ObservedProvider(ClusterProvider(cluster())), Slot("big", 0))
    (big, _) = documents.nodes(state, None)
    # 3 of 4 slots
    assert (big["resources"]["cpu"]["free"], big["resources"]["memory_mb"]["free"]) == (300, 6000)
    assert big["resources"]["gpu"]["free"] is None


def test_nodes_of_a_manager_come_and_go_by_the_contract() -> None:
    manager = cluster()
    nodes = ObservedProvider(ClusterProvider(manager))
    joined = [seen.node for seen in nodes.observe(0.0) if isinstance(seen, NodeJoined)]
    assert [(each.name, each.rack, dict(each.capacity)) for each in joined] == [
        ("big", "left", {"cpu": 400, "memory_mb": 8000, "gpu": 2}),
        ("small", "right", {"cpu": 100, "memory_mb": 1000, "gpu": 0}),
    ]
    (asked,) = nodes.acquire(1, None)
    nodes.look()
    assert [type(seen) for seen in nodes.observe(0.0)] == [NodeJoined]
    manager.lose_node("small")
    nodes.release(asked.name)
    nodes.look()
    assert nodes.observe(0.0) == [NodeLost("small")]
    assert {each.name for each in manager.nodes()} == {"big", "small"}
    with pytest.raises(ProviderError, match="have one size, not 'huge'"):
        nodes.acquire(1, "huge")


def test_a_manager_that_does_not_answer_loses_no_node() -> None:
    class Silent(SimulatedCluster):
        answers = True

        def nodes(self):  # type: ignore[no-untyped-def]
            return super().nodes() if self.answers else None

    manager = Silent()
    nodes = ObservedProvider(ClusterProvider(manager))
    nodes.observe(0.0)
    manager.answers = False
    nodes.look()
    assert nodes.observe(0.0) == []
    assert nodes.trouble == "the manager at simulated does not answer"
