"""Plans for exactly the slots a pipeline was given, and what of a live cluster is free to plan for."""

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
from penstock.control.executors.spark_runs import plan_on_share
from penstock.inputs.finders import builtin_pipeline, is_placed_file, one_placed_plan, placed_plans
from penstock.modelling.library import reference_library

if TYPE_CHECKING:
    from pathlib import Path


def slots(*names: str) -> tuple[Slot, ...]:
    return tuple(Slot(name.split("/")[0], int(name.split("/")[1])) for name in names)


def own() -> penstock.Pipeline:
    """Operators no model knows."""
    made = penstock.pipeline("own")
    made.source("in")
    made.then("a", logic=lambda row: row, schema="value long")
    made.then("b", logic=lambda row: row, schema="value long")
    made.sink("out")
    return made.build()


class TestOnAShare:
    @pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
    def test_without_models_every_slot_has_a_thread(self, count: int) -> None:
        share = slots(*(f"n{number}/1" for number in range(count)))
        rows = plan_on_share(own(), reference_library(), share, 10.0).threads_by_slot()
        assert set(rows) == set(share)
        threads = {name: sum(row.get(name, 0) for row in rows.values()) for name in ("in", "a", "b", "out")}
        # four operators; what is more than four slots is more threads of a and b in turn
        assert threads == {"in": 1, "a": 1 + (count > 4), "b": 1 + (count > 5), "out": 1}

    def test_by_the_models_within_the_share(self) -> None:
        share = slots("n1/1", "n3/0", "n3/1")
        planned = plan_on_share(builtin_pipeline("linear"), reference_library(), share, 10.0)
        assert set(planned.threads_by_slot()) <= set(share)
        assert planned.rate >= 10

    def test_its_own_plan_as_long_as_the_slots_are_enough(self) -> None:
        first = plan_on_share(own(), reference_library(), slots("n1/0", "n2/0"), 10.0)
        moved = plan_on_share(own(), reference_library(), slots("n2/0", "n4/1"), 10.0, first)
        before, after = first.threads_by_slot(), moved.threads_by_slot()
        assert after == {Slot("n2", 0): before[Slot("n2", 0)], Slot("n4", 1): before[Slot("n1", 0)]}
        fewer = plan_on_share(own(), reference_library(), slots("n2/0"), 10.0, first)
        assert fewer.threads_by_slot() == {Slot("n2", 0): {"in": 1, "a": 1, "b": 1, "out": 1}}


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
