"""The plan of an order on its way to a driver, and how the driver's engine is given it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

import penstock
from penstock.base.errors import BadInputError, ClusterError
from penstock.base.files import read_value
from penstock.cluster.contract import ExecutorSize, NodeState
from penstock.cluster.topology import Node, Slot
from penstock.control.core.messages import OrderKind, PipelineOrder
from penstock.control.core.records import EngineName, PipelinePlan, PlannedSlot, Submission
from penstock.control.executors.driver_files import ORDER, DriverOrder, PlanEntry
from penstock.control.executors.driver_processes import config_of
from penstock.control.executors.spark_runs import check_engine, check_memory, plan_to_run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NODES = {
    "n1": Node("n1", "left", 2, {"cpu": 200.0, "memory_mb": 2000.0}),
    "n2": Node("n2", "right", 3, {"cpu": 300.0, "memory_mb": 9000.0}),
}


def own() -> penstock.Pipeline:
    made = penstock.pipeline("own")
    made.source("in")
    made.then("work", logic=lambda row: row, schema="value long")
    made.sink("out")
    return made.build()


def placed(rows: Mapping[str, Mapping[str, int]], memory_mb: float = 700.0, **more: Any) -> PipelinePlan:
    slots = [PlannedSlot(name[:2], int(name[3:]), threads, memory_mb) for name, threads in rows.items()]
    plan = PipelinePlan(EngineName.PLACED, "mba", "r-storm", "ends", 50.0, 80.0, tuple(slots))
    return replace(plan, **more)


def fused(*names: str, memory_mb: float = 900.0, **more: Any) -> PipelinePlan:
    slots = tuple(PlannedSlot(name[:2], int(name[3:]), {}, memory_mb) for name in names)
    return replace(PipelinePlan(EngineName.FUSED, "mba", "eft", "ends", 50.0, None, slots), **more)


def order(plan: PipelinePlan | None, serial: int = 1, slots: tuple[tuple[str, int], ...] = ()) -> DriverOrder:
    entry = None if plan is None else PlanEntry.of(plan)
    named = slots if plan is None else tuple((slot.node, slot.number) for slot in plan.places)
    return DriverOrder(kind=OrderKind.RUN, serial=serial, incarnation=1, fence=1, slots=named, plan=entry)


A = {"n1/0": {"in": 1, "work": 1}, "n2/2": {"work": 2, "out": 1}}


class TestOrders:
    def test_a_plan_comes_out_of_its_file_as_it_went_in(self, tmp_path: Path) -> None:
        demands = {"work": {"cpu": 60.0, "memory_mb": 128.0}}
        written = order(placed(A, demands=demands))
        (tmp_path / ORDER).write_text(written.model_dump_json())
        assert read_value(DriverOrder, tmp_path / ORDER) == written
        assert written.threads == {Slot("n1", 0): A["n1/0"], Slot("n2", 2): A["n2/2"]}
        assert written.plan is not None
        assert written.plan.demands == demands

    def test_an_order_of_before_has_no_plan(self, tmp_path: Path) -> None:
        former = {"kind": "run", "serial": 3, "incarnation": 1, "fence": 2, "slots": [["n1", 0]], "forced": False}
        (tmp_path / ORDER).write_text(json.dumps(former))
        read = read_value(DriverOrder, tmp_path / ORDER)
        assert (read.plan, read.executors) == (None, {Slot("n1", 0): ExecutorSize()})
        assert read.threads == {Slot("n1", 0): {"pipeline": 1}}

    @pytest.mark.parametrize(
        ("memory_mb", "cores", "size"),
        [(900.0, 1.0, (900, 1)), (900.9, 0.3, (900, 1)), (100.0, 1.5, (512, 2)), (6000.0, 3.0, (6000, 3))],
    )
    def test_executors_are_of_the_plan_as_far_as_spark_can(
        self, memory_mb: float, cores: float, size: tuple[int, int]
    ) -> None:
        ordered = order(fused("n1/1", "n2/0", memory_mb=memory_mb, executor_cores=cores))
        assert ordered.executors == dict.fromkeys((Slot("n1", 1), Slot("n2", 0)), ExecutorSize(*size))

    @pytest.mark.parametrize(
        ("plan", "complaint"),
        [
            (fused("n1/0", "n1/0"), "a slot is listed twice"),
            (fused("n1/0", engine=EngineName.AUTO), "expected fused or placed, found auto"),
            (placed({"n1/0": {}}), "slot n1/0 of a placed plan has no threads"),
            (placed({"n1/0": {"in": 0}}), "greater than or equal to 1"),
            (placed(A, engine=EngineName.FUSED), "slot n1/0 of a fused plan has threads of single operators"),
            (fused("n1/0", memory_mb=0.0), "greater than 0"),
            (fused("n1/0", rate=float("nan")), "finite number"),
        ],
    )
    def test_what_is_no_plan(self, plan: PipelinePlan, complaint: str) -> None:
        with pytest.raises(ValidationError, match=complaint):
            PlanEntry.of(plan)

    def test_a_plan_for_other_slots_than_those_ordered(self) -> None:
        document = order(fused("n1/0")).model_dump(mode="json")
        with pytest.raises(ValidationError, match="its slots are not those of the order"):
            DriverOrder.model_validate_json(json.dumps({**document, "slots": [["n1", 1]]}))

    @pytest.mark.parametrize(
        ("after", "same"),
        [
            (placed(A), True),
            (placed(dict(reversed(A.items()))), True),
            (placed(A, rate=70.0, predicted_rate=None, placer="eft"), True),
            (placed(A, memory_mb=800.0), False),
            (placed(A, segmenter="none"), False),
            (placed({**A, "n1/0": {"in": 1, "work": 2}}), False),
            (placed({**A, "n1/1": {"work": 1}}), False),
        ],
    )
    def test_executors_change_only_for_what_they_run(self, after: PipelinePlan, *, same: bool) -> None:
        assert order(after, 2).runs_as(order(placed(A))) is same
        assert order(placed(A)).runs_as(order(after, 2)) is same

    def test_the_plan_says_the_engine(self) -> None:
        submission = Submission("p", "linear", engine=EngineName.AUTO)
        asked = PipelineOrder("p", 1, 1, OrderKind.RUN, submission, fused("n1/0").places)
        assert config_of(asked, {}).engine == "fused"
        assert config_of(replace(asked, plan=placed(A)), {}).engine == "placed"


class TestPlansToRun:
    def test_they_are_the_same_threads_on_the_same_slots(self) -> None:
        saved = plan_to_run(order(placed(A)), own(), NODES)
        assert saved.threads_by_slot() == {Slot("n1", 0): A["n1/0"], Slot("n2", 2): A["n2/2"]}
        assert (saved.segmenter, saved.placer, saved.allocator, saved.rate) == ("ends", "r-storm", "mba", 50.0)
        assert [(node.name, node.rack, node.slots) for node in saved.nodes] == [("n1", "left", 2), ("n2", "right", 3)]
        assert {name: operator.threads for name, operator in saved.operators.items()} == {"in": 1, "work": 3, "out": 1}

    def test_none_is_made_where_none_was_ordered(self) -> None:
        with pytest.raises(BadInputError, match="order 7 has no plan: a placed pipeline runs the plan of its"):
            plan_to_run(order(None, 7, (("n1", 0),)), own(), NODES)

    def test_what_cannot_be_run(self) -> None:
        with pytest.raises(BadInputError, match="no thread of operator 'out'"):
            plan_to_run(order(placed({"n1/0": {"in": 1, "work": 1}})), own(), NODES)
        with pytest.raises(ClusterError, match="node 'n2' of the plan is not there"):
            plan_to_run(order(placed(A)), own(), {"n1": NODES["n1"]})
        with pytest.raises(BadInputError, match="order 1 has a fused plan, and the pipeline runs placed"):
            check_engine(order(fused("n1/0")), "placed")

    def test_executors_that_their_node_has_no_memory_for(self) -> None:
        nodes = [NodeState("n1", capacity={"memory_mb": 1400.0}), NodeState("n2"), NodeState("n3")]
        fits = placed({"n1/0": {"in": 1, "work": 1}, "n1/1": {"work": 1}, "n2/0": {"out": 1}})
        check_memory(order(fits), nodes)
        too_much = replace(fits, slots=(*fits.slots, PlannedSlot("n1", 2, {"work": 1}, 600.0)))
        with pytest.raises(BadInputError, match="its executors on node 'n1' need 2000 MB, and the node has 1400 MB"):
            check_memory(order(too_much), nodes)
