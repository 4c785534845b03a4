"""What executors hold, what of a live cluster is free to plan for, and files of placed pipelines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.api.live import LiveCluster
from penstock.base.errors import BadInputError
from penstock.cluster.topology import Node, Slot
from penstock.control.executors.driver_files import DriverOrder
from penstock.control.executors.driver_processes import held_of
from penstock.inputs.finders import builtin_pipeline, is_placed_file, one_placed_plan, placed_plans

if TYPE_CHECKING:
    from pathlib import Path


def slots(*names: str) -> tuple[Slot, ...]:
    return tuple(Slot(name.split("/")[0], int(name.split("/")[1])) for name in names)


def test_holdings_are_what_spark_says() -> None:
    ordered = slots("n1/0", "n1/1", "n2/0")
    assert held_of(ordered, {"n1": 2, "n2": 1}) == ordered
    assert held_of(ordered, {"n1": 1}) == slots("n1/0")
    # an executor elsewhere has still to go: nothing is said yet
    assert held_of(ordered, {"n1": 2, "n2": 1, "n3": 1}) is None
    order = DriverOrder(kind="run", serial=1, incarnation=1, fence=1, slots=(("n1", 0),))
    assert order.places == slots("n1/0")


def test_a_live_cluster_is_planned_for_by_the_slots_that_are_free() -> None:
    capacity = {"cpu": 300.0, "memory_mb": 9000.0}
    live = LiveCluster((Node("n1", "r1", 3, capacity), Node("n2", "r1", 3, capacity)), {"n1": (2,), "n2": ()})
    (left,) = live.cluster.nodes
    assert (left.name, left.slots, dict(left.capacity)) == ("n1", 1, {"cpu": 100.0, "memory_mb": 3000.0})
    plan = live.numbered(penstock.plan("linear", 5, cluster=live.cluster))
    assert {bundle.slot for bundle in plan.placement.bundles} == {Slot("n1", 2)}
    assert [node["slots"] for node in plan.document()["nodes"]] == [3]


class TestPlacedFiles:
    def placed(self, folder: Path, **more: Any) -> str:
        rows = [{"node": "n1", "slot": 0, "threads": dict.fromkeys(builtin_pipeline("linear").operators, 1)}]
        document = {"placement": {"orders": rows}, "runs": {"orders": {"pipeline": "linear", "rate": 7.0}}, **more}
        (folder / "placed.json").write_text(json.dumps(document))
        return str(folder / "placed.json")

    def test_a_plan_for_every_pipeline(self, tmp_path: Path) -> None:
        file = self.placed(tmp_path)
        assert is_placed_file(file)
        (plan,) = placed_plans(file).values()
        assert (plan.pipeline, plan.rate, set(plan.threads_by_slot())) == ("linear", 7.0, {Slot("n1", 0)})
        assert one_placed_plan(file, None) == plan

    def test_code_beside_the_file_is_found(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "path", list(sys.path))
        one_placed_plan(self.placed(tmp_path), "orders")
        assert str(tmp_path.resolve()) in sys.path

    def test_what_is_wrong(self, tmp_path: Path) -> None:
        with pytest.raises(BadInputError, match="nothing says what pipeline 'orders' runs"):
            placed_plans(self.placed(tmp_path, runs={}))
        with pytest.raises(BadInputError, match="no pipeline 'other' is placed"):
            one_placed_plan(self.placed(tmp_path), "other")
        with pytest.raises(BadInputError, match="is not in both the placement and 'nexmark-q0'"):
            placed_plans(self.placed(tmp_path, runs={"orders": {"pipeline": "nexmark-q0"}}))
