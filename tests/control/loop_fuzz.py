"""Random requests, reports and times for a controller in this process: what has a valid shape, with values nobody would
choose. After every few requests a canary is submitted, which must be decided upon at once.

    python tests/control/loop_fuzz.py SEED REQUESTS [UNIT_SLOTS]
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch
from penstock.base.errors import PenstockError
from penstock.cluster.topology import Slot
from penstock.control.code_hooks import CodeSignals
from penstock.control.controller import Controller, fault_of
from penstock.control.core import messages as incoming
from penstock.control.core.records import (
    ControllerState,
    EngineName,
    NodePhase,
    NodeRecord,
    PipelineState,
    Policy,
    Rescheduling,
    ServiceTarget,
    Submission,
    Trigger,
)
from penstock.control.elasticity.memory import Following
from penstock.control.executors.attached_applications import AttachedReport, WithAttached
from penstock.control.executors.simulated import SimulatedExecutors, SimulatedNodes
from penstock.control.metrics import Metric
from penstock.control.pipeline_document import described
from penstock.control.registry import TRIGGER_KINDS
from penstock.control.sizing import ModelSizing
from penstock.control.store.store import Store
from penstock.control.user_code import UserCode
from penstock.modelling.library import reference_library
from penstock.service.bodies import fingerprint
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.control.core.messages import Observation, PipelineOrder

INF, NAN = float("inf"), float("nan")
# fmt: off
NAMES = ["a", "b", "c", "d", "..", ".", "x" * 200, "é" * 200, "a b", "a#0", "n1", "n1#0", "controller", "\u202eevil",
         "'; drop table pipelines;--", "订单" * 40, "😀" * 50]
RATES = [1e-7, 1e-6, 0.001, 0.5, 1.0, 7.5, 20.0, 100.0, 1e4, 1e6, 1e8, 1e9, 1e12, 1e13, 5e-324, 1.7e308, INF, NAN]
WILD = [-1.7e308, -1.0, -0.0, 0.0, 5e-324, 1e-300, 1e-9, 0.3, 0.5, 0.99, 1.0, 2.0, 50.0, 1e6, 1e12, 1e300, 1.7e308,
        INF, -INF, NAN]
UNITS = [-1, 0, 1, 1, 2, 3, 8, 16, 17, 1000, 999_999, 1_000_000, 1_000_001, 2**62, 2**64]
LOADS = ["10", "33", "0.000001", "1e6", "1e8", "1e12", "steps:1x1", "steps:1e-6x1e6,1e9x0", "on-off:1e6,1e-6,1e9",
         "on-off:0.000001,1e9,1e-6", "steps:" + ",".join(["1x1", "1x2"] * 300), "nan", "inf", "", "x" * 20_000,
         "trace:/x", "steps:1x0,1e9x1e12", "-1", "0", "1_0", "\u0661\u0660"]
POLICIES = ["isolation", "static-priority", "static-priority:printed=true", "dynamic-priority", "max-min",
            "fair-max-min", "fair-priority", "dominant-fair", "shared", "shared",
            "fair-priority:ratio=1e6,patience=0.001", "fair-priority:patience=5e-324", "fair-max-min:patience=1e-3",
            "dominant-fair:patience=1e9", "nope", "shared:x=1"]
USUAL: list[tuple[list[Any], list[Any]]] = [
    (RATES, [1e-6, 0.5, 7.5, 20.0, 100.0, 1e4, 1e8, 1e12]),
    (WILD, [0.1, 0.3, 0.5, 0.99, 1.0]),
    (UNITS, [1, 1, 1, 2, 3, 8, 1000, 1_000_000]),
    (LOADS, ["10", "33", "200", "1e6", "1e8", "1e12", "steps:1e-6x1e6,1e9x0", "steps:5x1,5x1e9"]),
]
CODE = ["sys:exit", "builtins:len", "builtins:bool", "math:isnan", "no.such:thing", "os:abort", "a:b:c", ".x:y", ":"]
# fmt: on


@dataclass
class Noise:
    """Executors that add reports nobody should make."""

    others: WithAttached
    pending: list[Observation] = field(default_factory=list)

    def want(self, orders: Iterable[PipelineOrder], fence: int) -> None:
        self.others.want(orders, fence)

    def observe(self, now: float) -> list[Observation]:
        noise, self.pending = self.pending, []
        return [*self.others.observe(now), *noise]

    def close(self) -> None:
        self.others.close()


class LoopFuzz:
    def __init__(self, seed: int, folder: Path, unit_slots: int = 1, code: UserCode | None = None) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - the same requests every time
        self.folder = folder
        self.unit_slots = unit_slots
        self.clock, self.wall = ManualClock(1_000_000.0), ManualClock(1.7e9)
        self.sizing = ModelSizing(reference_library(), unit_slots)
        self.nodes = SimulatedNodes(6, 2 * unit_slots)
        self.signals = CodeSignals(code) if code is not None else None
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.quarantined: dict[str, str] = {}
        self.slowest = 0.0
        self.start(ControllerState(policy=Policy("fair-priority"), unit_slots=unit_slots))

    def start(self, first: ControllerState) -> None:
        self.simulated = SimulatedExecutors(self.sizing, self.unit_slots, now=self.clock.time)
        self.attached = WithAttached(self.simulated, self.unit_slots, self.wall.now)
        self.noise = Noise(self.attached)
        store = Store(f"sqlite:///{self.folder / 'store.db'}")
        self.controller = Controller(
            store, self.noise, self.nodes, self.sizing, self.clock, self.wall, first, self.signals
        )
        self.controller.look()

    def restart(self) -> None:
        self.controller.close()
        self.start(ControllerState())

    # values

    def maybe(self, values: dict[str, Any], name: str, choices: Any, chance: float = 0.4) -> None:
        if self.draw.random() < chance:
            values[name] = choices() if callable(choices) else self.pick(choices)

    def pick(self, choices: list[Any]) -> Any:
        """Mostly something that may be: what is refused at once does no harm."""
        usual = next((usual for wild, usual in USUAL if wild is choices), choices)
        return self.draw.choice(choices if self.draw.random() < 0.15 else usual)

    def target(self) -> ServiceTarget:
        values: dict[str, Any] = {}
        self.maybe(values, "rate", RATES, 0.7)
        self.maybe(values, "latency_ms", WILD)
        return ServiceTarget(**values)

    def elastic(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in ("catch_up_seconds", "shrink_after_seconds", "worth_seconds", "ahead_seconds", "decide_seconds",
                     "look_back_seconds", "memory_seconds", "unmeasured_seconds", "shrink_most", "shrink_least",
                     "grow_least", "min_utilisation", "max_utilisation", "first_utilisation", "no_effect"):  # fmt: skip
            self.maybe(values, name, WILD, 0.12)
        for name in ("enabled", "advise_only"):
            self.maybe(values, name, [True, False, None, 1, "x"], 0.05)
        self.maybe(values, "excluded_hours", [[], [1, 2], list(range(24)), [24], [1.5], "12", [[1]]], 0.1)
        self.maybe(values, "forecast", ["seasonal", "last-value", "none", "none", "seasonal:x=1", ""], 0.1)
        self.maybe(values, "veto", CODE if self.signals else [""], 0.1)
        self.maybe(values, "odd", [1], 0.02)
        return values

    def document(self) -> Any:
        if self.draw.random() < 0.6:
            return self.draw.choice(["linear", "diamond", "star"])
        operator: dict[str, Any] = {"model": self.draw.choice(["pi", "parse_xml", "batch_file_write"])}
        self.maybe(operator, "threads", [1, 10, 100_000, 10**9], 0.3)
        self.maybe(operator, "cpu", [5e-324, 1.0, 100.0], 0.3)
        stream: dict[str, Any] = {"from": "x", "to": "o"}
        self.maybe(stream, "selectivity", [5e-324, 1e-30, 0.5, 3, 1e6, 1e15, 1e300, 1.7e308], 0.6)
        self.maybe(stream, "constant", [1e-300, 1.0, 1e300], 0.2)
        return {
            "name": "drawn",
            "operators": {"s": {"kind": "source"}, "x": operator, "y": {"model": "pi"}, "o": {"kind": "sink"}},
            "streams": [{"from": "s", "to": "x"}, {**stream, "to": "y"}, {**stream, "from": "y"}],
        }

    def submission(self, name: str) -> Submission:
        given = self.document()
        definition = described(given)
        values: dict[str, Any] = {"target": self.target()}
        self.maybe(values, "desired", UNITS)
        self.maybe(values, "minimum", UNITS, 0.2)
        self.maybe(values, "maximum", UNITS, 0.2)
        self.maybe(values, "priority", [1, 1, 2, 3, 1000, 1001, 2**64], 0.3)
        self.maybe(values, "engine", list(EngineName), 0.5)
        self.maybe(values, "load", LOADS)
        self.maybe(values, "elastic", self.elastic)
        return Submission(name, given, definition, fingerprint(definition), **values)

    def trigger(self, number: int = 0) -> Trigger:
        kinds = TRIGGER_KINDS.names() if self.signals else [kind for kind in TRIGGER_KINDS.names() if kind != "code"]
        values: dict[str, Any] = {}
        self.maybe(values, "above", WILD, 0.9)
        for name in ("below", "share", "for_seconds"):
            self.maybe(values, name, WILD, 0.3)
        self.maybe(values, "priority", [0, 1, 2, 1000, 2**64])
        self.maybe(values, "enabled", [False], 0.1)
        kind = self.draw.choice(kinds)
        return Trigger(number, kind, field="x", code=self.draw.choice(CODE) if kind == "code" else "", **values)

    # what happens

    def name(self) -> str:
        known = [name for name in self.controller.state.pipelines if not name.startswith("canary")]
        return self.draw.choice(known) if known and self.draw.random() < 0.8 else self.draw.choice(NAMES)

    def request(self) -> incoming.Request:  # noqa: PLR0911 - one for each kind
        draw, name, kind = self.draw, self.name(), self.draw.random()
        if kind < 0.3:
            return incoming.Submit(self.submission(draw.choice(NAMES)))
        if kind < 0.6:
            values: dict[str, Any] = {}
            self.maybe(values, "target", self.target)
            for field_name in ("minimum", "maximum"):
                self.maybe(values, field_name, UNITS, 0.2)
            self.maybe(values, "priority", [1, 2, 1000, 1000, 2**64], 0.2)
            self.maybe(values, "paused", [True, False, False], 0.2)
            self.maybe(values, "load", LOADS)
            self.maybe(values, "elastic", self.elastic)
            return incoming.Amend(name, **values)
        if kind < 0.68:
            return incoming.AddTrigger(name, self.trigger())
        if kind < 0.72:
            return incoming.EditTrigger(name, self.trigger(draw.randrange(1, 30)))
        if kind < 0.76:
            return incoming.SwitchTrigger(name, draw.randrange(1, 30), draw.random() < 0.5)
        if kind < 0.84:
            return incoming.Kill(name)
        if kind < 0.93:
            rescheduling = draw.choice(list(Rescheduling))
            level = draw.choice([1, 2, 3, 1000, 1000, 0, 2**64])
            return incoming.SetPolicy(Policy(draw.choice(POLICIES), rescheduling, level))
        if kind < 0.96:
            return incoming.RemoveTrigger(name, draw.randrange(1, 30))
        return incoming.ReleaseNode(draw.choice([*self.controller.state.nodes, "zz"]))

    def report(self) -> None:
        """An attached application says what it likes."""
        name, draw = self.name(), self.draw
        values = {str(metric): draw.choice(WILD) for metric in Metric if draw.random() < 0.2}
        advice = {"limit": "x" * 500, "what_to_do": "\x1b]0;", "evidence": [NAN, "y"] * draw.randrange(3)}
        report = AttachedReport(
            draw.choice([-1, 0, 1, 5, 10**6, 2**64]),
            draw.choice(UNITS),
            draw.choice(["", "x", "\ud800", "y" * 2000]),
            values,
            draw.choice([-1, 0, 1, 2, 3, 4, 5, 2**53]),
            draw.choice([None, {"n1": 1}, {"n1": 10**6, "zz": -1}]),
            advice if draw.random() < 0.5 else {},
        )
        self.attached.report(name, report)

    def make_noise(self) -> None:
        name, draw = self.name(), self.draw
        record = self.controller.state.pipelines.get(name)
        incarnation, serial = (record.incarnation, record.serial) if record else (0, 0)
        odd: list[Any] = [*WILD, None, "x", [], 2**1024]
        values = {str(metric): draw.choice(odd if draw.random() < 0.1 else WILD) for metric in Metric}
        parts = (
            incoming.PartReading(draw.choice(["x", None]), draw.choice([None, Slot("n1", 0)]), values),
            incoming.PartReading(None, None, values, "topic/1"),
        )
        wild = draw.choice(WILD)
        capacity = MappingProxyType({"cpu": wild, "memory_mb": draw.choice(WILD)})
        odd_reports: list[Observation] = [
            incoming.Readings(name, values, {1: wild, 2: 1.0}, parts),
            incoming.Readings(name, values),
            incoming.Started(name, incarnation),
            incoming.Drained(name, incarnation),
            incoming.Died(name, incarnation, "\ud800"),
            incoming.FirstTuple(name, serial),
            incoming.Holds(name, serial - 1, (Slot("zz", 2**64), Slot("n1", -1))),
            incoming.Asks(name, draw.choice([*UNITS, -(2**64)]), "why", {"x": NAN, "y": 2**64}),
            incoming.NodeLost(f"n{draw.randrange(1, 9)}"),
            incoming.NodeJoined(
                NodeRecord("odd", "r", draw.choice([0, 2 * self.unit_slots, 2**64]), NodePhase.JOINING, 0.0, capacity)
            ),
        ]
        self.noise.pending.append(draw.choice(odd_reports))

    def let_time_pass(self) -> None:
        jump = self.draw.random()
        self.clock.time += self.draw.choice([0.2, 0.5, 1, 5, 11, 61])
        self.wall.time += 1
        if jump < 0.02:
            self.clock.time += self.draw.choice([3700, -5, -4000, 90_000, -90_000])
        elif jump < 0.04:
            self.wall.time += self.draw.choice([-3600, 3600, -1e8, 1e8])
        elif jump < 0.06:
            node = f"n{self.draw.randrange(1, 9)}"
            self.nodes.lose(node)
            self.simulated.lose_node(node)
        elif jump < 0.09:
            self.controller.add_nodes(self.draw.choice([1, 2]))
        elif jump < 0.12:
            self.simulated.kill_driver(self.name())
        self.look()

    def look(self) -> None:
        took = Stopwatch()
        self.controller.look()
        self.slowest = max(self.slowest, took.seconds())
        self.quarantined.update(self.controller.health().quarantined)

    def act(self) -> None:
        """One request; what is refused is refused with an error of ours."""
        kind = self.draw.random()
        try:
            if kind < 0.15:
                self.report()
            elif kind < 0.3:
                self.make_noise()
            else:
                self.controller.ask(self.request())
            self.counts["done"] += 1
        except PenstockError as error:
            self.counts["refused"] += 1
            self.refusals[str(error)[:40]] += 1

    # what must hold

    def check_canary(self, number: int) -> None:
        """Somebody new is decided upon, with a share if there is one for a single unit of the highest priority."""
        name = f"canary{number}"
        self.noise.pending.clear()
        if self.controller.state.capacity < 4:
            self.controller.add_nodes(2)
            self.clock.time += 6
            self.look()
        self.controller.ask(incoming.SetPolicy(Policy(self.draw.choice(["fair-priority", "fair-max-min", "shared"]))))
        self.controller.ask(
            incoming.Submit(Submission(name, "linear", described("linear"), "f", desired=1, priority=1))
        )
        self.look()
        record = self.controller.state.pipelines[name]
        assert record.state in {PipelineState.STARTING, PipelineState.WAITING}, record
        assert record.assigned or record.waiting, record
        self.controller.ask(incoming.Kill(name))
        for _ in range(3):
            self.clock.time += 2
            self.look()
        assert self.controller.state.pipelines[name].state is PipelineState.KILLED
        health = self.controller.health()
        assert health.ok, health
        self.check_state()

    def check_state(self) -> None:
        state = self.controller.state
        owners: dict[Slot, str] = {}
        for record in state.pipelines.values():
            for slot in record.may_hold:
                assert owners.setdefault(slot, record.name) == record.name or slot.node == "zz", (slot, record.name)
        for slot, holders in self.simulated.held().items():
            assert len(holders) == 1, (slot, holders)
        stored = self.controller.store.load()
        assert stored is not None
        assert {name: kept(record) for name, record in stored.pipelines.items()} == {
            name: kept(record) for name, record in state.pipelines.items()
        }
        assert replace(stored, pipelines={}) == replace(state, pipelines={})

    def run(self, requests: int) -> None:
        for number in range(requests):
            self.act()
            if number % 3 == 0:
                self.let_time_pass()
            if number % 20 == 19:
                self.check_canary(number)
            if number % 200 == 199:
                self.restart()
        self.check_canary(requests)


def kept(record: Any) -> Any:
    record = replace(record, readings={}, following=Following())
    assert fault_of((record.needed, record.served.allocated, record.served.needed)) is None
    return record


def main() -> None:
    seed, requests = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        code = UserCode(seconds=1.0)
        fuzz = LoopFuzz(seed, Path(folder), int(sys.argv[3]) if len(sys.argv) > 3 else 1, code)
        took = Stopwatch()
        try:
            fuzz.run(requests)
        finally:
            print(seed, dict(fuzz.counts), f"{took.seconds():.0f} s, slowest look {fuzz.slowest:.2f} s")
            for subject, why in fuzz.quarantined.items():
                print("  set aside:", subject[:60], why)
            code.close()


if __name__ == "__main__":
    main()
