"""The core by hand: the documented allocations, the order of messages, deaths, nodes, pauses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.base.clock import Stopwatch
from penstock.base.errors import ImpossibleMoveError
from penstock.control.core.messages import (
    AddTrigger,
    Amend,
    DecisionKind,
    EditTrigger,
    Holds,
    Kill,
    NodeJoined,
    NodeLost,
    ReleaseNode,
    SetPolicy,
    SwitchTrigger,
    TimePassed,
)
from penstock.control.core.records import (
    NODE_MOVES,
    PIPELINE_MOVES,
    Happening,
    NodeHappening,
    NodePhase,
    PipelineState,
    Policy,
    Rescheduling,
    ServiceTarget,
    Trigger,
    node_after,
    pipeline_after,
)
from penstock.control.errors import ConflictError, FieldError, NotFoundError
from penstock.control.executors.simulated import Times
from penstock.planning.sharing.division import DEFAULT_PATIENCE
from penstock.testing.controller import ControllerBench as Bench
from penstock.testing.controller import RatePerUnit as PerUnit
from penstock.testing.controller import asked, cluster, node

USE_CASE_1 = [("EventTP1", 8, 4, 1), ("EventTP2", 8, 4, 1), ("ArchivalTP1", 4, 2, 2), ("ArchivalTP2", 4, 2, 2)]
USE_CASE_2 = [("TP1", 16, 8, 1), ("TP2", 8, 4, 2)]


def running(nodes: int, sharing: str, cases: list[tuple[str, int, int, int]], *, levels: bool) -> Bench:
    bench = Bench(cluster(nodes, sharing=sharing))
    for name, desired, minimum, level in cases:
        bench.tell(asked(name, desired, minimum, priority=level if levels else None, load="10"))
    bench.run(20)
    return bench


def with_trigger(bench: Bench, name: str) -> None:
    bench.tell(AddTrigger(name, Trigger(0, "arrival-rate", above=1e9)))


def switch(bench: Bench, name: str, *, on: bool) -> None:
    bench.tell(SwitchTrigger(name, bench[name].triggers[0].id, on))


def node_state(bench: Bench, name: str) -> NodePhase:
    return bench.state.nodes[name].state


class TestMoves:
    def test_every_pair_that_is_not_in_the_table_is_an_error(self) -> None:
        for state in PipelineState:
            for happening in Happening:
                if (state, happening) not in PIPELINE_MOVES:
                    with pytest.raises(ImpossibleMoveError, match=f"{state} cannot have {happening}"):
                        pipeline_after(state, happening)
        for place in NodePhase:
            for event in NodeHappening:
                if (place, event) not in NODE_MOVES:
                    with pytest.raises(ImpossibleMoveError):
                        node_after(place, event)

    def test_whoever_lives_can_be_killed_and_the_dead_stay_dead(self) -> None:
        for state in PipelineState:
            if state not in {PipelineState.ENDING, PipelineState.KILLED}:
                assert pipeline_after(state, Happening.KILLED) is PipelineState.ENDING
        assert not any(state is PipelineState.KILLED for state, _ in PIPELINE_MOVES)


class TestPublishedAllocations:
    def test_table_8(self) -> None:
        bench = running(16, "static-priority", USE_CASE_1, levels=True)
        assert bench.held() == {"EventTP1": 6, "EventTP2": 6, "ArchivalTP1": 2, "ArchivalTP2": 2}

    def test_table_9(self) -> None:
        bench = running(16, "dynamic-priority", USE_CASE_1, levels=False)
        assert bench.held() == {"EventTP1": 5, "EventTP2": 5, "ArchivalTP1": 3, "ArchivalTP2": 3}
        for name in ("EventTP1", "EventTP2"):
            with_trigger(bench, name)
            switch(bench, name, on=True)
        bench.run(20)
        assert bench.held() == {"EventTP1": 8, "EventTP2": 8, "ArchivalTP1": 0, "ArchivalTP2": 0}
        assert bench.at("ArchivalTP1") is PipelineState.WAITING
        assert "0 of at least 2" in (bench["ArchivalTP1"].waiting or "")
        for name in ("EventTP1", "EventTP2"):
            switch(bench, name, on=False)
        bench.run(20)
        assert bench.held() == {"EventTP1": 5, "EventTP2": 5, "ArchivalTP1": 3, "ArchivalTP2": 3}

    def test_table_12(self) -> None:
        assert running(20, "static-priority", USE_CASE_2, levels=True).held() == {"TP1": 13, "TP2": 7}

    def test_table_13(self) -> None:
        bench = running(20, "dynamic-priority", USE_CASE_2, levels=False)
        assert bench.held() == {"TP1": 13, "TP2": 7}
        with_trigger(bench, "TP1")
        switch(bench, "TP1", on=True)
        bench.run(20)
        assert bench.held() == {"TP1": 16, "TP2": 4}

    @pytest.mark.parametrize(
        "sharing", ["shared", "isolation", "max-min", "dominant-fair", "fair-priority", "fair-max-min"]
    )
    def test_room_for_all_is_given_to_all_by_every_policy(self, sharing: str) -> None:
        bench = running(24, sharing, USE_CASE_1, levels=True)
        assert bench.held() == {"EventTP1": 8, "EventTP2": 8, "ArchivalTP1": 4, "ArchivalTP2": 4}


class TestPriorities:
    def test_the_documented_order_of_messages_and_the_three_stages(self) -> None:
        bench = running(16, "dynamic-priority", USE_CASE_1, levels=False)
        bench.tell(SetPolicy(Policy("dynamic-priority", Rescheduling.DOCUMENTED)))
        with_trigger(bench, "EventTP1")
        before = len(bench.messages("EventTP1"))
        switch(bench, "EventTP1", on=True)
        assert bench.at("EventTP1") is PipelineState.DRAINING
        assert bench["EventTP1"].priority == 2
        bench.run(20, every=0.25)
        assert [message.partition(":")[0] for message in bench.messages("EventTP1")[before:]] == [
            "trigger on",
            "deactivate",
            "drained",
            "priority 2 becomes 1",
            "activate with 8",
            "first tuple",
        ]
        decision = next(found for found in bench.decisions if found.kind is DecisionKind.PRIORITY)
        overhead = next(found.overhead for found in bench.measured if found.decision == decision.number)
        # draining takes 0.5 s; then the others let 3 nodes go in 0.5 s, seen at the next look; executors join in 2 s
        assert overhead.drained_s == pytest.approx(0.5, abs=0.26)
        assert 2.0 <= overhead.placed_s <= 3.5
        assert overhead.first_tuple_s <= 0.5
        assert (decision.before, decision.after) == (2, 1)

    def test_nobody_drains_unless_that_is_asked_for(self) -> None:
        bench = running(16, "dynamic-priority", USE_CASE_1, levels=False)
        with_trigger(bench, "EventTP1")
        switch(bench, "EventTP1", on=True)
        assert bench.at("EventTP1") is PipelineState.ACTIVE
        bench.run(20)
        assert bench.held()["EventTP1"] == 8
        assert "drained" not in bench.messages("EventTP1")
        found = [decision.number for decision in bench.decisions if decision.kind is DecisionKind.PRIORITY]
        assert [measured.overhead.drained_s for measured in bench.measured if measured.decision in found] == [0.0]

    @pytest.mark.parametrize("sharing", ["dynamic-priority", "isolation", "max-min"])
    def test_with_less_again_it_keeps_what_it_had_before(self, sharing: str) -> None:
        """What came last has only just started, wherever it stands among the nodes."""
        bench = Bench(cluster(3, sharing=sharing))
        bench.tell(asked("first", 2), asked("second", 2))
        bench.run(10)
        had = bench["second"].held
        assert (len(had), bench.held()["first"]) == (1, 2)
        bench.tell(Amend("first", paused=True))
        bench.run(10)
        grown = bench["second"].held
        assert len(grown) == 2
        assert max(grown) == had[0]
        bench.tell(Amend("first", paused=False))
        bench.run(10)
        assert bench["second"].held == had

    def test_whose_share_stays_the_same_is_not_touched(self) -> None:
        bench = running(24, "dynamic-priority", USE_CASE_1, levels=False)
        serials = {name: bench[name].serial for name in bench.state.pipelines}
        with_trigger(bench, "EventTP1")
        switch(bench, "EventTP1", on=True)
        bench.run(5)
        assert {name: bench[name].serial for name in bench.state.pipelines} == serials
        assert bench["EventTP1"].priority == 1

    def test_static_priority_refuses_a_change_by_hand_and_notes_a_trigger(self) -> None:
        bench = running(16, "static-priority", USE_CASE_1, levels=True)
        with pytest.raises(ConflictError, match="only before submission"):
            bench.tell(Amend("ArchivalTP1", priority=1))
        with_trigger(bench, "ArchivalTP1")
        switch(bench, "ArchivalTP1", on=True)
        assert bench["ArchivalTP1"].priority == 2
        assert bench.decisions[-1].kind is DecisionKind.NOTHING

    def test_several_levels_and_the_highest_trigger_counts(self) -> None:
        bench = Bench(cluster(10, sharing="dynamic-priority"))
        bench.tell(asked("a", 10, priority=5))
        for level in (3, 2):
            bench.tell(AddTrigger("a", Trigger(0, "arrival-rate", above=1, priority=level)))
        first, second = (trigger.id for trigger in bench["a"].triggers)
        bench.tell(SwitchTrigger("a", first, True), SwitchTrigger("a", second, True))
        assert bench["a"].priority == 2
        bench.tell(SwitchTrigger("a", second, False))
        assert bench["a"].priority == 3
        bench.tell(EditTrigger("a", replace(bench["a"].triggers[0], enabled=False)))
        assert bench["a"].priority == 5


class TestLife:
    def test_an_order_names_what_fits_and_waiting_names_what_is_short(self) -> None:
        bench = Bench(cluster(4))
        bench.tell(asked("first", 3, 3), asked("second", 2, 2))
        assert bench.at("first") is PipelineState.STARTING
        assert bench.at("second") is PipelineState.WAITING
        assert "2" in (bench["second"].waiting or "")
        bench.tell(NodeJoined(node("n5")))
        assert bench.at("second") is PipelineState.STARTING
        assert bench["second"].waiting is None

    def test_one_that_needs_the_whole_cluster_waits_its_turn_and_nobody_swaps_meanwhile(self) -> None:
        """Its minimum is all four nodes. After the patience of the policy it has them, and keeps them as long."""
        bench = Bench(cluster(4))
        bench.tell(asked("a", 2), asked("b", 1))
        bench.run(20)
        bench.tell(asked("big", 4, 4))
        bench.run(DEFAULT_PATIENCE - 20)
        assert bench.held() == {"a": 2, "b": 1, "big": 0}
        assert bench["big"].waiting is not None
        assert len([one for one in bench.decisions if one.pipeline == "a"]) == 1
        bench.run(40)
        assert bench.held() == {"a": 0, "b": 0, "big": 4}
        bench.run(DEFAULT_PATIENCE - 60)
        assert bench.held() == {"a": 0, "b": 0, "big": 4}

    def test_a_slot_is_asked_for_only_when_the_other_has_let_go(self) -> None:
        bench = Bench(cluster(4, sharing="dynamic-priority"))
        bench.tell(asked("low", 4, priority=2, load="5"))
        bench.run(10)
        bench.tell(asked("high", 3, priority=1, load="5"))
        assert len(bench["low"].assigned) == 1
        assert bench.at("high") is PipelineState.WAITING  # nothing is free yet
        assert bench["high"].requested == ()
        bench.run(1.0)
        assert bench.at("high") is PipelineState.STARTING
        bench.run(10)
        assert bench.held() == {"low": 1, "high": 3}

    def test_a_report_about_an_older_order_frees_nothing(self) -> None:
        bench = Bench(cluster(2, sharing="dynamic-priority"))
        bench.tell(asked("low", 2, priority=2))
        serial, slots = bench["low"].serial, bench["low"].requested
        bench.tell(asked("high", 2, 2, priority=1))
        bench.tell(Holds("low", serial, ()))  # said before it heard that it has to let go: it may still get them
        assert bench["high"].requested == ()
        assert bench["low"].may_hold == frozenset(slots)
        bench.tell(Holds("low", bench["low"].serial, ()))
        assert len(bench["high"].requested) == 2

    def test_minimum_above_the_cluster(self) -> None:
        bench = Bench(cluster(4))
        with pytest.raises(FieldError, match="minimum: 5 is above the 4"):
            bench.tell(asked("a", 6, 5))

    def test_submitting_the_same_twice_is_once_and_something_else_is_a_conflict(self) -> None:
        bench = Bench(cluster(4))
        bench.tell(asked("a", 2))
        before = bench.state
        bench.tell(asked("a", 2))
        assert bench.state == before
        with pytest.raises(ConflictError, match="exists already and is starting"):
            bench.tell(asked("a", 3))

    def test_pause_keeps_nothing_and_activate_starts_again(self) -> None:
        bench = Bench(cluster(4))
        bench.tell(asked("a", 2, load="5"), asked("b", 4, load="5"))
        bench.run(10)
        bench.tell(Amend("a", paused=True))
        bench.run(10)
        assert bench.at("a") is PipelineState.PAUSED
        assert bench.held() == {"a": 0, "b": 4}
        bench.tell(Amend("a", paused=False))
        bench.run(10)
        assert bench.at("a") is PipelineState.ACTIVE
        assert sum(bench.held().values()) == 4

    def test_killed_it_holds_its_slots_until_they_are_seen_to_be_free(self) -> None:
        bench = Bench(cluster(2))
        bench.tell(asked("a", 2, load="5"))
        bench.run(10)
        bench.tell(Kill("a"), asked("b", 2, 2, load="5"))
        assert bench.at("a") is PipelineState.ENDING
        assert bench["b"].requested == ()
        bench.run(10)
        assert bench.at("a") is PipelineState.KILLED
        assert bench.held() == {"a": 0, "b": 2}
        bench.tell(asked("a", 1))  # its name is free again
        assert bench.at("a") in {PipelineState.WAITING, PipelineState.STARTING}

    def test_deaths_back_off_and_then_it_has_failed_and_the_other_flows(self) -> None:
        bench = Bench(cluster(4))
        bench.tell(asked("bad", 2, load="5"), asked("good", 2, load="5"))
        bench.run(10)
        serial = bench["good"].serial
        waits = []
        for _ in range(6):
            bench.executors.kill_driver("bad", "exit code 1")
            bench.run(0.5)
            if bench["bad"].retry_at is not None:
                waits.append(round((bench["bad"].retry_at or 0) - bench["bad"].since))
            bench.run(40)
        assert waits == [1, 2, 4, 8, 16]
        assert bench.at("bad") is PipelineState.FAILED
        assert "died 6 times in a row, the last time: exit code 1" in bench.decisions[-2].why
        assert bench.held()["bad"] == 0
        assert bench["good"].serial == serial
        bench.tell(Amend("bad", paused=False))
        bench.run(10)
        assert bench.at("bad") is PipelineState.ACTIVE

    def test_a_driver_that_does_not_come_up_counts_as_dead(self) -> None:
        bench = Bench(cluster(2), times=Times(driver=1e6))
        bench.tell(asked("a", 1))
        bench.run(241, every=5)
        assert bench["a"].deaths == 1
        assert any("did not start" in event.why for event in bench.events)

    def test_draining_that_never_ends_is_forced(self) -> None:
        bench = Bench(cluster(2), times=Times(drain=1e6))
        bench.tell(asked("a", 1, load="1"))
        bench.run(10)
        bench.tell(Amend("a", paused=True))
        bench.run(70, every=5)
        assert bench.at("a") is PipelineState.PAUSED
        assert any(event.kind == "forced" for event in bench.events)

    def test_a_lost_node_is_replaced_and_the_others_are_not_touched(self) -> None:
        bench = Bench(cluster(5))
        bench.tell(asked("a", 2, load="5"), asked("b", 2, load="5"))
        bench.run(10)
        lost = bench["a"].held[0].node
        serial = bench["b"].serial
        bench.executors.lose_node(lost)
        bench.tell(NodeLost(lost))
        bench.run(5)
        assert bench.held() == {"a": 2, "b": 2}
        assert lost not in {slot.node for slot in bench["a"].held}
        assert bench["b"].serial == serial
        assert [(made.pipeline, made.kind, made.before, made.after) for made in bench.decisions[2:]] == [
            ("a", DecisionKind.MOVE, 2, 2)
        ]
        second = bench["b"].held[0].node
        for name in ("n1", "n2", "n3", "n4", "n5"):
            if name not in {lost, second}:
                bench.executors.lose_node(name)
                bench.tell(NodeLost(name))
        bench.run(5)
        # whatever anybody has less of, or elsewhere, was decided, and by the node that was lost
        assert sum(bench.held().values()) == 1
        last = {made.pipeline: made for made in bench.decisions}
        assert {last["a"].after + last["b"].after} == {1}
        assert "was lost" in last["a"].why
        assert last["a"].kind in {DecisionKind.SHRINK, DecisionKind.WAIT}

    def test_a_released_node_is_emptied_first(self) -> None:
        bench = Bench(cluster(3))
        bench.tell(asked("a", 3, load="5"))
        bench.run(10)
        bench.tell(ReleaseNode("n2"))
        assert node_state(bench, "n2") is NodePhase.LEAVING
        bench.run(5)
        assert node_state(bench, "n2") is NodePhase.GONE
        assert bench.held() == {"a": 2}

    def test_a_target_is_sized_by_the_models(self) -> None:
        bench = Bench(cluster(10), sizing=PerUnit(10.0))
        bench.tell(asked("a", rate=35.0))
        assert bench["a"].needed == 4  # ceil(35 / 10)
        bench.run(10)
        bench.tell(Amend("a", target=ServiceTarget(70.0)))
        bench.run(10)
        assert bench.held() == {"a": 7}
        assert bench.decisions[-1].expected["rate"] == 70.0

    def test_fairness_counts_what_is_needed(self) -> None:
        # 'a' desires 8 units and needs 4 for its rate; it holds 5 of 5 nodes, and that is all it needs
        bench = Bench(cluster(5), sizing=PerUnit(10.0))
        bench.tell(asked("a", 8, rate=35.0))
        bench.run(60)
        assert bench.held() == {"a": 5}
        assert bench["a"].served.degree > 0.9
        # without a rate it needs what it desires: 5 of 8
        other = Bench(cluster(5))
        other.tell(asked("a", 8))
        other.run(60)
        assert 0.5 < other["a"].served.degree < 0.63

    def test_a_clock_that_is_set_back_stops_nothing(self) -> None:
        bench = Bench(cluster(3))
        bench.tell(asked("a", 1, load="5"))
        bench.run(10)
        bench.executors.kill_driver("a")
        bench.run(0.5)
        assert bench.at("a") is PipelineState.BACKING_OFF
        bench.now -= 86_400
        bench.tell(TimePassed())
        assert bench.at("a") is PipelineState.STARTING

    def test_nobody_of_that_name(self) -> None:
        bench = Bench(cluster(3))
        with pytest.raises(NotFoundError, match="no pipeline 'x'"):
            bench.tell(Kill("x"))
        with pytest.raises(NotFoundError, match="no node 'x'"):
            bench.tell(ReleaseNode("x"))

    def test_units_smaller_than_a_node(self) -> None:
        bench = Bench(cluster(2, slots=2, unit_slots=1))
        bench.tell(asked("a", 1, load="5"), asked("b", 3, load="5"))
        bench.run(10)
        assert bench.held() == {"a": 1, "b": 3}


@pytest.mark.parametrize("sharing", ["shared", "fair-priority", "e-stream"])
def test_a_pass_over_ten_thousand_nodes_takes_seconds(sharing: str) -> None:
    """A write token may add 10,000 nodes at once; the time of a pass grows with their slots, not with the square."""
    bench = Bench(cluster(10_000, sharing=sharing))
    watch = Stopwatch()
    for name in ("a", "b", "c"):
        bench.tell(asked(name, desired=10_000, minimum=1, load="10"))
    assert sum(len(record.assigned) for record in bench.state.pipelines.values()) == 10_000
    assert watch.seconds() < 30  # 3 passes; comparing each slot with each would take minutes
