"""Triggers that are evaluated where the data is: a dwell time, a lower threshold for the way back, and clocks that
jump."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.base import clock
from penstock.control.clocks import SteadyClock
from penstock.control.core.messages import AddTrigger, DecisionKind, Readings, TimePassed
from penstock.control.core.priorities import described, evaluated
from penstock.control.core.records import PipelineState, Trigger
from penstock.control.core.trigger_kinds import find_kind
from penstock.control.errors import FieldError
from penstock.control.metrics import Metric
from penstock.control.registry import TRIGGER_KINDS
from penstock.service.bodies import TriggerBody, trigger_of
from penstock.testing.controller import ControllerBench as Bench
from penstock.testing.controller import asked, cluster

DOCS = Path(__file__).parents[2] / "docs" / "extend.md"
SHARE = Trigger(7, "batch-share", above=80.0, field="reading", share=0.8)


def test_a_share_of_a_batch_switches_on_at_its_threshold_and_off_well_below() -> None:
    at_once = replace(SHARE, for_seconds=0.0)
    assert not evaluated(at_once, {}, {7: 0.79}, 1.0).on
    on = evaluated(at_once, {}, {7: 0.8}, 2.0)
    assert (on.on, on.on_since) == (True, 2.0)
    # 0.75 of 0.8 is 0.6
    assert evaluated(on, {}, {7: 0.6}, 3.0).on
    assert not evaluated(on, {}, {7: 0.59}, 3.0).on
    assert evaluated(replace(on, below=0.5), {}, {7: 0.55}, 3.0).on
    # what is not reported, or is no number, changes nothing; nor does somebody else's
    for signals in ({}, {7: float("nan")}, {8: 0.0}):
        assert evaluated(on, {}, signals, 4.0).on


def test_messages_that_wait_switch_on_above_a_threshold_and_off_well_below() -> None:
    trigger = Trigger(3, "lag", above=1_000.0, for_seconds=2.0)
    switched = []
    # 0.75 of 1,000 is 750; a reading without topics changes nothing
    readings = ((0.0, 1_001.0), (1.9, 2_000.0), (2.0, 1_500.0), (3.0, 750.0), (4.0, None), (5.0, 749.0), (7.0, 10.0))
    for now, lag in readings:
        trigger = evaluated(trigger, {} if lag is None else {"lag": lag, "offered_rate": 0.0}, {}, now)
        switched.append(trigger.on)
    assert switched == [False, False, True, True, True, True, False]
    assert described(trigger) == "trigger 3: more than 1000 messages wait"


def test_it_has_to_hold_for_its_time_without_a_break() -> None:
    trigger = replace(SHARE, for_seconds=3.0)
    readings = ((0.0, 0.9), (2.9, 0.9), (2.95, 0.7), (3.0, 0.9), (5.9, 0.9), (6.0, 0.9))
    switched = []
    for now, share in readings:
        trigger = evaluated(trigger, {}, {7: share}, now)
        switched.append(trigger.on)
    assert switched == [False] * 5 + [True]


@pytest.mark.parametrize("given", [replace(SHARE, enabled=False), replace(SHARE, on=True, by_hand=True)])
def test_disabled_or_by_hand_data_has_no_say(given: Trigger) -> None:
    for share in (0.0, 1.0):
        assert evaluated(given, {}, {7: share}, 100.0) == given


def test_a_batch_raises_its_pipeline_and_the_decision_says_which_data() -> None:
    bench = Bench(cluster(3, sharing="dynamic-priority"))
    bench.tell(asked("first", 2), asked("second", 2))
    bench.tell(AddTrigger("second", replace(SHARE, id=0, for_seconds=0.0)))
    bench.run(10)
    bench.tell(Readings("second", {}, {bench["second"].triggers[0].id: 0.95}))
    bench.run(10)
    assert bench.held() == {"first": 1, "second": 2}
    raised = next(decision for decision in bench.decisions if decision.kind is DecisionKind.PRIORITY)
    assert "80 % of a batch have reading above 80" in raised.why


def test_a_clock_that_jumps_ahead_moves_nobody_who_runs() -> None:
    bench = Bench(cluster(3))
    bench.tell(asked("a", 1, load="5"), asked("b", 2, load="5"))
    bench.run(10)
    before = {name: (record.serial, record.held) for name, record in bench.state.pipelines.items()}
    bench.now += 7 * 86_400
    bench.tell(TimePassed())
    bench.run(10)
    assert {name: (record.serial, record.held) for name, record in bench.state.pipelines.items()} == before
    assert {bench.at(name) for name in before} == {PipelineState.ACTIVE}


def test_the_controllers_own_time_goes_on_when_the_machines_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = SteadyClock(not_before=5e9)
    first = steady.now()
    assert first >= 5e9
    for wrong in (0.0, 9e9):
        monkeypatch.setattr(clock, "now", lambda wrong=wrong: wrong)
        assert 0 <= steady.now() - first < 60


@pytest.mark.parametrize("name", TRIGGER_KINDS.names())
def test_a_kind_keeps_the_contract_and_is_in_the_docs(name: str) -> None:
    """Without readings nothing changes; a value far above is on, none at all is off; the docs say when and for what."""
    kind = find_kind(name)
    trigger = Trigger(1, name, above=10.0, share=0.5, field="x", code="m:f")
    assert kind.wants_on(trigger, {}, {}) is None
    for value, wanted in ((1e9, True), (0.0, False), (float("nan"), None)):
        assert kind.wants_on(trigger, dict.fromkeys(Metric, value), {1: value}) is wanted
    assert described(trigger).startswith("trigger 1: ")
    needs, takes = ", ".join(kind.needs), ", ".join(kind.takes)
    row = " | ".join(("", f"`{name}`", kind.fires, kind.costs, needs, takes, "")).replace("  ", " ").strip()
    assert row in DOCS.read_text("utf-8").replace("  ", " ")


@pytest.mark.parametrize(
    ("given", "field"), [({"kind": "lag", "above": 1, "share": 0.5}, "share"), ({"kind": "lag"}, "above")]
)
def test_a_field_that_a_kind_does_not_read_is_rejected(given: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as raised:
        trigger_of(TriggerBody.model_validate(given))
    assert raised.value.field == field
