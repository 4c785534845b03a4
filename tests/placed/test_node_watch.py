"""What a placed run hears of its nodes: that they go, come back, join later, and when it is asked to move back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.cluster.contract import ManagedNode
from penstock.cluster.simulated import SimulatedCluster
from penstock.engines.placed.monitoring import NodeWatch


def page(**states: str) -> list[ManagedNode]:
    """Nodes of two slots each, by whether they are ALIVE."""
    return [ManagedNode(name, alive=state == "ALIVE", slots=2) for name, state in states.items()]


@dataclass
class Hearer:
    """In place of a conductor."""

    events: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=lambda: ["n1", "n2"])
    asked: list[Collection[str]] = field(default_factory=list)
    home: bool = True

    def node_gone(self, node: str, _reason: str) -> None:
        self.events.append(f"-{node}")

    def node_back(self, node: str) -> None:
        self.events.append(f"+{node}")

    def is_home(self, gone: Collection[str]) -> bool:
        self.asked.append(gone)
        return self.home


def watch_of(hearer: Hearer) -> NodeWatch:
    return NodeWatch(
        cast("Any", hearer), SimulatedCluster(), lambda: hearer.nodes, hearer.is_home, hearer.events.append
    )


def test_a_node_that_joined_later_is_watched() -> None:
    hearer = Hearer()
    watch = watch_of(hearer)
    watch.look(page(n1="ALIVE", n2="ALIVE"))
    hearer.nodes.append("n3")
    watch.look(page(n1="ALIVE", n2="ALIVE", n3="ALIVE"))
    assert hearer.events == []
    watch.look(page(n1="ALIVE", n2="ALIVE", n3="DEAD"))
    assert hearer.events == ["-n3"]


def test_a_node_that_left_the_cluster_is_gone() -> None:
    hearer = Hearer()
    watch = watch_of(hearer)
    watch.look(page(n1="ALIVE", n2="ALIVE"))
    hearer.nodes.remove("n2")
    watch.look(page(n1="ALIVE", n2="DEAD"))
    assert hearer.events == ["-n2"]


def test_a_run_is_asked_until_it_is_home() -> None:
    """Another change may be under way when a node comes back, or other nodes be gone still."""
    hearer = Hearer(home=False)
    watch = watch_of(hearer)
    watch.look(page(n1="ALIVE", n2="ALIVE"))
    watch.look(page(n1="DEAD", n2="DEAD"))
    assert hearer.asked == []
    watch.look(page(n1="ALIVE", n2="DEAD"))
    watch.look(page(n1="ALIVE", n2="DEAD"))
    hearer.home = True
    watch.look(page(n1="ALIVE", n2="ALIVE"))
    watch.look(page(n1="ALIVE", n2="ALIVE"))
    assert hearer.asked == [{"n2"}, {"n2"}, set()]
    assert hearer.events == ["-n1", "-n2", "+n1", "+n2"]


def test_a_master_that_does_not_answer_is_told_once() -> None:
    hearer = Hearer()
    watch = watch_of(hearer)
    for answer in (None, None, page(n1="ALIVE", n2="ALIVE")):
        watch.look(answer)
    assert hearer.events == ["the Master does not answer; what flows goes on", "the Master is back"]
