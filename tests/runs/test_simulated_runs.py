"""Simulated runs meet the contract of runs."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

import penstock
from penstock.base.errors import BadInputError
from penstock.engines.simulated.engine import SimulatedEngine
from penstock.report.listener import Listener
from penstock.runs.config import RunConfig
from penstock.runs.folder import RunFolder
from penstock.runs.foreground import await_with_interrupts
from penstock.runs.run import Run
from penstock.runs.states import RunState
from run_contract import Plant, RunContract, await_condition

SPEED = 20.0
TESTS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
SCRIPT = """
import sys
sys.path[:0] = {tests!r}
from test_simulated_runs import SimulatedPlant
SimulatedPlant({folder!r}).start().await_termination()
"""


class SimulatedPlant:
    unknown_option = ("simulated", {"tls": "key.pem"})

    def __init__(self, folder: str | Path) -> None:
        self.folder = folder

    def start(self) -> Run:
        engine, folder, listener = SimulatedEngine(SPEED), RunFolder(self.folder), Listener()
        if folder.has_run:
            prepared = engine.prepare_again(folder, RunConfig(engine="simulated"), None, listener)
        else:
            plan = penstock.plan("linear", 100)
            prepared = engine.prepare(RunConfig(engine="simulated", rate=50.0), plan, listener)
        return Run(engine, prepared, folder, listener)

    def command(self) -> list[str]:
        return ["-c", SCRIPT.format(tests=TESTS, folder=str(self.folder))]

    def environment(self) -> dict[str, str]:
        source = Path(penstock.__file__).parent.parent
        return {**os.environ, "PYTHONPATH": str(source)}

    def rows(self) -> list[int]:
        lines = RunFolder(self.folder).read_file("delivered.csv").split("\n")[:-1]
        ranges = [tuple(map(int, line.split(",")[1:3])) for line in lines]
        return sorted(row for first, count in ranges for row in range(first, first + count))

    def other_slots(self) -> int:
        return 3


class TestSimulatedRuns(RunContract):
    @pytest.fixture(params=["folder", "uri"])
    def plant(self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
        """`uri`: through the file systems of pyarrow, as in object storage."""
        monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "runs"))
        run = tmp_path / "run"
        return SimulatedPlant(run if request.param == "folder" else run.as_uri())


def test_a_line_that_was_torn_by_a_death_never_was(tmp_path: Path) -> None:
    plant = SimulatedPlant(tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "delivered.csv").write_text("0,0,7,0.5\n1,7,3,0.6\n2,10,4")
    run = plant.start()
    run.stop()
    # 7 + 3 rows are committed; the next line begins with row 10
    assert (tmp_path / "run" / "delivered.csv").read_text().startswith("0,0,7,0.5\n1,7,3,0.6\n")
    rows = plant.rows()
    assert rows == list(range(len(rows)))


@pytest.mark.parametrize(("seconds", "is_kept"), [(2.0, False), (None, True)])
def test_an_unnamed_folder_is_kept_only_if_there_is_something_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float | None, is_kept: bool
) -> None:
    """A run that came to its end leaves nothing; one that was stopped before can be resumed."""
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    engine, listener = SimulatedEngine(SPEED), Listener()
    config = RunConfig(engine="simulated", rate=50.0, seconds=seconds)
    prepared = engine.prepare(config, penstock.plan("linear", 100), listener)
    run = Run(engine, prepared, RunFolder(engine.default_folder("linear")), listener, own=True)
    await_condition(lambda: run.last_progress is not None, "no progress")
    if is_kept:
        run.stop()
    assert run.await_termination(60)
    assert run.report().seconds > 0
    assert [it.folder for it in penstock.list_runs()] == ([run.folder] if is_kept else [])
    if not is_kept:
        with pytest.raises(BadInputError, match="came to its end: there is nothing to resume"):
            run.resume()


def test_one_that_is_interrupted_reports_and_says_so(tmp_path: Path) -> None:
    engine, listener = SimulatedEngine(SPEED), Listener()
    config = RunConfig(engine="simulated", rate=50.0)
    run = Run(engine, engine.prepare(config, penstock.plan("linear", 100), listener), RunFolder(tmp_path), listener)
    await_condition(lambda: run.last_progress is not None, "no progress")
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    result = await_with_interrupts(run)
    timer.join()
    assert (result.interrupted, result.document()["interrupted"], run.status) == (True, True, RunState.STOPPED)
