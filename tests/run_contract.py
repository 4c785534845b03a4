"""What every engine does: the suite that fused, placed and simulated runs all pass.

A plant makes runs of one engine. Its pipeline numbers its rows from 0 and delivers each once, so that rows in the sink
are 0..n-1 exactly: nothing lost, nothing doubled.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError
from penstock.runs.folder import RunFolder
from penstock.runs.run import Run
from penstock.runs.states import RunState

PATIENCE_SECONDS = 120.0


def await_condition(condition: Any, what: str, seconds: float = PATIENCE_SECONDS) -> None:
    watch = Stopwatch()
    while not condition():
        assert watch.seconds() < seconds, what
        pause(0.05)


class Plant(Protocol):
    """Makes runs of one engine in a folder."""

    folder: str | Path
    """That of the run: a folder, or a URI."""
    unknown_option: tuple[str, dict[str, Any]]
    """The engine, and an option that it does not have."""

    def start(self) -> Run:
        """Start a run without an end, or resume the one in the folder."""

    def command(self) -> list[str]:
        """The words of a process that starts the run in the folder and waits for its end."""

    def environment(self) -> dict[str, str]: ...

    def rows(self) -> list[int]:
        """The rows in the sink, sorted."""

    def other_slots(self) -> int:
        """Slots to rescale to."""


def assert_exactly_once(plant: Plant) -> int:
    rows = plant.rows()
    assert rows == list(range(len(rows)))
    return len(rows)


def state_of(run: Run) -> RunState:
    """Return the state of now: a type checker remembers an attribute it has seen compared."""
    return run.status


def await_rows(plant: Plant, more: int = 1) -> None:
    before = len(plant.rows())
    await_condition(lambda: len(plant.rows()) >= before + more, "no rows come")


class RunContract:
    """Subclasses give the fixture `plant`."""

    def test_a_run_from_its_start_to_its_report(self, plant: Plant) -> None:
        run = plant.start()
        assert state_of(run) in {RunState.STARTING, RunState.RUNNING}
        await_condition(lambda: run.last_progress is not None, "no progress")
        assert state_of(run) is RunState.RUNNING
        assert not run.await_termination(0)
        progress = run.last_progress
        assert progress is not None
        assert progress.sustained > 0

        run.pause(keep_executors=True)
        assert state_of(run) is RunState.PAUSED
        paused = assert_exactly_once(plant)
        assert RunFolder(plant.folder).state()[0] in {RunState.RUNNING, RunState.DRAINING, RunState.PAUSED}
        pause(0.5)
        assert assert_exactly_once(plant) == paused

        assert run.resume() is run
        await_rows(plant)
        assert state_of(run) is RunState.RUNNING

        run.rescale(plant.other_slots())
        assert run.slots == plant.other_slots()
        await_rows(plant)

        report = run.stop().report
        assert state_of(run) is RunState.STOPPED
        assert (report.audit.lost or 0, report.audit.duplicated or 0) == (0, 0)
        assert assert_exactly_once(plant) > paused
        assert run.exception() is None
        assert run.recent_progress != []
        state, details = RunFolder(plant.folder).state()
        assert (state, details["slots"]) == (RunState.STOPPED, plant.other_slots())

    def test_a_run_that_was_killed_continues_from_its_last_commit(self, plant: Plant) -> None:
        run = plant.start()
        await_rows(plant)
        run.kill()
        assert state_of(run) is RunState.STOPPED
        before = len(plant.rows())
        run.resume()
        await_condition(lambda: len(plant.rows()) > before, "no rows come")
        run.pause()  # its executors are released
        assert state_of(run) is RunState.PAUSED
        paused = assert_exactly_once(plant)
        run.resume()
        await_rows(plant)
        run.stop()
        assert assert_exactly_once(plant) > paused

    def test_a_run_survives_the_death_of_its_process(self, plant: Plant) -> None:
        process = subprocess.Popen(
            [sys.executable, *plant.command()], env=plant.environment(), stdout=subprocess.DEVNULL
        )
        try:
            await_condition(lambda: len(plant.rows()) > 0 or process.poll() is not None, "no rows come")
            assert process.poll() is None
            with pytest.raises(BadInputError, match=r"process \d+ on .* conducts the run; `penstock runs stop`"):
                plant.start()
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert RunFolder(plant.folder).state()[0] is RunState.LOST
        run = plant.start()
        await_rows(plant)
        run.stop()
        assert assert_exactly_once(plant) > 0

    def test_moves_that_the_state_forbids(self, plant: Plant) -> None:
        run = plant.start()
        await_rows(plant)
        with pytest.raises(BadInputError, match=r"is running: cannot resume it; pause or stop it first"):
            run.resume()
        with pytest.raises(BadInputError, match=r"expected at least 1, found 0"):
            run.rescale(0)
        folder = RunFolder(plant.folder)
        with pytest.raises(BadInputError, match=r"unknown request 'stopp'; did you mean 'stop'"):
            folder.ask("stopp")
        with pytest.raises(BadInputError, match=r"it reports when it has ended"):
            run.report()
        folder.ask("pause", keep_executors=True)
        assert folder.state()[0] is RunState.PAUSED
        for forbidden in (run.pause, lambda: run.rescale(1)):
            with pytest.raises(BadInputError, match=r"is paused: cannot (pause|rescale) it; resume it first"):
                forbidden()
        with pytest.raises(BadInputError, match=r"is paused: cannot rescale it; resume it first"):
            folder.ask("rescale", slots=1)
        folder.ask("stop")
        assert run.await_termination(PATIENCE_SECONDS)
        assert state_of(run) is RunState.STOPPED
        for forbidden in (run.pause, lambda: run.rescale(1)):
            with pytest.raises(BadInputError, match=r"is stopped: cannot (pause|rescale) it; resume it first"):
                forbidden()
        assert assert_exactly_once(plant) > 0

    def test_an_option_the_engine_does_not_have(self, plant: Plant) -> None:
        engine, option = plant.unknown_option
        with pytest.raises(BadInputError, match=rf"{next(iter(option))}=: not an option of engine '{engine}'"):
            penstock.start("linear", 10, engine=engine, **option)
