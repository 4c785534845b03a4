"""The loop survives: whoever makes a step raise is set aside, everybody else is decided upon, and it is said."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

from penstock.base.clock import Stopwatch
from penstock.control import health as health_module
from penstock.control.controller import Controller, without_old_readings
from penstock.control.core import division
from penstock.control.core import division as culprits
from penstock.control.core import messages as incoming
from penstock.control.core import report_handlers as reports
from penstock.control.core.records import EngineName, NodePhase, PipelineState, Policy, ServiceTarget, Trigger
from penstock.control.core.step import guarded_step
from penstock.control.core.turn import Blamable, Culprit
from penstock.control.errors import ConflictError, FieldError, StoreError
from penstock.control.executors.simulated import SimulatedExecutors, SimulatedNodes
from penstock.control.store import schema
from penstock.control.store.lease import LEASE_SECONDS, LostLeaseError
from penstock.control.store.store import Store
from penstock.planning.registry import SHARERS
from penstock.testing import ManualClock
from penstock.testing.controller import ControllerBench as Bench
from penstock.testing.controller import RatePerUnit as PerUnit
from penstock.testing.controller import asked, cluster, node

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.control.core.messages import Observation
    from penstock.control.core.records import ControllerState, Submission

SOON = 20.0
"""Seconds a loop may take to do what it is waited for."""


@dataclass(frozen=True)
class Raising(PerUnit):
    """Models that raise for one pipeline."""

    bad: str = "bad"
    error: type[BaseException] = ZeroDivisionError

    def units_for(self, submission: Submission, rate: float) -> int | None:
        if submission.name == self.bad and rate != 1.0:
            raise self.error("no units")
        return super().units_for(submission, rate)


@dataclass
class Watched:
    """Executors and nodes that count how often they are asked, and may be broken."""

    others: Any
    looks: int = 0
    wants: int = 0
    broken: set[str] = field(default_factory=set)
    more: list[Observation] = field(default_factory=list)

    def observe(self, now: float) -> list[Observation]:
        self.looks += 1
        if "observe" in self.broken:
            raise RuntimeError("cannot look")
        more, self.more = self.more, []
        return [*self.others.observe(now), *more]

    def want(self, orders: Any, fence: int) -> None:
        self.wants += 1
        if "want" in self.broken:
            raise OSError("File name too long")
        self.others.want(orders, fence)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.others, name)


@dataclass
class Made:
    controller: Controller
    executors: Watched
    nodes: Watched
    clock: ManualClock
    wall: ManualClock

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds * 2)):
            self.clock.time += 0.5
            self.controller.look()

    def at(self, name: str) -> PipelineState:
        return self.controller.state.pipelines[name].state

    def events(self, kind: str) -> list[str]:
        rows = self.controller.store.read(select(schema.events).order_by(schema.events.c.id))
        return [row["why"] for row in rows if row["kind"] == kind]


def made(
    folder: Path, sizing: Any = None, state: ControllerState | None = None, clock: float = 1000.0, nodes: int = 4
) -> Made:
    sizing = sizing or PerUnit()
    first = state or cluster(nodes)
    executors = Watched(SimulatedExecutors(sizing, first.unit_slots, now=clock))
    simulated = Watched(SimulatedNodes(0, first.unit_slots))
    told, wall = ManualClock(clock), ManualClock(50.0)
    store = Store(f"sqlite:///{folder / 'store.db'}")
    controller = Controller(store, executors, simulated, sizing, told, wall, first, look_seconds=0.01)
    return Made(controller, executors, simulated, told, wall)


def waited_for(condition: Any) -> bool:
    watch, pause = Stopwatch(), threading.Event()
    while not condition() and watch.seconds() < SOON:
        pause.wait(0.01)
    return bool(condition())


def readings(name: str, **values: Any) -> incoming.Readings:
    return incoming.Readings(name, values)


class TestSetAside:
    @pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyError, RecursionError])
    def test_a_pipeline_that_raises_fails_and_the_others_are_decided_upon(self, error: type[BaseException]) -> None:
        bench = Bench(cluster(4), PerUnit())
        bench.tell(asked("bad", rate=20.0), asked("good", desired=1))
        bench.run(20)
        broken = Raising(error=error)
        step = guarded_step(bench.state, [asked("new", desired=1), incoming.TimePassed()], bench.now + 11, broken)
        after = step.outcome.state
        bad, before = after.pipelines["bad"], bench["bad"]
        assert bad.state is PipelineState.FAILED
        assert "no units" in str(bad.waiting)
        # its slots are free only when its driver has said so
        assert bad.may_hold == before.may_hold != frozenset()
        assert after.pipelines["good"].state is PipelineState.ACTIVE
        assert after.pipelines["new"].assigned
        assert [aside.culprit for aside in step.aside] == [Culprit(Blamable.PIPELINE, "bad")]
        assert any(event.subject == "bad" and event.after == "failed" for event in step.outcome.events)

    def test_a_slot_of_a_failed_pipeline_is_given_to_nobody_before_its_driver_is_gone(self) -> None:
        bench = Bench(cluster(1), PerUnit())
        bench.tell(asked("bad", desired=1), asked("next", desired=1))
        bench.run(20)
        held = bench["bad"].may_hold
        assert held
        bench.tell(incoming.Quarantine("bad", "it raises"))
        assert bench["bad"].may_hold == held
        assert not bench["next"].requested
        bench.run(20)
        assert not bench["bad"].may_hold
        assert bench.at("next") is PipelineState.ACTIVE

    def test_one_that_was_set_aside_can_be_killed_and_submitted_again(self) -> None:
        bench = Bench(cluster(2), PerUnit())
        bench.tell(asked("bad", desired=1))
        bench.run(10)
        bench.tell(incoming.Quarantine("bad", "it raises"))
        bench.tell(incoming.Kill("bad"))
        bench.run(10)
        assert bench.at("bad") is PipelineState.KILLED
        bench.tell(asked("bad", desired=1))
        bench.run(10)
        assert bench.at("bad") is PipelineState.ACTIVE

    def test_readings_that_raise_are_left_out_and_their_pipeline_runs_on(self, tmp_path: Path) -> None:
        there = made(tmp_path)
        there.controller.ask(asked("a", desired=1))
        there.run(10)
        for _ in range(3):
            there.executors.more.append(readings("a", rate=1.0, offered_rate="much", batch_cost_s="x"))
            there.run(1)
        assert there.at("a") is PipelineState.ACTIVE
        assert len(there.events("set aside")) == 1
        assert [subject for subject, _ in there.controller.health().quarantined] == ["a report of 'a'"]

    def test_a_trigger_that_raises_is_disabled(self) -> None:
        bench = Bench(cluster(2), PerUnit())
        bench.tell(asked("a", desired=1))
        bench.run(10)
        bench.tell(incoming.AddTrigger("a", Trigger(0, "lag", above=1.0)))
        step = guarded_step(bench.state, [readings("a", lag="much")], bench.now, PerUnit())
        record = step.outcome.state.pipelines["a"]
        assert not record.triggers[0].enabled
        assert record.state is PipelineState.ACTIVE

    def test_a_node_that_no_division_can_use_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        divide = division.divide

        def refuses(inputs: Any) -> Any:
            if any("n2" in group["names"] for group in inputs["nodes"]):
                raise ArithmeticError("n2 is odd")
            return divide(inputs)

        monkeypatch.setattr(culprits, "divide", refuses)
        step = guarded_step(cluster(4), [asked("a", desired=3)], 1000.0, PerUnit())
        assert step.outcome.state.nodes["n2"].state is NodePhase.LOST
        assert len(step.outcome.state.pipelines["a"].assigned) == 3

    def test_the_pipeline_a_division_raises_for_is_found_among_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        divide = division.divide
        bench = Bench(cluster(40), PerUnit())
        bench.tell(*(asked(f"p{number}", desired=1) for number in range(30)))

        def refuses(inputs: Any) -> Any:
            if {"p7", "p23"} & {entry["name"] for entry in inputs["pipelines"]}:
                raise ArithmeticError("odd")
            return divide(inputs)

        monkeypatch.setattr(culprits, "divide", refuses)
        step = guarded_step(bench.state, [asked("last", desired=1)], bench.now + 11, PerUnit())
        after = step.outcome.state.pipelines
        assert {name for name, record in after.items() if record.state is PipelineState.FAILED} == {"p7", "p23"}
        assert after["last"].assigned

    def test_a_policy_that_raises_for_everybody_fails_nobody(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = made(tmp_path)
        there.controller.ask(asked("a", desired=2))
        there.run(10)

        def refuses(_: Any) -> Any:
            raise ArithmeticError("it divides nothing")

        divide = division.divide
        monkeypatch.setattr(culprits, "divide", refuses)
        there.run(11)
        assert there.at("a") is PipelineState.ACTIVE
        assert "everybody keeps what it has" in str(there.controller.health().trouble)
        with pytest.raises(ConflictError, match="it divides nothing"):
            there.controller.ask(incoming.SetPolicy(Policy("max-min")))
        monkeypatch.setattr(culprits, "divide", divide)
        there.run(11)
        assert there.controller.health().ok

    def test_a_request_that_raises_is_refused_and_nothing_has_changed(self, tmp_path: Path) -> None:
        there = made(tmp_path, Raising())
        before = there.controller.state
        with pytest.raises(FieldError, match="no units"):
            there.controller.ask(asked("bad", rate=20.0))
        assert there.controller.state is before
        assert there.controller.store.load() is None

    def test_what_the_store_cannot_take_fails_its_pipeline_only(self, tmp_path: Path) -> None:
        there = made(tmp_path)
        there.controller.ask(asked("a", desired=1))
        there.controller.ask(asked("b", desired=1))
        there.run(10)
        record = there.controller.state.pipelines["a"]
        odd = replace(record, deaths=2**70, serial=2**70)
        there.controller._state = replace(
            there.controller.state, pipelines=MappingProxyType({**there.controller.state.pipelines, "a": odd})
        )
        there.executors.more.append(incoming.Died("b", 1, "a \ud800 word that is no Unicode"))
        there.run(20)
        assert there.at("b") is PipelineState.ACTIVE
        assert there.controller.store.load() is not None


class TestTheLoop:
    def test_goes_on_whatever_a_step_raises(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        there = made(tmp_path)
        calls = []

        def raises(*_: Any) -> None:
            calls.append(1)
            raise SystemExit(3)

        monkeypatch.setattr(reports, "follow_loads", raises)
        there.controller.start()
        try:
            assert waited_for(lambda: len(calls) > 3)
            health = there.controller.health()
            assert health.loop_alive
            assert not health.ok
            assert "SystemExit" in str(health.trouble)
            monkeypatch.undo()
            assert waited_for(lambda: there.controller.health().ok)
            # trouble is said when it is over, too
            assert waited_for(lambda: len(there.events("trouble")) >= 2)
        finally:
            there.controller.close()

    @pytest.mark.parametrize("broken", ["observe", "want"])
    def test_goes_on_without_executors_and_says_so(self, tmp_path: Path, broken: str) -> None:
        there = made(tmp_path)
        there.executors.broken.add(broken)
        there.controller.ask(asked("a", desired=1))
        there.run(2)
        assert there.at("a") is PipelineState.STARTING
        assert there.controller.trouble is not None
        there.executors.broken.clear()
        there.run(10)
        assert there.at("a") is PipelineState.ACTIVE
        assert there.controller.trouble is None

    def test_a_restart_survives_executors_that_refuse_an_order(self, tmp_path: Path) -> None:
        there = made(tmp_path)
        there.controller.ask(asked("a", desired=1))
        there.controller.close()
        sizing, clock, wall = PerUnit(), ManualClock(1001.0), ManualClock(60.0)
        executors = Watched(SimulatedExecutors(sizing, 1), broken={"want"})
        store = Store(f"sqlite:///{tmp_path / 'store.db'}")
        again = Controller(store, executors, SimulatedNodes(0, 1), sizing, clock, wall)
        assert "File name too long" in str(again.health().trouble)
        executors.broken.clear()
        again.look()
        assert again.health().ok

    def test_a_watcher_that_raises_keeps_nobody_from_anything(self, tmp_path: Path) -> None:
        there = made(tmp_path)

        def raises(_: Any) -> None:
            raise ValueError("not I")

        seen: list[Any] = []
        there.controller.watch(raises)
        there.controller.watch(seen.append)
        there.controller.ask(asked("a", desired=1))
        assert len(seen) == 1
        assert there.controller.state.pipelines["a"].assigned

    def test_an_order_that_cannot_be_carried_out_is_no_refusal(self, tmp_path: Path) -> None:
        """It was stored: an answer that it was refused would be a lie."""
        there = made(tmp_path)
        there.executors.broken.add("want")
        assert "a" in there.controller.ask(asked("a", desired=1)).pipelines

    def test_is_in_trouble_while_a_step_hangs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(health_module, "LEAST_PERIOD_SECONDS", 0.05)
        there = made(tmp_path)
        go_on, hangs = threading.Event(), threading.Event()

        def hang(now: float) -> list[Observation]:
            hangs.set()
            go_on.wait(SOON)
            return []

        monkeypatch.setattr(there.executors, "observe", hang)
        there.controller.start()
        try:
            assert hangs.wait(SOON)
            assert waited_for(lambda: not there.controller.health().ok)
            health = there.controller.health()
            assert "no step was completed" in str(health.trouble)
            assert health.loop_alive
            go_on.set()
            assert waited_for(lambda: there.controller.health().ok)
            assert waited_for(lambda: any("no step" in why for why in there.events("trouble")))
        finally:
            go_on.set()
            there.controller.close()

    def test_a_loop_that_has_ended_is_trouble(self, tmp_path: Path) -> None:
        there = made(tmp_path)
        there.controller.start()
        assert there.controller.health().ok
        there.controller._stop.set()
        assert waited_for(lambda: not there.controller.alive)
        health = there.controller.health()
        assert (health.ok, health.loop_alive) == (False, False)
        there.controller.close()

    def test_readings_do_not_pile_up_while_the_store_cannot_be_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = made(tmp_path)
        there.controller.ask(asked("a", desired=1))
        there.run(10)

        def full(*_: Any) -> None:
            raise StoreError("full")

        monkeypatch.setattr(there.controller.store, "commit", full)
        for _ in range(50):
            with pytest.raises(StoreError):
                there.run(0.5)
        assert len(there.controller._unheard) < 5
        first, last = readings("a", rate=1.0), readings("a", rate=2.0)
        assert without_old_readings([first, incoming.NodeLost("n"), last]) == [incoming.NodeLost("n"), last]


class TestLease:
    def test_whoever_lost_it_does_not_even_look(self, tmp_path: Path) -> None:
        first = made(tmp_path)
        first.controller.ask(asked("a", desired=1))
        first.run(5)
        # it stalls for longer than a lease lasts; another one takes over
        first.wall.time += LEASE_SECONDS + 1
        store = Store(f"sqlite:///{tmp_path / 'store.db'}", take_over=True)
        lease = store.take_lease(first.wall.time)
        assert lease.number > first.controller.fence
        looks, wants = first.executors.looks, first.executors.wants
        with pytest.raises(LostLeaseError):
            first.controller.look()
        with pytest.raises(LostLeaseError):
            first.controller.ask(incoming.Kill("a"))
        with pytest.raises(LostLeaseError):
            first.controller.add_nodes(1)
        assert (first.executors.looks, first.executors.wants) == (looks, wants)
        assert first.nodes.looks == looks

    @pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
    def test_is_kept_when_the_clock_of_the_machine_is_set(self, tmp_path: Path, jump: float) -> None:
        there = made(tmp_path)
        there.controller.ask(asked("a", desired=1))
        there.wall.time += 100_000
        there.run(1)
        there.wall.time += jump
        there.run(10)
        assert there.at("a") is PipelineState.ACTIVE
        lease = there.controller.store.read(select(schema.lease))[0]
        assert (lease["held"], lease["number"]) == (True, there.controller.fence)

    def test_its_loss_ends_the_loop_and_is_said(self, tmp_path: Path) -> None:
        there = made(tmp_path)
        there.wall.time += LEASE_SECONDS + 1
        Store(f"sqlite:///{tmp_path / 'store.db'}", take_over=True).take_lease(there.wall.time)
        there.controller.start()
        assert waited_for(lambda: not there.controller.alive)
        health = there.controller.health()
        assert not health.loop_alive
        assert "taken the store over" in str(health.trouble)


class TestTime:
    def test_a_clock_that_was_set_back_does_not_stop_passes(self) -> None:
        bench = Bench(cluster(2), PerUnit())
        bench.tell(asked("a", desired=1))
        bench.run(20)
        bench.now -= 100_000
        before = bench.state.last_pass
        bench.run(1)
        assert bench.state.last_pass != before

    def test_a_start_is_given_up_in_time_although_the_clock_was_set_back(self) -> None:
        bench = Bench(cluster(2), PerUnit())
        bench.tell(asked("a", desired=1))
        bench.now -= 100_000
        state = bench.state
        for _ in range(3):
            bench.now += 130
            state = guarded_step(state, [incoming.TimePassed()], bench.now, PerUnit()).outcome.state
        assert state.pipelines["a"].state is not PipelineState.STARTING


class TestSharing:
    """Policies that divide slots, with units of several."""

    def test_two_share_nodes_under_shared_and_go_on(self) -> None:
        bench = Bench(cluster(4, slots=2, sharing="shared"), PerUnit())
        bench.tell(asked("a", desired=3, load="33"))
        bench.tell(asked("b", desired=3, load="33"))
        bench.run(60)
        assert {name: len(record.held) for name, record in bench.state.pipelines.items()} == {"a": 6, "b": 2}
        bench.tell(asked("c", desired=1))
        assert bench.at("c") is PipelineState.WAITING

    def test_from_shared_to_whole_nodes_and_back(self) -> None:
        bench = Bench(cluster(4, slots=2, sharing="shared"), PerUnit())
        bench.tell(asked("a", desired=1), asked("b", desired=1), asked("c", desired=2))
        bench.run(20)
        for policy in ("max-min", "shared", "fair-priority", "shared", "isolation"):
            bench.tell(incoming.SetPolicy(Policy(policy)))
            bench.run(40)
            assert bench.held() == {"a": 1, "b": 1, "c": 2}, policy
            owners = [slot for record in bench.state.pipelines.values() for slot in record.may_hold]
            assert len(owners) == len(set(owners))

    def test_what_all_want_together_is_too_much_for_nobody(self) -> None:
        bench = Bench(cluster(4, slots=2), PerUnit())
        for sharing in SHARERS.names():
            bench.tell(incoming.SetPolicy(Policy(sharing)))
            for number in range(7):
                bench.tell(asked(f"{sharing}{number}", desired=1_000_000))
            bench.run(11)
        assert sum(len(record.assigned) for record in bench.state.pipelines.values()) == 8

    def test_an_application_that_asks_for_everything_gets_what_there_is(self) -> None:
        bench = Bench(cluster(4), PerUnit())
        for number in range(6):
            bench.tell(asked(f"app{number}", engine=EngineName.ATTACHED))
            bench.tell(incoming.Asks(f"app{number}", 2**70, "all", {"x": math.nan}))
        bench.run(11)
        assert sum(len(record.assigned) for record in bench.state.pipelines.values()) == 4


class TestRequests:
    @pytest.mark.parametrize(
        ("more", "field_name"),
        [
            ({"target": ServiceTarget(1e-7)}, "target.rate"),
            ({"target": ServiceTarget(1e13)}, "target.rate"),
            ({"target": ServiceTarget(math.nan)}, "target.rate"),
            ({"target": ServiceTarget(1.0, 0.0)}, "target.latency_ms"),
            ({"load": "nan"}, "load"),
            ({"load": "trace:/dev/zero"}, "load"),
            ({"load": "1" * 20_000}, "load"),
            ({"elastic": {"catch_up_seconds": 0}}, "elastic.catch_up_seconds"),
            ({"elastic": {"catch_up_seconds": "9"}}, "elastic.catch_up_seconds"),
            ({"elastic": {"max_utilisation": 1e-300}}, "elastic.max_utilisation"),
            ({"elastic": {"excluded_hours": [24]}}, "elastic.excluded_hours"),
            ({"elastic": {"min_utilisation": 0.99}}, "elastic.min_utilisation"),
            ({"elastic": {"forecast": "tea-leaves"}}, "elastic.forecast"),
            ({"elastic": {"catchup": 1}}, "elastic.catchup"),
            ({"desired": 2**64}, "desired"),
            ({"maximum": 0}, "maximum"),
            ({"priority": 0}, "priority"),
        ],
    )
    def test_what_a_later_pass_would_stumble_over_is_refused(self, more: dict[str, Any], field_name: str) -> None:
        bench = Bench(cluster(2), PerUnit())
        before = bench.state
        with pytest.raises(FieldError) as refused:
            bench.tell(asked("a", **more))
        assert refused.value.field == field_name
        assert bench.state is before

    def test_amendments_are_checked_with_what_they_amend(self) -> None:
        bench = Bench(cluster(2), PerUnit())
        bench.tell(asked("a", elastic={"min_utilisation": 0.5, "max_utilisation": 0.6}))
        with pytest.raises(FieldError, match="above max_utilisation"):
            bench.tell(incoming.Amend("a", elastic={"min_utilisation": 0.7}))
        with pytest.raises(FieldError, match=r"target.rate"):
            bench.tell(incoming.Amend("a", target=ServiceTarget(1e-9)))

    def test_excluded_hours_may_be_a_list(self) -> None:
        bench = Bench(cluster(2), PerUnit())
        bench.tell(asked("a", rate=5.0, load="5", elastic={"excluded_hours": [1, 2]}))
        bench.run(40)
        assert bench.at("a") is PipelineState.ACTIVE

    @pytest.mark.parametrize("load", ["1e8", "1e12"])
    def test_a_load_nobody_can_serve_is_no_fault(self, load: str) -> None:
        bench = Bench(cluster(2), PerUnit())
        bench.tell(asked("a", rate=5.0, load=load), asked("b", desired=1))
        bench.run(120)
        assert (bench.at("a"), bench.at("b")) == (PipelineState.ACTIVE, PipelineState.ACTIVE)

    @pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan, -1.0, 1.7e308, 5e-324])
    def test_readings_may_be_anything(self, odd: float) -> None:
        bench = Bench(cluster(4), PerUnit())
        bench.tell(asked("a", rate=5.0, load="5"))
        bench.run(20)
        names = ("offered_rate", "rate", "backlog", "busy", "latency_ms", "batch_cost_s", "memory_mb")
        values = dict.fromkeys(names, odd)
        parts = (incoming.PartReading(None, None, {"memory_mb": odd}), incoming.PartReading("x", None, values))
        for _ in range(15):
            bench.tell(incoming.Readings("a", values, parts=parts))
            bench.run(2)
        assert bench.at("a") is PipelineState.ACTIVE

    def test_a_pipeline_that_is_ending_cannot_be_submitted_again_yet(self) -> None:
        """Else the answer would be that it is there, and then it is gone."""
        bench = Bench(cluster(2), PerUnit())
        again = asked("a", desired=1)
        bench.tell(again)
        bench.run(10)
        bench.tell(incoming.Kill("a"))
        with pytest.raises(ConflictError, match="still ending"):
            bench.tell(again)
        bench.run(5)
        bench.tell(again)
        bench.run(10)
        assert bench.at("a") is PipelineState.ACTIVE

    @pytest.mark.parametrize("slots", [0, 2**64, -2])
    def test_a_node_that_cannot_be_is_not_taken_in(self, slots: int) -> None:
        bench = Bench(cluster(2), PerUnit())
        bench.tell(incoming.NodeJoined(replace(node("odd"), slots=slots)))
        assert "odd" not in bench.state.nodes
        assert "not used" in bench.events[-1].why


def test_whoever_is_blamed_is_named() -> None:
    assert str(Culprit(Blamable.TRIGGER, "a", 3)) == "trigger 3 of 'a'"
    assert str(Culprit(Blamable.NODE, "n1")) == "node 'n1'"
