"""A whole controller that follows the load of its pipelines."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.control.core.division import divide
from penstock.control.core.messages import Amend, DecisionKind, PartReading, Readings
from penstock.control.core.records import ServiceTarget
from penstock.control.executors.simulated import SimulatedExecutors, Times
from penstock.testing.controller import ControllerBench as Bench
from penstock.testing.controller import RatePerUnit as PerUnit
from penstock.testing.controller import asked, cluster

if TYPE_CHECKING:
    from penstock.control.core.messages import Incoming


class TestInTheController:
    def test_a_pipeline_follows_its_load_and_the_decision_says_why(self) -> None:
        bench = Bench(cluster(16), PerUnit(10.0))
        bench.tell(asked("a", rate=30.0, load="steps:300x30,600x90", maximum=12))
        bench.run(280)
        assert bench.held()["a"] == 3
        assert not [found for found in bench.decisions if found.kind is DecisionKind.SCALE]
        bench.run(60)
        scaled = [found for found in bench.decisions if found.kind is DecisionKind.SCALE]
        assert len(scaled) == 1
        assert scaled[0].before == 3
        assert 9 <= scaled[0].after <= 12
        assert scaled[0].rejected
        assert scaled[0].expected["catch_up_s"] > 0
        assert bench.held()["a"] == scaled[0].after

    def test_a_rise_is_not_kept_waiting_for_the_next_decision_in_turn(self) -> None:
        waits = []
        for first in range(300, 310, 3):
            bench = Bench(cluster(40), PerUnit(10.0))
            target = ServiceTarget(100.0, 10_000.0)
            bench.tell(asked("a", target=target, load=f"steps:{first}x100,600x300"))
            bench.run(first + 30, every=1.0)
            at = next(found.at for found in bench.decisions if found.kind is DecisionKind.SCALE and found.at > 1290)
            waits.append(at - 1000 - first)
        # two readings, and two seconds in which it stays; 12 s where it waits for its turn
        assert max(waits) <= 6

    def test_how_long_a_change_takes_is_measured_to_its_first_tuple(self) -> None:
        bench = Bench(cluster(40), PerUnit(10.0), Times(executor=3.0))
        bench.tell(asked("a", rate=100.0, load="steps:300x100,600x290"))
        bench.run(360)
        memory = bench["a"].following.memory
        assert memory is not None
        assert memory.first_change == pytest.approx(4.5, abs=0.5)
        assert memory.change_seconds.value == pytest.approx(3.0, abs=0.6)

    # 4 s: as long as its start took; 10 s: what is assumed at most
    @pytest.mark.parametrize("executor_s", [4.0, 10.0])
    def test_the_predicted_catch_up_is_the_one_that_comes(self, executor_s: float) -> None:
        bench = Bench(cluster(40), PerUnit(10.0), Times(executor=executor_s))
        bench.tell(asked("a", rate=100.0, load="steps:300x100,3000x290"))
        bench.run(330)
        # the one for the step; another cleared what came before its driver was up
        scaled = next(found for found in bench.decisions if found.kind is DecisionKind.SCALE and found.at > 1290)
        done_at = scaled.at
        while bench["a"].readings["backlog"] > 1 and done_at < scaled.at + 600:
            bench.run(1)
            done_at = bench.now
        assert done_at - scaled.at == pytest.approx(scaled.expected["catch_up_s"], rel=0.25)

    def test_who_was_given_a_number_keeps_it(self) -> None:
        bench = Bench(cluster(16), PerUnit(10.0))
        bench.tell(asked("a", 3, load="90"))
        bench.run(120)
        assert bench.held()["a"] == 3

    def test_another_target_starts_anew(self) -> None:
        bench = Bench(cluster(16), PerUnit(10.0))
        bench.tell(asked("a", rate=30.0, load="90"))
        bench.run(120)
        assert bench["a"].elastic_units is not None
        bench.tell(Amend("a", target=replace(bench["a"].target, rate=50.0)))
        assert bench["a"].elastic_units is None
        assert bench["a"].needed == 5

    def test_switched_off_it_stays(self) -> None:
        bench = Bench(cluster(16), PerUnit(10.0))
        bench.tell(asked("a", rate=30.0, load="90", elastic={"enabled": False}))
        bench.run(120)
        assert bench.held()["a"] == 3
        assert any(event.kind == "size" and "paused" in event.why for event in bench.events)

    def test_what_left_its_profile_is_said_once(self) -> None:
        bench = Bench(cluster(16), PerUnit(10.0))
        bench.tell(asked("a", rate=30.0, load="25"))
        bench.run(60)
        bench.executors = SimulatedExecutors(PerUnit(6.0), 1, Times())
        bench.run(2000, every=1.0)
        said = [event for event in bench.events if event.kind == "drift"]
        assert len(said) == 1
        assert "slower than profiled" in said[0].why
        assert list(bench["a"].following.drifts) == ["speed"]


class Blind(Bench):
    """What its pipelines report from some time on is not what it should be."""

    blind_from = math.inf
    instead: dict[str, float] | None = None
    """None: nothing at all is reported."""

    def tell(self, *happened: Incoming) -> None:
        if self.now >= self.blind_from:
            happened = tuple(
                replace(event, values=self.instead or {}, parts=()) if isinstance(event, Readings) else event
                for event in happened
                if self.instead is not None or not isinstance(event, Readings)
            )
        super().tell(*happened)


class TestWithoutReadings:
    @pytest.mark.parametrize(
        "instead",
        [
            None,
            {},
            {"rate": 10.0, "backlog": 1e6},
            {"offered_rate": math.nan, "backlog": math.nan},
            {"offered_rate": math.inf},
            {"offered_rate": -5.0, "busy": -1.0},
        ],
    )
    def test_the_last_good_size_is_kept_and_that_is_said_once(self, instead: dict[str, float] | None) -> None:
        bench = Blind(cluster(16), PerUnit(10.0))
        bench.tell(asked("a", rate=30.0, load="steps:100x28,6000x90"))
        bench.run(95)
        bench.blind_from, bench.instead = bench.now, instead
        bench.run(300, every=1.0)
        assert bench.held()["a"] == 3
        said = [event for event in bench.events if event.kind == "size"]
        assert [event.after for event in said] == ["unmeasured"]
        assert "last good size is kept" in said[0].why
        bench.blind_from = math.inf
        bench.run(60)
        assert bench.held()["a"] >= 9

    def test_a_metric_that_is_missing_is_done_without(self) -> None:
        bench = Blind(cluster(16), PerUnit(10.0))
        bench.tell(asked("a", rate=30.0, load="28"))
        bench.run(60)
        # neither how busy it is nor what it did: nothing is learned, and the load is still followed
        bench.blind_from, bench.instead = bench.now, {"offered_rate": 90.0, "backlog": 5000.0}
        bench.run(60)
        assert bench.held()["a"] >= 9


class TestMemory:
    def test_what_slots_hold_keeps_a_size_from_shrinking_further(self) -> None:
        bench = Bench(cluster(16), PerUnit(10.0))
        bench.tell(asked("a", rate=90.0, load="steps:60x85,9000x20"))
        bench.run(40)
        assert bench.held()["a"] == 9
        # all together hold 13,500 MB, a slot has 3,584: 13,500 / (0.9 * 3,584) = 4.2
        for _ in range(150):
            each = 13_500 / len(bench["a"].held)
            parts = tuple(PartReading(None, slot, {"memory_mb": each}) for slot in bench["a"].held)
            bench.tell(Readings("a", {}, parts=parts))
            bench.run(60, every=2.0)
        assert bench.held()["a"] == 5
        first = next(found for found in bench.decisions if found.kind is DecisionKind.SCALE)
        assert first.expected["memory"].startswith("learned: 1500 MB a slot")


class TestDeadlines:
    """3 + 3 units for 4, or 5 of them where a deadline asks for it."""

    def shares(self, deadline_s: float | None, load: str = "28") -> Bench:
        bench = Bench(cluster(6, sharing="fair-max-min"), PerUnit(10.0))
        latency_ms = None if deadline_s is None else 1000 * deadline_s
        bench.tell(asked("other", 5, load="10"))
        bench.tell(asked("late", target=ServiceTarget(40.0, latency_ms), load=load, desired=5))
        bench.run(30)
        return bench

    def test_a_division_that_would_be_too_late_is_rejected_and_the_decision_says_so(self) -> None:
        assert self.shares(None).held() == {"late": 3, "other": 3}
        # 40 tuples/s, which it was submitted for, on 3 units of 10: ever longer; on 5: 2 * 0.025 / (1 - 0.8) = 0.25 s
        bench = self.shares(0.3)
        assert bench.held() == {"late": 5, "other": 1}
        rejected = {found.pipeline: found for found in bench.decisions if found.rejected}
        assert any("tuples would take ever longer" in r.why for r in rejected["late"].rejected)
        assert any("'late' would miss its deadline" in r.why for r in rejected["other"].rejected)
        assert rejected["late"].expected["in_time"] is True
        assert rejected["late"].expected["response_s"] == pytest.approx(0.25)
        assert rejected["late"].expected["batch_cost"].startswith("profiled")

    def test_where_no_share_is_in_time_the_policy_divides_alone(self) -> None:
        assert self.shares(0.2).held() == {"late": 3, "other": 3}

    def test_a_pass_can_be_repeated_from_what_was_kept(self) -> None:
        bench = self.shares(0.3)
        kept = bench.passes[-1]
        assert {name: len(slots) for name, slots in divide(kept.inputs).slots.items()} == dict(kept.shares)
