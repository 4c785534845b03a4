"""Cases as tasks of Spark: all are run, failures are told, what is done is kept."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from penstock.base.clock import pause
from penstock_lab import sweep
from penstock_lab.experiments.p_deployer import PDeployerEvaluation
from penstock_lab.spark_sweep import run_tasks
from penstock_lab.sweep import CaseStore


def write_or_fail(task: str) -> None:
    """What a worker does in these tests."""
    path = Path(task)
    if path.name == "bad":
        raise ValueError("not this one")
    path.write_text("done")


def sleep_a_while(task: str) -> None:
    if "slow" in task:
        pause(60)
    Path(task).write_text("done")


def test_every_task_is_run_once_and_a_failure_does_not_end_the_others(session: Any, tmp_path: Path) -> None:
    tasks = [str(tmp_path / name) for name in ("a", "bad", "c", "d", "e")]
    told: list[int] = []
    ended = run_tasks(session, write_or_fail, tasks, told.append)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c", "d", "e"]
    assert [Path(task).name for task in ended.finished] == ["a", "c", "d", "e"]
    assert ended.failed == {tasks[1]: "ValueError: not this one"}
    assert not ended.interrupted
    assert told[-1] == 5
    assert told == sorted(told)


def test_ctrl_c_keeps_what_is_done(session: Any, tmp_path: Path) -> None:
    tasks = [str(tmp_path / name) for name in ("a", "slow1", "slow2", "slow3")]

    def interrupt_after_the_first() -> None:
        while not (tmp_path / "a").exists():
            pause(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_after_the_first, daemon=True).start()
    ended = run_tasks(session, sleep_a_while, tasks, lambda _done: None)
    assert ended.interrupted
    assert [Path(task).name for task in ended.finished] == ["a"]


def test_ctrl_c_before_anything_runs(session: Any, tmp_path: Path) -> None:
    tasks = [str(tmp_path / f"slow{number}") for number in range(3)]
    told: list[int] = []

    def interrupt_at_once(done: int) -> None:
        if not told:
            os.kill(os.getpid(), signal.SIGINT)
        told.append(done)

    ended = run_tasks(session, sleep_a_while, tasks, interrupt_at_once)
    assert ended.interrupted
    assert ended.finished == ()


def test_an_experiment_end_to_end(session: Any, tmp_path: Path) -> None:
    store = CaseStore(tmp_path, "p-deployer")
    told: list[tuple[int, int]] = []

    def progress(done: int, of: int) -> None:
        told.append((done, of))

    (found,) = sweep.sweep(["p-deployer"], quick=True, folder=tmp_path, progress=progress, session=session)
    cases = list(PDeployerEvaluation().cases(quick=True))
    assert [one.case for one in found.results] == cases
    assert told[0] == (0, len(cases))
    assert told[-1] == (len(cases), len(cases))
    first = found.lines[0]
    assert (first.what, first.ours, str(first.verdict)) == ("nodes of the first plan", "3 nodes", "not comparable")

    # one case is gone: the next run does only that one
    store.path_of(cases[0]).unlink()
    told.clear()
    sweep.sweep(["p-deployer"], quick=True, folder=tmp_path, progress=progress, session=session)
    assert told[0] == (len(cases) - 1, len(cases))
