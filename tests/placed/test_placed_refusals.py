"""What a placed run refuses, in one line, before or while it runs; and what it puts aside."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from local_processes import code_of, conductor, laid_out, line
from test_engine import A, B, C, launcher, same, turn_until, wait, written

import penstock
from penstock.base.errors import BadInputError, ClusterError
from penstock.cluster.contract import Holder, ManagedNode
from penstock.cluster.simulated import SimulatedCluster
from penstock.cluster.topology import CPU, Slot
from penstock.connectors.staged_sinks import SinkFiles, sweep
from penstock.connectors.storage import storage
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.engines.placed import monitoring as execution
from penstock.engines.placed.endpoints import check_sources
from penstock.engines.placed.flow.states import FlowState
from penstock.engines.placed.launchers import LocalLauncher
from penstock.engines.placed.preparation import check_nodes, prepare_placed
from penstock.engines.placed.run_folder import VERSION, RunDescription, RunFolder
from penstock.runtime.dead_letters import DEAD_LETTERS

assert launcher  # a fixture


OTHER, OWN = Holder("app-1", "other"), Holder("app-own", "own")


class _Answers(SimulatedCluster):
    """Two nodes of two slots, with answers of a manager."""

    def __init__(self, held: dict[Slot, Holder], *, free: float = 200, alive: tuple[str, ...] = ("n1", "n2")) -> None:
        super().__init__(master="spark://m:1")
        self._held, self._free, self._living = held, free, alive
        self.answers = True

    def nodes(self) -> Any:
        states = [
            ManagedNode(name, name in self._living, slots=2, capacity={CPU: 200}, free={CPU: self._free})
            for name in ("n1", "n2")
        ]
        return states if self.answers else None


def check_free(monkeypatch: pytest.MonkeyPatch, cluster: _Answers, *slots: Slot) -> None:
    monkeypatch.setattr(execution, "FREE_SECONDS", 0.0)
    execution.check_free(cluster, slots, "app-own")


def test_a_slot_that_somebody_holds_is_named_with_its_number_and_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    held = _Answers({A: OTHER})
    with pytest.raises(ClusterError, match=r"^slots of the plan are held: n1/0 by 'other', app-1; plan for others"):
        check_free(monkeypatch, held, A, C)
    check_free(monkeypatch, held, B, C)  # the other slot of the node is free
    check_free(monkeypatch, _Answers({A: OWN}), A, B, C)  # what the run itself holds is its own


def test_more_slots_than_are_free_says_by_whom_they_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU of both slots is taken and nobody is listed: executors of an application that has just ended."""
    with pytest.raises(
        ClusterError, match=r"^slots are held by an application that has ended: 2 of 2 slots of 'n1' are held, the plan"
    ):
        check_free(monkeypatch, _Answers({}, free=0), A)


def test_a_node_that_is_not_there_and_a_master_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError, match="node 'n2' is not there"):
        check_free(monkeypatch, _Answers({}, alive=("n1",)), A, C)
    silent = _Answers({})
    silent.answers = False
    with pytest.raises(ClusterError, match="the manager at spark://m:1 does not answer"):
        check_free(monkeypatch, silent, A)


def test_a_plan_for_nodes_the_cluster_does_not_have() -> None:
    job = prepare_placed(penstock.plan("linear", 100), None, None, None)
    cluster: Any = SimpleNamespace(nodes=[SimpleNamespace(name="other", slots=2)])
    with pytest.raises(BadInputError, match=r"of the cluster is not there; plan for this cluster"):
        check_nodes(job, cluster)


def test_a_source_without_offsets_runs_fused() -> None:
    pipeline = Pipeline.of(
        "p",
        [Operator(name="src", kind=Kind.SOURCE, format="rate"), Operator(name="out", kind=Kind.SINK)],
        [Stream(sender="src", receiver="out")],
    )
    with pytest.raises(BadInputError, match=r"^source 'src': placed runs read .*, not 'rate'; run it fused"):
        check_sources(pipeline)


def test_the_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    folders = [RunFolder(tmp_path / name) for name in ("mine", "other")]
    for folder in folders:
        folder.create()
        folder.describe(
            RunDescription(
                version=VERSION,
                run=f"run-{folder.name}",
                pipeline="p",
                master="",
                load={},
                began=0.0,
                routing="shuffle",
                segmenter="ends",
            )
        )
    mine, other = folders
    other.take("plan-000")
    other.give_back()
    (mine.path / "commits").rmdir()
    (other.path / "commits").rename(mine.path / "commits")
    with pytest.raises(BadInputError, match="the checkpoint of another run, 'run-other'"):
        mine.take(None)


