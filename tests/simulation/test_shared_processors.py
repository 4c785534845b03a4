"""Closed loops on too few cores: nobody works with more than there is."""

from __future__ import annotations

import pytest

from penstock.cluster.topology import CPU, MEMORY, Cluster, Node, Slot
from penstock.dataflow.load import Load
from penstock.simulation.engine import simulate_scenario
from penstock.simulation.scenario import Arrivals, Scenario, SimulatedPipeline, SimulatedRoute, Station


def looping(nodes: int, in_flight: int | None, queue_limit: int | None, arrivals: Arrivals) -> SimulatedPipeline:
    """Three operators of four threads on every node, each with 10 ms of one core for a tuple."""
    work = [
        Station(operator, Slot(f"n{node}", number), 4, 0.01, cpu_seconds=0.01)
        for number, operator in enumerate("abc")
        for node in range(nodes)
    ]
    return SimulatedPipeline(
        "p",
        (Station("source", Slot("n0", 3), 1, 0.0), *work),
        (SimulatedRoute("source", "a"), SimulatedRoute("a", "b"), SimulatedRoute("b", "c")),
        ("source",),
        Load.constant(2000.0),
        arrivals,
        in_flight=in_flight,
        queue_limit=queue_limit,
    )


@pytest.mark.parametrize("arrivals", list(Arrivals))
@pytest.mark.parametrize("slot_cores", [None, 1.0])
@pytest.mark.parametrize(("in_flight", "queue_limit"), [(5, None), (50, None), (None, 10)])
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_loop_does_what_its_cores_allow(
    nodes: int, in_flight: int | None, queue_limit: int | None, slot_cores: float | None, arrivals: Arrivals
) -> None:
    # a tuple takes 3 x 10 ms of a core, and every node has one: 1 / 0.03 = 33.3 tuples/s a node
    machines = tuple(Node(f"n{number}", "r", 4, {CPU: 100.0, MEMORY: 1000.0}) for number in range(nodes))
    pipeline = looping(nodes, in_flight, queue_limit, arrivals)
    found = simulate_scenario(Scenario(Cluster(machines), (pipeline,), 20.0, 5.0, slot_cores=slot_cores))
    assert found.pipelines["p"].sustained_rate == pytest.approx(nodes / 0.03, rel=0.02)
    assert all(used.cpu == pytest.approx(1.0, abs=0.02) for used in found.nodes.values())


def test_a_loop_that_needs_no_more_than_there_is_is_not_slowed() -> None:
    # 2 in flight, 30 ms of service and 2 hops of 0.05 ms: 2 / 0.0301 = 66.4 tuples/s, of 4 cores 2 at most
    machines = (Node("n0", "r", 4, {CPU: 400.0, MEMORY: 1000.0}),)
    pipeline = looping(1, 2, None, Arrivals.CONSTANT)
    found = simulate_scenario(Scenario(Cluster(machines), (pipeline,), 20.0, 5.0))
    assert found.pipelines["p"].sustained_rate == pytest.approx(2 / 0.03015, rel=0.01)
