"""Simulated executors that run the plan of an order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cluster.topology import Slot
from penstock.control.core.messages import FirstTuple, Holds, OrderKind, PipelineOrder, Readings
from penstock.control.core.records import EngineName, PipelinePlan, PlannedSlot, ServiceTarget, Submission
from penstock.control.executors.simulated import (
    UNLIMITED,
    SimulatedDriver,
    Times,
    planned_capacity,
    slot_demand,
)
from penstock.testing.controller import RatePerUnit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.messages import Observation

DEMANDS = {"work": {"cpu": 50.0, "memory_mb": 100.0}, "out": {"cpu": 10.0, "memory_mb": 20.0}}


def placed(rows: Mapping[str, Mapping[str, int]], rate: float | None = 100.0, **more: Any) -> PipelinePlan:
    slots = tuple(PlannedSlot(name[:2], int(name[3:]), threads, 700.0) for name, threads in rows.items())
    plan = PipelinePlan(EngineName.PLACED, "mba", "r-storm", "ends", 80.0, rate, slots, DEMANDS)
    return replace(plan, **more)


def fused(*names: str, rate: float | None = 100.0, **more: Any) -> PipelinePlan:
    slots = tuple(PlannedSlot(name[:2], int(name[3:]), {}, 700.0) for name in names)
    demands = {"slot": {"cpu": 80.0, "memory_mb": 600.0}}
    return replace(PipelinePlan(EngineName.FUSED, "mba", "eft", "ends", 80.0, rate, slots, demands), **more)


@pytest.mark.parametrize(
    ("plan", "joined", "rate"),
    [
        # of a placed one all slots, or nothing flows
        (placed({"n1/0": {"work": 1}, "n2/0": {"out": 1}}), 1, 0.0),
        (placed({"n1/0": {"work": 1}, "n2/0": {"out": 1}}), 2, 100.0),
        (placed({"n1/0": {"work": 1}}, rate=None), 1, UNLIMITED),
    ],
)
def test_capacity_is_what_the_plan_predicts_for_what_has_joined(plan: PipelinePlan, joined: int, rate: float) -> None:
    assert planned_capacity(plan, joined) == pytest.approx(rate)


def test_demands_of_a_slot_are_those_of_its_threads() -> None:
    plan = placed({"n1/0": {"work": 3, "out": 1}, "n1/1": {"other": 1}})
    # 3 * 50 + 10 points; 3 * 100 + 20 MB
    assert slot_demand(plan, plan.slots[0]) == pytest.approx((1.6, 320.0))
    assert slot_demand(plan, plan.slots[1]) is None


@dataclass(frozen=True)
class Models(RatePerUnit):
    """The source's rows come to `work`, and half of them to `out`."""

    def gains_of(self, _: Submission) -> dict[str, float]:
        return {"work": 1.0, "out": 0.5}


def ordered(plan: PipelinePlan, serial: int = 1) -> PipelineOrder:
    submission = Submission("p", "linear", target=ServiceTarget(rate=80.0))
    return PipelineOrder("p", serial, 1, OrderKind.RUN, submission, plan.places, load="80", plan=plan)


class Pipeline:
    """A pipeline whose driver takes 1 s to start, and each executor 2 s."""

    def __init__(self, plan: PipelinePlan) -> None:
        self.now = 0.0
        self.driver = SimulatedDriver(ordered(plan), 0.0, Models(), 1, Times(driver=1.0, executor=2.0))
        self.seen: list[Observation] = []

    def pass_time(self, seconds: float) -> list[Observation]:
        seen: list[Observation] = []
        for _ in range(round(seconds / 0.5)):
            self.now += 0.5
            seen += self.driver.look(self.now)
        self.seen += seen
        return seen

    def last(self, kind: type) -> Any:
        return next(it for it in reversed(self.seen) if isinstance(it, kind))


A = placed({"n1/0": {"work": 1}, "n2/0": {"work": 1, "out": 1}})
B = placed({"n1/0": {"work": 1}, "n3/0": {"work": 2, "out": 1}})


def test_a_placed_one_flows_by_its_former_plan_until_the_next_has_all_its_slots() -> None:
    pipeline = Pipeline(A)
    pipeline.pass_time(10.0)
    assert pipeline.last(Holds).slots == A.places
    pipeline.driver.take(ordered(B, 2), pipeline.now)
    # the executor on n3 takes 2 s; meanwhile that on n2 stays, and rows flow
    pipeline.pass_time(1.5)
    assert pipeline.last(Holds) == Holds("p", 2, (Slot("n1", 0), Slot("n2", 0)))
    assert pipeline.last(Readings).values["rate"] == pytest.approx(80.0)
    pipeline.pass_time(4.0)
    assert pipeline.last(Holds) == Holds("p", 2, B.places)
    assert FirstTuple("p", 2) in pipeline.seen


def test_a_placed_one_that_lost_a_node_does_nothing() -> None:
    pipeline = Pipeline(A)
    pipeline.pass_time(10.0)
    pipeline.driver.lose("n2")
    pipeline.pass_time(3.0)
    assert pipeline.last(Readings).values["rate"] == 0.0
    assert pipeline.last(Holds).slots == (Slot("n1", 0),)


def test_a_fused_one_goes_on_with_the_slots_that_are_left() -> None:
    # 10 rows/s a slot by the models of these executors, whatever the plan predicts
    pipeline = Pipeline(fused("n1/0", "n2/0"))
    pipeline.pass_time(10.0)
    assert pipeline.last(Readings).values["rate"] == pytest.approx(20.0)
    pipeline.driver.lose("n2")
    pipeline.pass_time(3.0)
    assert pipeline.last(Readings).values["rate"] == pytest.approx(10.0)


def test_use_is_that_of_the_demands() -> None:
    pipeline = Pipeline(A)
    # until what had waited for it is done, and longer than a window of the parts
    pipeline.pass_time(60.0)
    readings = pipeline.last(Readings).values
    # busy 80 / 100; demands are 50 points on n1 and 60 on n2, 100 and 120 MB
    assert readings["busy"] == pytest.approx(0.8)
    assert (readings["cpu"], readings["memory_mb"]) == (pytest.approx(0.8 * 1.1), 220.0)
    parts = {
        (it.operator, None if it.slot is None else str(it.slot)): it.values
        for seen in pipeline.seen
        if isinstance(seen, Readings)
        for it in seen.parts
    }
    assert parts["work", None] == {"rate_in": pytest.approx(80.0), "busy": pytest.approx(0.8), "threads": 2.0}
    assert parts["work", "n1/0"]["rate_in"] == pytest.approx(40.0)
    assert parts["out", "n2/0"] == {"rate_in": pytest.approx(40.0), "busy": pytest.approx(0.8), "threads": 1.0}
    assert ("out", "n1/0") not in parts
    assert parts[None, "n2/0"] == {"cpu": pytest.approx(0.48), "memory_mb": 120.0}