def test_a_run_under_a_uri_is_described_asked_and_taken_over(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/run"
    folder = RunFolder(place)
    folder.create()
    description = RunDescription(
        version=VERSION, run="r", pipeline="p", master="", load={}, began=0.0, routing="shuffle", segmenter="ends"
    )
    folder.describe(description)
    plan = penstock.plan("linear", 100).document()
    name = folder.add_plan(plan, [["source"], ["xml"]])
    taken = folder.take(name)
    elsewhere = RunFolder(place)
    assert elsewhere.description == description
    assert elsewhere.held_by is not None
    saved, segments = elsewhere.plan()
    assert (saved.pipeline, segments) == ("linear", [["source"], ["xml"]])
    with pytest.raises(BadInputError, match="files as a source need a folder"):
        _ = folder.path
    folder.give_back()
    assert elsewhere.take(None).conductor == taken.conductor + 1
    assert name != elsewhere.add_plan(plan, [])


def test_a_value_that_cannot_be_sent_is_a_dead_letter_with_its_field(tmp_path: Path, launcher: LocalLauncher) -> None:
    def odd(row: dict[str, Any]) -> dict[str, Any]:
        return {"value": "not a number" if row["value"] == 5 else row["value"]}

    code = code_of(line(Logic(odd), Logic(same)), tmp_path)
    code = replace(code, sinks={**code.sinks, DEAD_LETTERS: SinkFiles(str(tmp_path / "letters"), "json")})
    run = conductor(
        tmp_path, laid_out(code, {"src": {A: 1}, "op0": {A: 1}, "op1": {B: 1}, "out": {B: 1}}), 200.0, launcher
    )
    try:
        turn_until(run, lambda: int(run.run.commit.offsets.get("src", 0)) > 50)
        wait(run, run.drain(end=True))
    finally:
        run.close()
    offset = int(run.run.commit.offsets["src"])
    assert sorted(written(tmp_path)) == [number for number in range(offset) if number != 5]
    (letter,) = [
        json.loads(text) for file in (tmp_path / "letters").glob("*.jsonl") for text in file.read_text().splitlines()
    ]
    assert (letter["operator"], letter["id"], letter["field"]) == ("op0", 5, "value")


def test_what_earlier_conductors_staged_and_nobody_committed_is_forgotten(tmp_path: Path) -> None:
    store = storage(str(tmp_path))
    names = ["run-1-4-9-x-1.parquet", "run-2-5-11-x-1.parquet", "run-3-6-12-x-1.parquet", "run-2-1-1-1-x-1.parquet"]
    for name in names:
        store.write(f"_staged/{name}", lambda file: file.write(b"rows"))
    sweep(str(tmp_path), "run", 3, {"_staged/run-2-5-11-x-1.parquet"})
    assert store.list("_staged") == ["_staged/run-2-5-11-x-1.parquet", "_staged/run-3-6-12-x-1.parquet"]
    sweep(str(tmp_path / "nowhere"), "run", 3, ())


def test_weighted_streams_divide_what_is_sent(tmp_path: Path, launcher: LocalLauncher) -> None:
    operators = [
        Operator(name="src", kind=Kind.SOURCE),
        Operator(name="op0", logic=Logic(same)),
        Operator(name="left", kind=Kind.SINK),
        Operator(name="right", kind=Kind.SINK),
    ]
    streams = [
        Stream(sender="src", receiver="op0"),
        Stream(sender="op0", receiver="left", weight=0.75),
        Stream(sender="op0", receiver="right", weight=0.25),
    ]
    code = code_of(Pipeline.of("weighted", operators, streams), tmp_path)
    run = conductor(
        tmp_path, laid_out(code, {"src": {A: 1}, "op0": {A: 1, B: 1}, "left": {B: 1}, "right": {C: 1}}), 800.0, launcher
    )
    try:
        turn_until(run, lambda: run.run.state is FlowState.FLOWING)
        turn_until(run, lambda: int(run.run.commit.offsets.get("src", 0)) > 600)
        launcher.processes["op0@n1/1"].kill()
        turn_until(run, lambda: int(run.run.commit.offsets.get("src", 0)) > 1200)
        wait(run, run.drain(end=True))
    finally:
        run.close()
    left, right = written(tmp_path, "left"), written(tmp_path, "right")
    offset = int(run.run.commit.offsets["src"])
    assert sorted([*left, *right]) == list(range(offset)), "every tuple takes one of the two ways, once"
    assert len(left) / offset == pytest.approx(0.75, abs=0.05)
