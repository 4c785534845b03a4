"""Plans ordered by hand, on a cluster whose nodes differ: drivers run them as they are and change from one to another
while rows flow. The rows are counted in the sinks."""

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
from penstock.cluster.topology import Cluster, Node, Slot
from penstock.control.core.messages import Died, Drained, Holds, OrderKind, PipelineOrder, Started
from penstock.control.core.records import EngineName, PipelinePlan, PlannedSlot, Submission
from penstock.control.executors.driver_files import DRIVER, REPORT, DriverProcess, DriverReport, folder_of, get
from penstock.control.executors.driver_processes import DriverExecutors, end_drivers
from penstock.spark.clusters.local.lifecycle import running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.control.core.messages import Observation

PATIENCE = 150.0
NODES = Cluster(
    (
        Node("n1", "left", 2, {"cpu": 200.0, "memory_mb": 1200.0}),
        Node("n2", "left", 1, {"cpu": 100.0, "memory_mb": 600.0}),
        Node("n3", "right", 1, {"cpu": 100.0, "memory_mb": 1000.0}),
    )
)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("ordered")
    with running_cluster(cluster=NODES, folder=folder):
        yield folder


def placed(rows: Mapping[str, Mapping[str, int]], memory: Mapping[str, float] | None = None) -> PipelinePlan:
    """600 MB for the executor of each slot that `memory` does not name."""
    slots = tuple(PlannedSlot(it[:2], int(it[3:]), rows[it], (memory or {}).get(it, 600.0)) for it in rows)
    return PipelinePlan(EngineName.PLACED, "mba", "r-storm", "single", 100.0, None, slots)


def fused(**memory: float) -> PipelinePlan:
    """An executor on each slot, as n1_0=600."""
    slots = tuple(PlannedSlot(name[:2], int(name[3:]), {}, memory_mb) for name, memory_mb in memory.items())
    return PipelinePlan(EngineName.FUSED, "mba", "eft", "single", 100.0, None, slots)


