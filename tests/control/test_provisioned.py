"""Nodes come and go by themselves: simulated ones, and those of commands that fail, hang and lie."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.cli.main import run
from penstock.control.controller import Controller
from penstock.control.core.messages import Kill
from penstock.control.core.records import ControllerState, NodePhase
from penstock.control.errors import ConflictError
from penstock.control.executors.simulated import SimulatedExecutors, SimulatedNodes
from penstock.control.node_providers import CommandProvider, ObservedProvider, ProviderCommands
from penstock.control.provisioning import Budget, ProvisioningOptions
from penstock.control.store.store import Store
from penstock.testing import ManualClock
from penstock.testing.controller import RatePerUnit as PerUnit
from penstock.testing.controller import asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CLOUD = """
import json, pathlib, sys
store = pathlib.Path(sys.argv[1]); what = sys.argv[2]
names = json.loads(store.read_text()) if store.exists() else []
if what == "acquire": names.append(sys.argv[3])
if what == "release": names.remove(sys.argv[3])
if what == "list": print(json.dumps([{"name": name} for name in names]))
else: store.write_text(json.dumps(names))
"""


def cloud(folder: Path, **changed: object) -> dict[str, Any]:
    """What the file of a provider says: nodes that are lines of a file."""
    script = folder / "cloud.py"
    script.write_text(CLOUD)
    base = [sys.executable, str(script), str(folder / "nodes.json")]
    own = {"acquire": [*base, "acquire", "{name}"], "release": [*base, "release", "{name}"], "list": [*base, "list"]}
    return {**own, "price": 0.5, **changed}


class Run:
    """A controller over simulated pipelines that is looked after every second of its own time."""

    def __init__(self, folder: Path, nodes: Any, budget: Budget, keep: int = 1) -> None:
        self.clock, self.nodes, self.most = ManualClock(1000.0), nodes, 0
        self.reasons: list[str] = []
        self.controller = Controller(
            Store(f"sqlite:///{folder / 'store.db'}"),
            SimulatedExecutors(PerUnit(), 1),
            nodes,
            PerUnit(),
            self.clock,
            ManualClock(50.0),
            ControllerState(),
            provisioning=ProvisioningOptions(budget, keep=keep, node_price=0.5, idle_seconds=60.0),
        )
        self.controller.watch(lambda made: self.reasons.extend(event.why for event in made.events))

    def go(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.time += 1.0
            self.controller.look()
            thread = self.controller._acquiring
            if thread is not None:
                thread.join(20)
            if isinstance(self.nodes, ObservedProvider) and self.clock.time % 5 == 0:
                self.nodes.look()
            self.most = max(self.most, len(self.there()))

    def there(self) -> list[str]:
        return [name for name, node in self.controller.state.nodes.items() if node.state is not NodePhase.GONE]


class TestByThemselves:
    def test_nodes_come_within_the_budget_and_go_when_idle(self, tmp_path: Path) -> None:
        world = Run(tmp_path, SimulatedNodes(2, 1, price=0.5), Budget(nodes=5), keep=2)
        world.go(2)
        world.controller.ask(asked("a", 9, 1, load="5"))
        world.go(60)
        assert len(world.there()) == world.most == 5
        assert world.controller.state.units(world.controller.state.pipelines["a"].held) == 5
        assert any("7 more nodes are needed and the budget allows 3" in why for why in world.reasons)
        with pytest.raises(ConflictError, match="2 more nodes: the budget allows 0"):
            world.controller.add_nodes(2)
        world.controller.ask(Kill("a"))
        world.go(200)
        assert len(world.there()) == 2
        assert any(why == "idle for 60 s" for why in world.reasons)

    def test_a_price_is_not_exceeded(self, tmp_path: Path) -> None:
        world = Run(tmp_path, SimulatedNodes(1, 1, price=0.5), Budget(price_per_hour=1.7))
        world.go(2)
        world.controller.ask(asked("a", 9, 1, load="5"))
        world.go(60)
        assert len(world.there()) == world.most == 3

    def test_a_node_that_does_not_come_is_given_up_and_that_is_said(self, tmp_path: Path) -> None:
        world = Run(tmp_path, SimulatedNodes(1, 1, join_seconds=1e9), Budget(nodes=2))
        world.nodes._joins["n1"] = 0.0
        world.go(2)
        world.controller.ask(asked("a", 2, 1, load="5"))
        world.go(300)
        assert world.there() == ["n1"]
        assert "did not come within 120 s" in world.reasons


class TestCommands:
    def provided(self, folder: Path, **changed: object) -> ObservedProvider:
        return ObservedProvider(CommandProvider(ProviderCommands.model_validate(cloud(folder, **changed))), ())

    def test_they_bring_nodes_and_take_them_away(self, tmp_path: Path) -> None:
        world = Run(tmp_path, self.provided(tmp_path), Budget(nodes=3))
        world.controller.add_nodes(1)
        world.go(10)
        world.controller.ask(asked("a", 3, 1, load="5"))
        world.go(60)
        assert json.loads((tmp_path / "nodes.json").read_text()) == world.there() == ["node-1", "node-2", "node-3"]
        world.controller.ask(Kill("a"))
        world.go(120)
        assert len(json.loads((tmp_path / "nodes.json").read_text())) == len(world.there()) == 1

    @pytest.mark.parametrize(
        ("acquire", "why"),
        [
            ("import sys; sys.exit('no money')", "acquire ended with 1: no money"),
            ("import time; time.sleep(60)", "acquire took more than 1 s"),
        ],
    )
    def test_one_that_fails_or_hangs_changes_nothing_and_is_said(self, tmp_path: Path, acquire: str, why: str) -> None:
        (tmp_path / "nodes.json").write_text('["node-1"]')
        changed = {"acquire": [sys.executable, "-c", acquire], "timeout_seconds": 1.0}
        provider = CommandProvider(ProviderCommands.model_validate(cloud(tmp_path, **changed)))
        world = Run(tmp_path, ObservedProvider(provider, ["node-1"]), Budget(nodes=3))
        world.go(5)
        world.controller.ask(asked("a", 3, 1, load="5"))
        world.go(100)
        assert world.there() == ["node-1"]
        assert sum(why in reason for reason in world.reasons) == 1

    def test_a_node_that_was_released_and_stays_is_told_again_and_counts(self, tmp_path: Path) -> None:
        liar = self.provided(tmp_path, release=[sys.executable, "-c", "pass"])
        world = Run(tmp_path, liar, Budget(nodes=2))
        world.controller.add_nodes(2)
        world.go(10)
        world.controller.release_node("node-1")
        world.go(20)
        assert world.there() == ["node-2"]
        assert liar.lingering() == [0.5]
        with pytest.raises(ConflictError, match="1 more nodes: the budget allows 0"):
            world.controller.add_nodes(1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    yield tmp_path
    penstock.down()


def until(true: Callable[[], object], seconds: float = 40.0) -> None:
    watch = Stopwatch()
    while not true():
        assert watch.seconds() < seconds, "it did not come true"
        pause(0.2)


def test_up_with_a_command_that_brings_nodes(folder: Path) -> None:
    (folder / "cloud.json").write_text(json.dumps(cloud(folder)))
    command = f"command:{folder / 'cloud.json'}"
    assert run(["up", "--simulated", "--nodes", "1", "--provider", command, "--budget", "2", "--speed", "20"]) == 0
    with penstock.connect() as client:
        until(lambda: [node["state"] for node in client.nodes()] == ["alive"])
        client.submit("a", "linear", desired=5, load=5)
        until(lambda: client.show("a")["held"] == 2)
        assert [node["price"] for node in client.nodes()] == [0.5, 0.5]
        until(lambda: any("the budget allows 1" in (event["why"] or "") for event in client.events()))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"provider": "cloud"}, "unknown node provider 'cloud'; known: local, command"),
        ({"provider": "command:{file}", "slots": 2}, "it says slots and price"),
        ({"provider": "command:{file}", "simulated": False}, "nodes from elsewhere are for simulated pipelines so far"),
        ({"nodes": 3, "budget": 2}, "expected 3 \\(the nodes to begin with\\) to 100000, found 2"),
        ({"hourly_budget": 2.0}, "nodes have no price"),
        ({"hourly_budget": 2.0, "price": 1.5}, "2 nodes cost 3 an hour already"),
        ({"budget": 3, "idle_seconds": 0.0}, "expected a number above 0, found 0"),
    ],
)
def test_what_up_refuses(folder: Path, given: dict[str, Any], why: str) -> None:
    (folder / "cloud.json").write_text(json.dumps(cloud(folder)))
    if "provider" in given:
        given = {**given, "provider": given["provider"].replace("{file}", str(folder / "cloud.json"))}
    with pytest.raises(penstock.BadInputError, match=why):
        penstock.up(**{"simulated": True, "folder": folder, **given})
