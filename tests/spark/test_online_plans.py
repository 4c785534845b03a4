"""A controller on a cluster whose nodes differ in memory and rack: it plans each pipeline by the pipeline's own placer,
and plans again when a load rises, a node dies and a priority changes. Rows are counted in the sinks."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from pyarrow import dataset

import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.cluster.contract import open_cluster
from penstock.cluster.topology import Slot
from penstock.spark.clusters.local.lifecycle import kill_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PATIENCE = 240.0
CLUSTER = """
nodes:
  - {name: n1, rack: left, slots: 4, memory_mb: 9000}
  - {name: n2, rack: left, slots: 4, memory_mb: 5000}
  - {name: n3, rack: right, slots: 4, memory_mb: 9000}
  - {name: n4, rack: right, slots: 4, memory_mb: 5000}
"""
MEMORY = {"n1": 9000, "n2": 5000, "n3": 9000, "n4": 5000}
PLACERS = {"storm": "r-storm", "aware": "sam", "finish": "eft", "packed": "packing"}

Plan = dict[str, dict[str, Any]]
"""Threads and memory of every slot, as NODE/NUMBER."""


class Fleet:
    """The pipelines of a controller, as its clients, the Master and the sinks see them."""

    def __init__(self, state: Path, out: Path) -> None:
        self.state, self.out = state, out
        self.client: Any = penstock.connect(folder=state)

    def until(self, what: str, true: Callable[[], object]) -> None:
        waited = Stopwatch()
        while not true():
            assert waited.seconds() < PATIENCE, f"no {what} within {PATIENCE:g} s: {self.client.list()}"
            pause(0.5)

    def plan(self, name: str) -> Plan:
        plan = self.client.show(name)["plan"]
        return {} if plan is None else dict(plan["slots"])

    def await_slots(self, name: str, count: int) -> None:
        """Wait until the plan of a pipeline has so many slots."""
        self.until(f"{count} slots of {name}", lambda: len(self.plan(name)) >= count)

    def plans(self) -> dict[str, Plan]:
        return {name: self.plan(name) for name in self.names()}

    def names(self) -> list[str]:
        return [one["name"] for one in self.client.list() if one["state"] not in {"killed", "paused"}]

    def holders(self) -> Mapping[Slot, Any]:
        return open_cluster(folder=self.state).holdings() or {}

    def settled(self) -> bool:
        """Whether every pipeline is active, and the Master has exactly the executors that were planned."""
        if any(one["state"] != "active" for one in self.client.list()):
            return False
        planned = {slot: it["memory_mb"] for plan in self.plans().values() for slot, it in plan.items()}
        held = {str(slot): holder.memory_mb for slot, holder in self.holders().items()}
        return held == {slot: int(memory_mb) for slot, memory_mb in planned.items()}

    def settle(self, what: str) -> dict[str, Plan]:
        """Wait for what was planned, check memory, and return the plans."""
        self.until(what, self.settled)
        plans = self.plans()
        used: Counter[str] = Counter()
        for plan in plans.values():
            for slot, it in plan.items():
                used[slot.partition("/")[0]] += it["memory_mb"]
        assert all(used[node] <= MEMORY[node] for node in used), used
        return plans

    def processes(self) -> dict[str, int]:
        """The process of the executor on every slot that is held."""
        by_id = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = process.cmdline()
                if "--executor-id" in words and "--app-id" in words:
                    by_id[words[words.index("--app-id") + 1], words[words.index("--executor-id") + 1]] = process.pid
        return {str(slot): by_id[it.application, str(it.executor)] for slot, it in self.holders().items()}

    def rows(self, name: str) -> list[int]:
        folder = self.out / name
        if not any(folder.glob("*.parquet")):
            return []
        table = dataset.dataset(str(folder), format="parquet", exclude_invalid_files=True).to_table(columns=["value"])
        return [int(value) for value in table["value"].to_pylist()]

    def flow(self, what: str) -> None:
        """Wait until every pipeline has put more rows into its sink."""
        before = {name: len(self.rows(name)) for name in self.names()}
        self.until(f"rows after {what}", lambda: all(len(self.rows(it)) > count for it, count in before.items()))

    def decided(self, name: str, kind: str, why: str) -> bool:
        return any(it["kind"] == kind and why in it["why"] for it in self.client.decisions(name))

    def check_kept(self, before: Mapping[str, Plan], processes: Mapping[str, int], gone: str = "") -> int:
        """Check that executors whose slots have the same threads and memory as before kept their processes; return how
        many did."""
        now, after = self.processes(), self.plans()
        kept = [
            slot
            for name, plan in after.items()
            for slot, it in plan.items()
            if before.get(name, {}).get(slot) == it and slot.partition("/")[0] != gone
        ]
        assert {slot: now[slot] for slot in kept} == {slot: processes[slot] for slot in kept}
        return len(kept)


@pytest.mark.long("four pipelines and their executors are started, and planned anew three times")
def test_each_pipeline_is_planned_by_its_own_placer_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, state, out = Path(penstock.__file__).parent.parent, tmp_path / "state", tmp_path / "out"
    monkeypatch.setenv("PENSTOCK_TEST_OUT", str(out))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(source), str(Path(__file__).parent)]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    penstock.up(cluster=tmp_path / "cluster.yaml", unit_slots=1, policy="dynamic-priority", folder=state)
    fleet = Fleet(state, out)
    try:
        for name, placer in PLACERS.items():
            fleet.client.submit(
                name, f"ordered_pipelines:{name}", rate=100.0, load="50", elastic=False, engine="placed",
                placer=placer, allocator="mba", executor_memory_mb=512,
            )  # fmt: skip
        before = fleet.settle("start of four pipelines")
        fleet.flow("their start")
        assert {name: fleet.client.show(name)["placer"] for name in PLACERS} == PLACERS

        # two of them are to keep four times as much
        processes = fleet.processes()
        for name in ("storm", "finish"):
            fleet.client.target(name, rate=400.0)
            fleet.await_slots(name, len(before[name]) + 1)
        grown = fleet.settle("load step")
        fleet.flow("the load step")
        assert fleet.check_kept(before, processes) >= 2
        for name in ("storm", "finish"):
            assert fleet.decided(name, "grow", f"target of '{name}' changed")
            assert sum(it.get("work", 0) for it in grown[name].values()) == 2

        # the node of `aware` dies: what sat there is placed again, and the others stay
        processes = fleet.processes()
        (lost,) = {slot.partition("/")[0] for slot in grown["aware"]}
        hit = {name for name, plan in grown.items() if any(slot.startswith(f"{lost}/") for slot in plan)}
        kill_worker(lost, state)
        fleet.until("its loss", lambda: all(not slot.startswith(f"{lost}/") for slot in fleet.plan("aware")))
        moved = fleet.settle("another node")
        fleet.flow("the death of a node")
        assert fleet.check_kept(grown, processes, lost) >= 1
        assert all(not slot.startswith(f"{lost}/") for plan in moved.values() for slot in plan)
        for name in hit:
            assert fleet.decided(name, "move", f"node '{lost}' was lost"), name

        # a priority changes
        processes = fleet.processes()
        fleet.client.priority("packed", 1)
        fleet.until("another priority", lambda: fleet.decided("packed", "priority", "set to 1"))
        fleet.settle("the priority")
        fleet.flow("the change of priority")
        fleet.check_kept(moved, processes)

        for name in PLACERS:
            fleet.client.pause(name)
        fleet.until("drain of all", lambda: {one["state"] for one in fleet.client.list()} == {"paused"})
        for name in PLACERS:
            counts = Counter(fleet.rows(name))
            assert len(counts) > 500, name
            assert sorted(counts) == list(range(len(counts))), f"rows of {name} were lost"
            assert set(counts.values()) == {1}, f"rows of {name} were doubled"
    finally:
        fleet.client.close()
        penstock.down(state)
