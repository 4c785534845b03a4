"""A run while it lives, over a query in memory: when it can be stopped, when it is given up, what it counts."""

from __future__ import annotations

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
from penstock.engines.fused.run import FusedRun, Hooks, longest_gap
from penstock.report.report import BatchObservation, OperatorObservation, SlotObservation
from penstock.runs.config import RunConfig
from penstock.runs.states import RunState

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
    """A run over a query."""
    pipeline = penstock.pipeline("p").source("s").then("a", logic=lambda row: row, schema="n long").sink("o").build()
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
        spec = FusedSpec("r", pipeline, {}, {}, 1, tmp_path, str(tmp_path / "checkpoint"), config)
        run = FusedRun(None, spec, hooks, None, executors)  # type: ignore[arg-type] # no session is asked
        run.start(close)
        return run

    return started


@pytest.mark.parametrize("dead", [0, 1000])
def test_a_run_that_ended_holds_nothing_though_nobody_waits_for_it(start: Start, dead: int) -> None:
    closed, runs, states = threading.Event(), list[FusedRun](), list[RunState]()

    def close() -> None:
        while not runs:
            pause(0.001)
        states.append(runs[0].state)
        closed.set()

    runs.append(start(Query(batch(0, 1000, dead), ends=True), close=close))
    assert closed.wait(10.0)
    assert states == [RunState.FAILED if dead else RunState.STOPPED]


def test_what_goes_wrong_in_letting_go_is_raised(start: Start) -> None:
    def close() -> None:
        raise RunFailedError("Java did not end")

    with pytest.raises(RunFailedError, match="Java did not end"):
        start(Query(batch(0, 10, 0), ends=True), close=close).await_end(10.0)


def test_a_run_is_killed_while_its_query_is_not_ready(start: Start) -> None:
    query = Query(is_ready=False)
    run = start(query)
    run.kill()
    assert run.await_end(10.0) is not None
    assert (run.state, query.stopped) == (RunState.STOPPED, 1)
    assert run.details["resumable"]


@pytest.mark.parametrize("then", [RunState.PAUSED, RunState.STOPPED])
def test_a_run_is_drained_before_it_is_paused_or_stopped(start: Start, then: RunState) -> None:
    run = start(Query(*(batch(number, 100, 0) for number in range(3))))
    while run.state is not RunState.RUNNING:
        pause(0.01)
    run.stop(then)
    assert run.await_end(10.0) is not None
    assert [state for state, _ in run.history.moves] == ["starting", "running", "draining", then]


def test_executors_are_changed_while_a_run_runs(start: Start) -> None:
    run = start(Query(), executors=SimpleNamespace(change_to=lambda slots, places: 1.5, nodes=lambda: None))
    while run.state is not RunState.RUNNING:
        pause(0.01)
    assert run.rescale(8) == 1.5
    assert (run.slots, run.details["slots"]) == (8, 8)
    run.kill()
    run.await_end(10.0)


def test_a_run_without_end_in_which_all_tuples_die_fails(start: Start) -> None:
    warnings: list[str] = []
    query = Query(*(batch(number, 100, 100) for number in range(50)))
    run = start(query, hooks=Hooks(warn=warnings.append))
    complaint = r"1,000 of the last 1,000 tuples .* 0\.01 of all may .*ValueError: no"
    with pytest.raises(RunFailedError, match=complaint) as died:
        run.await_end(10.0)
    assert "\n" not in str(died.value)
    assert (run.state, query.stopped) == (RunState.FAILED, 1)
    assert (run.details["dead"], run.details["first_errors"]) == (1000, [ERROR])
    # said once
    assert warnings == [f"the first dead letter: {ERROR}"]


@pytest.mark.parametrize("more", [{"seconds": 0.2}, {"until_end": True}])
def test_a_run_with_an_end_is_judged_there(start: Start, more: dict[str, Any]) -> None:
    query = Query(*(batch(number, 100, 100) for number in range(50)), ends=True)
    report = start(query, **more).await_end(10.0)
    assert report is not None
    assert (report.verdict, report.first_errors) == ("too many tuples died", (ERROR,))


@pytest.mark.parametrize("whole", [False, True])
def test_batches_that_are_forgotten_are_counted(start: Start, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
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
        run.stop()
    report = run.await_end(10.0)
    assert report is not None
    assert run.details["batches"] == 10
    # 21 s of CPU in 7 s, of which ten batches took 2 s each
    assert report.engine_cpu == pytest.approx(1 / 7)
    assert (report.audit.emitted, report.audit.dead) == (1000, 10)
    # all of an input that came to its end; else of the batches that are kept, but for the first, which is the warm-up
    assert report.operators["a"].received == (1000 if whole else 300)
    assert any("of the last 4 of 10 batches, ids and dead letters of all" in note for note in report.notes)


def test_few_deaths_end_nothing(start: Start) -> None:
    run = start(Query(*(batch(number, 1000, 10) for number in range(20)), ends=True))
    assert run.await_end(10.0) is not None


@pytest.mark.parametrize(
    ("ended", "gap"),
    [
        # a change from 10 to 15: the ends around it are 9.5 and 16
        ([8.0, 9.5, 11.0, 14.0, 16.0, 30.0], 3.0),
        ([9.5, 16.0], 6.5),
        ([12.0, 13.0, 15.5], 2.5),
        # no batch has ended since
        ([8.0, 9.5, 11.0], None),
        ([], None),
    ],
)
def test_output_pauses_as_long_as_no_batch_ends(ended: list[float], gap: float | None) -> None:
    assert longest_gap(ended, 10.0, 15.0) == gap
