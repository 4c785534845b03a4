"""Providers that fail, hang and lie; budgets; nodes that come and go."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from penstock.control.contracts import ProviderError
from penstock.control.core.messages import NodeJoined, NodeLost
from penstock.control.core.records import ControllerState, NodePhase
from penstock.control.node_providers import CommandProvider, ObservedProvider, ProviderCommands
from penstock.control.provisioning import Budget, ProvisioningMemory, ProvisioningOptions, provision
from penstock.testing.controller import ControllerBench as Bench
from penstock.testing.controller import RatePerUnit as PerUnit
from penstock.testing.controller import asked, cluster, node

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import json, pathlib, sys
store = pathlib.Path(sys.argv[1]); what = sys.argv[2]
names = json.loads(store.read_text()) if store.exists() else []
if what == "acquire": names.append(sys.argv[3])
if what == "release": names.remove(sys.argv[3])
store.write_text(json.dumps(names))
if what == "list": print(json.dumps([{"name": name, "slots": 2} for name in names]))
"""


def commands(folder: Path, **changed: object) -> ProviderCommands:
    script, store = folder / "cloud.py", folder / "nodes.json"
    script.write_text(SCRIPT)
    base = [sys.executable, str(script), str(store)]
    given = {"acquire": [*base, "acquire", "{name}"], "release": [*base, "release", "{name}"], "list": [*base, "list"]}
    return ProviderCommands.model_validate({**given, "slots": 2, "price": 0.5, **changed})


class TestCommands:
    def test_nodes_come_and_go(self, tmp_path: Path) -> None:
        provider = CommandProvider(commands(tmp_path))
        made = provider.acquire(2, None)
        assert [found.name for found in made] == ["node-1", "node-2"]
        assert [(found.name, found.slots, found.price) for found in provider.list()] == [
            ("node-1", 2, 0.5),
            ("node-2", 2, 0.5),
        ]
        provider.release("node-1")
        assert [found.name for found in provider.list()] == ["node-2"]
        # a name that is there is not given again, whoever made it
        assert CommandProvider(commands(tmp_path)).acquire(1, None)[0].name == "node-1"

    @pytest.mark.parametrize(
        ("code", "why"),
        [
            ("import sys; sys.exit('no money')", "list ended with 1: no money"),
            ("import time; time.sleep(60)", "list took more than 1 s"),
            ("print('hello')", "expected a JSON array, found 'hello'$"),
            ("import sys; sys.exit(3)", "list ended with 3: it said nothing$"),
            ("print('{}')", "list: nodes"),
            ('print(\'[{"name": "a"}, {"name": "a"}]\')', "it names a node twice"),
            ('print(\'[{"name": "a", "slots": -3}]\')', "greater than or equal to 1, found -3"),
        ],
    )
    def test_what_a_command_does_wrong_is_said(self, tmp_path: Path, code: str, why: str) -> None:
        provider = CommandProvider(
            commands(tmp_path, list=[sys.executable, "-c", code], timeout_seconds=1.0 if "sleep" in code else 60.0)
        )
        with pytest.raises(ProviderError, match=why.replace("(", "\\(")):
            provider.list()

    def test_no_shell_reads_a_command(self, tmp_path: Path) -> None:
        shown = tmp_path / "shown"
        words = [
            sys.executable,
            "-c",
            f"import sys; open({str(shown)!r}, 'w').write(sys.argv[1])",
            "{name}; rm -rf {size}",
        ]
        CommandProvider(commands(tmp_path, acquire=words)).acquire(1, "$(id)")
        assert shown.read_text() == "node-1; rm -rf $(id)"


class Liar:
    """Lists what nobody asked for, and goes on listing what was released."""

    def __init__(self) -> None:
        self.names = ["a", "b"]
        self.fails = False

    def acquire(self, count: int, size: str | None) -> list[object]:
        return []

    def release(self, name: str) -> None:
        raise ProviderError("it will not go")

    def list(self) -> list[object]:
        from penstock.control.contracts import ProvidedNode

        if self.fails:
            raise ProviderError("no answer")
        return [ProvidedNode(name, 1) for name in self.names]