class Ordered:
    """One pipeline, its orders and what came of them."""

    def __init__(self, name: str, state: Path, folder: Path) -> None:
        source = Path(penstock.__file__).parent.parent
        self.name, self.state, self.out = name, state, folder / "out" / name
        environment = {
            **os.environ,
            "PENSTOCK_STATE": str(state),
            "PENSTOCK_RUNS": str(folder / "runs"),
            "PENSTOCK_TEST_OUT": str(folder / "out"),
            "PYTHONPATH": os.pathsep.join([str(source), str(Path(__file__).parent)]),
        }
        self.base = folder / "pipelines"
        self.executors = DriverExecutors(self.base, environment)
        self.submission = Submission(name, f"ordered_pipelines:{name}", engine=EngineName.AUTO)
        self.serial, self.incarnation = 0, 1
        self.seen: list[Observation] = []

    def order(self, plan: PipelinePlan, kind: OrderKind = OrderKind.RUN, incarnation: int = 1) -> None:
        self.serial, self.incarnation = self.serial + 1, incarnation
        order = PipelineOrder(
            self.name, self.serial, incarnation, kind, self.submission, plan.places, load="100", plan=plan
        )
        self.executors.want([order], 1)

    def until(self, what: str, true: Callable[[], object]) -> None:
        waited = Stopwatch()
        while not true():
            self.seen += self.executors.observe(0.0)
            log = self.executors.log_of(self.name)
            assert waited.seconds() < PATIENCE, f"no {what} within {PATIENCE:g} s: {self.seen[-5:]}, {log}"
            pause(0.2)

    def run(self, plan: PipelinePlan, incarnation: int = 1) -> None:
        """Order it, and wait until it runs on exactly its slots and rows flow there."""
        self.order(plan, incarnation=incarnation)
        holds = Holds(self.name, self.serial, plan.places)
        self.until(
            f"hold of {plan.places}", lambda: Started(self.name, incarnation) in self.seen and holds in self.seen
        )
        self.until("first tuple", lambda: (said := self.said) is not None and said.first_tuple == self.serial)
        # executors that are not ordered any more may take a moment to go
        self.until("those executors and no others", lambda: self.memory() == ordered_memory(plan))

    @property
    def said(self) -> DriverReport | None:
        return get(DriverReport, folder_of(self.base, self.name), REPORT)

    def memory(self) -> dict[Slot, float | None]:
        """Memory of the executor on every slot that is held, as the Master says."""
        return {slot: holder.memory_mb for slot, holder in self.holdings().items()}

    def holdings(self) -> Mapping[Slot, Any]:
        return open_cluster(folder=self.state).holdings() or {}

    def processes(self) -> dict[Slot, int]:
        """The process of the executor on every slot that is held."""
        by_id = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = process.cmdline()
                if "--executor-id" in words and "--app-id" in words:
                    by_id[words[words.index("--app-id") + 1], words[words.index("--executor-id") + 1]] = process.pid
        return {slot: by_id[it.application, str(it.executor)] for slot, it in self.holdings().items()}

    def rows(self) -> list[tuple[int, str]]:
        if not any(self.out.glob("*.parquet")):
            return []
        table = dataset.dataset(str(self.out), format="parquet", exclude_invalid_files=True).to_table(
            columns=["value", "token"]
        )
        return list(zip(table["value"].to_pylist(), table["token"].to_pylist(), strict=True))

    def tokens(self, rows: int = 150) -> set[str]:
        """The starts of processes that handle the rows of now: of the next ones that come to the sink."""
        known = len(self.rows())
        self.until("rows", lambda: len(self.rows()) > known + rows)
        return {token for _, token in sorted(self.rows())[-rows // 2 :]}

    def kill(self) -> None:
        """Kill the driver, and nothing that it has started."""
        driver = get(DriverProcess, folder_of(self.base, self.name), DRIVER)
        assert driver is not None
        psutil.Process(driver.pid).kill()
        self.until("its death", lambda: any(isinstance(it, Died) for it in self.seen))

    def drain(self, plan: PipelinePlan) -> None:
        self.order(plan, OrderKind.DRAIN, self.incarnation)
        self.until("drain", lambda: Drained(self.name, self.incarnation) in self.seen)
        counts = Counter(value for value, _ in self.rows())
        assert len(counts) > 500
        assert sorted(counts) == list(range(len(counts))), "rows were lost"
        assert set(counts.values()) == {1}, "rows were doubled"


def ordered_memory(plan: PipelinePlan) -> dict[Slot, float]:
    return {slot.place: slot.memory_mb for slot in plan.slots}


@pytest.fixture
def made(state: Path, tmp_path: Path) -> Iterator[Callable[[str], Ordered]]:
    bases = []

    def make(name: str) -> Ordered:
        pipeline = Ordered(name, state, tmp_path)
        bases.append(pipeline.base)
        return pipeline

    yield make
    for base in bases:
        end_drivers(base)


HEAD = {"n1/0": {"in": 1, "work": 1}, "n1/1": {"out": 1}}


def test_a_placed_plan_changes_threads_and_moves_a_slot(made: Callable[[str], Ordered]) -> None:
    pipeline = made("placed")
    pipeline.run(placed({**HEAD, "n2/0": {"work": 1}}))
    processes, tokens = pipeline.processes(), pipeline.tokens()
    assert len(tokens) == 2

    # other threads on the same slots: every process stays
    more = placed({**HEAD, "n2/0": {"work": 3}})
    pipeline.run(more)
    assert pipeline.processes() == processes
    assert pipeline.tokens() == tokens
    said = pipeline.said
    assert said is not None
    assert said.moved_threads == 0
    assert said.pause_seconds is not None
    assert 0 < said.pause_seconds < 5
    shares = {part.slot: part.values["threads"] for part in said.parts if part.operator == "work" and part.slot}
    assert shares == {("n1", 0): 1.0, ("n2", 0): 3.0}

    # a slot moves to another node: what is on the others stays
    moved = placed({**HEAD, "n3/0": {"work": 3}})
    pipeline.run(moved)
    after = pipeline.processes()
    assert {slot: pid for slot, pid in after.items() if slot.node == "n1"} == {
        slot: pid for slot, pid in processes.items() if slot.node == "n1"
    }
    assert len(pipeline.tokens() & tokens) == 1
    said = pipeline.said
    assert said is not None
    assert said.moved_threads == 3
    pipeline.drain(moved)


def test_a_placed_plan_changes_memory_is_killed_and_resumes(made: Callable[[str], Ordered]) -> None:
    pipeline = made("resized")
    pipeline.run(placed({**HEAD, "n3/0": {"work": 1}}))
    processes, tokens = pipeline.processes(), pipeline.tokens()
    larger = placed({**HEAD, "n3/0": {"work": 1}}, {"n3/0": 900.0})
    pipeline.run(larger)
    after = pipeline.processes()
    assert [slot for slot in after if after[slot] != processes[slot]] == [Slot("n3", 0)]
    assert len(pipeline.tokens() & tokens) == 1
    pipeline.kill()
    pipeline.run(larger, incarnation=2)
    assert not pipeline.tokens() & tokens
    pipeline.drain(larger)


def test_a_fused_plan_is_on_its_nodes_changes_and_resumes(made: Callable[[str], Ordered]) -> None:
    pipeline = made("fused")
    pipeline.run(fused(n1_1=600.0, n1_0=600.0, n3_0=600.0))
    before = pipeline.processes()

    # one slot moves to another node, and another gets more memory: only those two executors are others
    larger = fused(n1_1=600.0, n2_0=600.0, n3_0=900.0)
    pipeline.run(larger)
    after = pipeline.processes()
    assert sorted(slot for slot in after if after[slot] != before.get(slot)) == [Slot("n2", 0), Slot("n3", 0)]
    said = pipeline.said
    assert said is not None
    assert said.moved_threads == 1
    pipeline.until("cost", lambda: (said := pipeline.said) is not None and said.pause_seconds is not None)
    pipeline.kill()
    pipeline.run(larger, incarnation=2)
    pipeline.tokens()
    pipeline.drain(larger)


def test_a_placed_pipeline_without_a_plan_is_refused(made: Callable[[str], Ordered]) -> None:
    pipeline = made("placed")
    submission = Submission("placed", "ordered_pipelines:placed", engine=EngineName.PLACED)
    pipeline.executors.want([PipelineOrder("placed", 1, 1, OrderKind.RUN, submission, (Slot("n1", 0),))], 1)
    pipeline.until("death", lambda: any(isinstance(it, Died) for it in pipeline.seen))
    (died,) = [it for it in pipeline.seen if isinstance(it, Died)]
    assert "order 1 has no plan: a placed pipeline runs the plan of its controller" in died.why
