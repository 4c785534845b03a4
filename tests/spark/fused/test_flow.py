"""A run while it lives, over a query in memory: when it can be stopped, when it is given up, what it counts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.base.clock import now, pause
from penstock.base.errors import RunFailedError
from penstock.engines.fused import run as run_module
from penstock.engines.fused.query import FusedSpec
from penstock.engines.fused.run import FusedRun, Hooks
from penstock.report.report import BatchObservation, OperatorObservation, SlotObservation
from penstock.runs.config import RunConfig
from penstock.runs.description import RunDescription
from penstock.runs.run_folder import FusedRunFolder, RunState

ERROR = "operator 'a', tuple 0: ValueError: no"


def batch(number: int, tuples: int, dead: int) -> BatchObservation:
    return BatchObservation(
        finished=1000.0 + number,
        tuples=tuples,
        backlog=0,
        latencies=np.array([0.1]),
        operators={"a": OperatorObservation(tuples, tuples - dead, 0, dead, 0.1)},
        slots=[SlotObservation(0, 2.0, 0.5, 100.0)],
    )


class Query:
    """Commits the batches it is given, one at every look."""

    def __init__(self, *batches: BatchObservation, is_ready: bool = True, ends: bool = False) -> None:
        self._batches = list(batches)
        self._ends = ends
        self.is_ready = is_ready
        self.is_working = not is_ready
        self.idle_at = None
        self.notes = ()
        self.held_back: dict[str, int] = {}
        self.first_errors: tuple[str, ...] = ()
        self.stopped = 0

    def begin(self, is_given_up: Callable[[], bool]) -> float:
        while not self.is_ready and not is_given_up():
            pause(0.01)
        return now()

    @property
    def ended(self) -> bool:
        return self._ends and not self._batches

    def poll(self) -> list[BatchObservation]:
        taken, self._batches = self._batches[:1], self._batches[1:]
        if any(seen.dead for taken_in in taken for seen in taken_in.operators.values()):
            self.first_errors = (ERROR,)
        return taken

    def audit(self) -> None:
        return None

    def drain(self) -> None: ...

    def spread_over(self, slots: int) -> None: ...

    def stop(self) -> None:
        self.stopped += 1


Start = Callable[..., FusedRun]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    """A run over a query, in a folder."""
    pipeline = penstock.pipeline("p").source("s").then("a", logic=lambda row: row, schema="n long").sink("o").build()
    folder = FusedRunFolder(tmp_path / "run")
    folder.make()
    monkeypatch.setattr(run_module, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(run_module, "java_process", lambda _: None)
    monkeypatch.setattr(run_module, "tree_cpu_seconds", lambda _: 0.0)

    def started(
        query: Query,
        seconds: float | None = None,
        hooks: Hooks | None = None,
        close: Callable[[], None] = lambda: None,
        executors: Any = None,
        **more: Any,
    ) -> FusedRun:
        config = RunConfig(seconds=seconds, warm_up=0.0, **more)
        monkeypatch.setattr(run_module, "FusedQuery", lambda *_: query)
        spec = FusedSpec("r", pipeline, {}, {}, 1, folder.path, str(tmp_path / "checkpoint"), config)
        run = FusedRun(None, spec, hooks, folder, executors)  # type: ignore[arg-type] # no session is asked
        run.start(close)
        return run

    return started


def state(run: FusedRun, tmp_path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((tmp_path / "run" / "state.json").read_text())
    assert document["state"] == str(run.state)
    return document


@pytest.mark.parametrize("dead", [0, 1000])
def test_a_run_that_ended_holds_nothing_though_nobody_waits_for_it(start: Start, tmp_path: Path, dead: int) -> None:
    closed = threading.Event()
    states: list[str] = []

    def close() -> None:
        # nobody goes on with it before how it ended is written down
        states.append(json.loads((tmp_path / "run" / "state.json").read_text())["state"])
        closed.set()

    start(Query(batch(0, 1000, dead), ends=True), close=close)
    assert closed.wait(10.0)
    assert states == ["failed" if dead else "ended"]


def test_what_goes_wrong_in_letting_go_is_raised(start: Start) -> None:
    def close() -> None:
        raise RunFailedError("Java did not end")

    with pytest.raises(RunFailedError, match="Java did not end"):
        start(Query(batch(0, 10, 0), ends=True), close=close).await_end(10.0)


@pytest.mark.parametrize("how", ["handle", "folder"])
def test_a_run_is_stopped_while_its_query_is_not_ready(start: Start, tmp_path: Path, how: str) -> None:
    query = Query(is_ready=False)
    run = start(query)
    if how == "handle":
        run.stop()
    else:
        (tmp_path / "run" / "requests" / "mine.json").write_text('{"ask": "stop"}')
    assert run.await_end(10.0) is not None
    assert (run.state, query.stopped) == (RunState.ENDED, 1)
    assert state(run, tmp_path)["resumable"]


def test_other_slots_asked_for_while_a_run_is_starting_wait_for_it(start: Start, tmp_path: Path) -> None:
    """This one refuses them, once it runs: it has none of its own."""
    query = Query(is_ready=False)
    run = start(query)
    requests = tmp_path / "run" / "requests"
    (requests / "mine.json").write_text('{"ask": "rescale", "slots": 2}')
    while (requests / "mine.json").exists():
        pause(0.01)
    assert not (requests / "mine.answer").exists()
    query.is_ready = True
    while not (requests / "mine.answer").exists():
        pause(0.01)
    assert "its slots are those of its Spark session" in (requests / "mine.answer").read_text()
    run.stop()
    run.await_end(10.0)


def test_slots_that_changed_are_written_down_for_whoever_goes_on(start: Start, tmp_path: Path) -> None:
    folder = FusedRunFolder(tmp_path / "run")
    folder.describe(RunDescription(run="r", pipeline="p", config=RunConfig(slots=1), threads={"a": 3}, most_rows=50))
    run = start(Query(), executors=SimpleNamespace(change_to=lambda slots, places: 1.5, nodes=lambda: None))
    while run.state is not RunState.RUNNING:
        pause(0.01)
    assert run.rescale(8) == 1.5
    known = folder.description()
    assert (known.slots, known.threads, known.most_rows) == (8, {"a": 3}, 400)
    run.stop()
    run.await_end(10.0)


def test_a_run_without_end_in_which_all_tuples_die_fails(start: Start, tmp_path: Path) -> None:
    warnings: list[str] = []
    query = Query(*(batch(number, 100, 100) for number in range(50)))
    run = start(query, hooks=Hooks(warn=warnings.append))
    complaint = r"1,000 of the last 1,000 tuples .* 0\.01 of all may .*ValueError: no"
    with pytest.raises(RunFailedError, match=complaint) as died:
        run.await_end(10.0)
    assert "\n" not in str(died.value)
    assert (run.state, query.stopped) == (RunState.FAILED, 1)
    details = state(run, tmp_path)
    assert (details["dead"], details["first_errors"], details["reason"]) == (1000, [ERROR], str(died.value))
    # said once
    assert warnings == [f"the first dead letter: {ERROR}"]


@pytest.mark.parametrize("more", [{"seconds": 0.2}, {"until_end": True}])
def test_a_run_with_an_end_is_judged_there(start: Start, more: dict[str, Any]) -> None:
    query = Query(*(batch(number, 100, 100) for number in range(50)), ends=True)
    report = start(query, **more).await_end(10.0)
    assert report is not None
    assert (report.verdict, report.first_errors) == ("too many tuples died", (ERROR,))


@pytest.mark.parametrize("whole", [False, True])
def test_batches_that_are_forgotten_are_counted(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(run_module, "KEPT_BATCHES", 4)
    usage = iter([10.0, 31.0])
    monkeypatch.setattr(run_module, "tree_cpu_seconds", lambda _: next(usage))
    elapsed = SimpleNamespace(seconds=lambda: 7.0)
    monkeypatch.setattr(run_module, "Stopwatch", lambda: elapsed)
    seen: list[BatchObservation] = []
    run = start(Query(*(batch(number, 100, 1) for number in range(10)), ends=whole), hooks=Hooks(watch=seen.append))
    if not whole:
        while len(seen) < 10:
            pause(0.01)
        run.drain()
    report = run.await_end(10.0)
    assert report is not None
    assert state(run, tmp_path)["batches"] == 10
    # 21 s of CPU in 7 s, of which ten batches took 2 s each
    assert report.engine_cpu == pytest.approx(1 / 7)
    assert (report.audit.emitted, report.audit.dead) == (1000, 10)
    # all of an input that came to its end; else of the batches that are kept, but for the first, which is the warm-up
    assert report.operators["a"].received == (1000 if whole else 300)
    assert any("of the last 4 of 10 batches, ids and dead letters of all" in note for note in report.notes)


def test_few_deaths_end_nothing(start: Start) -> None:
    run = start(Query(*(batch(number, 1000, 10) for number in range(20)), ends=True))
    assert run.await_end(10.0) is not None