class TestObserved:
    def test_lies_and_silence_change_nothing(self) -> None:
        liar = Liar()
        nodes = ObservedProvider(liar)  # type: ignore[arg-type]
        assert [type(found) for found in nodes.observe(0.0)] == [NodeJoined, NodeJoined]
        liar.names.append("stranger")
        liar.fails = True
        nodes.look()
        assert nodes.trouble == "no answer"
        liar.fails = False
        nodes.look()
        assert nodes.observe(0.0) == []
        nodes.release("a")
        nodes.look()
        assert nodes.observe(0.0) == []
        liar.names.remove("b")
        nodes.look()
        assert nodes.observe(0.0) == [NodeLost("b")]


class TestBudget:
    @pytest.mark.parametrize(
        ("budget", "have", "asked_for", "allowed"),
        [
            (Budget(), [1.0, 1.0], 5, 5),
            (Budget(nodes=4), [None, None], 5, 2),
            (Budget(nodes=1), [None, None], 5, 0),
            # 2 a hour, 1 is spent, a node is 0.3: three more
            (Budget(price_per_hour=2.0), [0.5, 0.5], 5, 3),
            (Budget(nodes=3, price_per_hour=2.0), [0.5, 0.5], 5, 1),
        ],
    )
    def test_it_is_never_exceeded(self, budget: Budget, have: list[float | None], asked_for: int, allowed: int) -> None:
        assert budget.allows(have, asked_for, 0.3) == allowed


class TestProvisioning:
    def wanting(self, units: int) -> ControllerState:
        bench = Bench(cluster(4), PerUnit(10.0))
        bench.tell(asked("a", units))
        bench.run(10)
        return bench.state

    def test_a_shortage_that_lasts_brings_nodes_within_the_budget(self) -> None:
        state, options = self.wanting(9), ProvisioningOptions(Budget(nodes=7))
        memory, first = provision(ProvisioningMemory(), state, options, 1000.0)
        assert not first.acquire
        _, later = provision(memory, state, options, 1031.0)
        assert later.acquire == 3
        assert later.refused == "9 units are wanted and 4 are there: 5 more nodes are needed and the budget allows 3"

    def test_while_some_are_coming_no_more_are_asked_for(self) -> None:
        state = self.wanting(9)
        coming = replace(node("n9"), state=NodePhase.JOINING)
        state = replace(state, nodes=MappingProxyType({**state.nodes, "n9": coming}))
        memory, _ = provision(ProvisioningMemory(), state, ProvisioningOptions(), 1000.0)
        assert not provision(memory, state, ProvisioningOptions(), 1100.0)[1].acquire

    def test_a_node_that_did_not_come_is_not_asked_for_again_at_once(self) -> None:
        state = self.wanting(9)
        gone = replace(node("n9"), state=NodePhase.GONE, since=1000.0)
        state = replace(state, nodes=MappingProxyType({**state.nodes, "n9": gone}))
        memory, _ = provision(ProvisioningMemory(), state, ProvisioningOptions(), 1000.0)
        assert not provision(memory, state, ProvisioningOptions(), 1100.0)[1].acquire
        later, _ = provision(memory, state, ProvisioningOptions(), 1301.0)
        assert provision(later, state, ProvisioningOptions(), 1602.0)[1].acquire

    def test_idle_nodes_go_but_not_all(self) -> None:
        state, options = self.wanting(1), ProvisioningOptions(keep=2)
        memory, _ = provision(ProvisioningMemory(), state, options, 1000.0)
        _, later = provision(memory, state, options, 1600.0)
        assert len(later.release) == 2
        assert not set(later.release) & {slot.node for slot in state.pipelines["a"].held}
