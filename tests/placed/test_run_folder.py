"""Asking something of a run through its folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, RunError
from penstock.base.lease import LEASE_SECONDS
from penstock.engines.placed import run_folder
from penstock.engines.placed.run_folder import RunFolder, this_host
from penstock.engines.run_index import find_run, note_elsewhere
from penstock.runs.config import RunConfig
from penstock.runs.description import RunDescription


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create()
    made.describe(RunDescription(run="r", pipeline="p", config=RunConfig(engine="placed")))
    return made


def answer_once(folder: RunFolder, answer: float | RunError) -> threading.Thread:
    def conduct() -> None:
        while not (asked := folder.requests()):
            pause(0.01)
        if isinstance(answer, RunError):
            asked[0].answered.set_exception(answer)
        else:
            asked[0].answered.set_result(answer)

    thread = threading.Thread(target=conduct)
    thread.start()
    return thread


def test_a_step_of_the_clock_does_not_free_a_run(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.take("plan-000")
    created = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: created(process) + 3)
    assert folder.held_by is not None
    folder.give_back()


def test_a_request_gets_its_answer(folder: RunFolder) -> None:
    folder.take("plan-000")
    thread = answer_once(folder, 1.5)
    assert penstock.drain(folder.path) == 1.5
    thread.join()
    assert not folder.requests()


def test_an_error_is_raised_where_it_was_asked(folder: RunFolder) -> None:
    folder.take("plan-000")
    thread = answer_once(folder, RunError("the run is not drained"))
    with pytest.raises(RunError, match="not drained"):
        penstock.resume(folder.path)
    thread.join()


def test_it_is_listed_as_its_lease_says(folder: RunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "runs"))
    note_elsewhere(folder.path)

    def states() -> list[tuple[str, str]]:
        return [(run.engine, str(run.state)) for run in penstock.list_runs()]

    assert states() == [("placed", "lost")]
    folder.take("plan-000")
    assert states() == [("placed", "starting")]
    folder.describe(folder.description.model_copy(update={"began": 1.8e9}))
    assert states() == [("placed", "running")]
    assert find_run("r") == folder.path
    folder.give_back()
    assert states() == [("placed", "ended")]
    (folder.path / "run.json").write_text("{}")
    assert states() == []


def test_a_run_nobody_conducts_cannot_be_drained(folder: RunFolder) -> None:
    with pytest.raises(RunError, match="penstock resume"):
        penstock.drain(folder.path)


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no run was started"):
        penstock.drain(tmp_path)


def test_a_run_that_does_not_answer_is_given_up(folder: RunFolder) -> None:
    folder.take("plan-000")
    with pytest.raises(RunError, match="did not answer"):
        folder.ask("drain", patience=0.2)
    assert not folder.requests()


@pytest.mark.parametrize("text", ["not json", "", '{"version": 2, "surprise": 1}'])
def test_a_description_that_was_tampered_with_is_bad_input(folder: RunFolder, text: str) -> None:
    (folder.path / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadInputError, match=r"run\.json"):
        penstock.resume(folder.path)


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"id": "z", "ask": 5}', '{"id": "other", "ask": "stop"}'])
def test_what_is_no_request_does_not_end_a_run(tmp_path: Path, content: str) -> None:
    folder = RunFolder(tmp_path)
    folder.create()
    (tmp_path / "requests" / "z.json").write_text(content)
    (tmp_path / "requests" / "good.json").write_text('{"id": "good", "ask": "drain"}')
    assert [asked.ask for asked in folder.requests()] == ["drain"]
    assert (tmp_path / "requests" / "z.refused").read_text() == content


@pytest.mark.parametrize("content", ["", "{}", "null", '{"host": "x"}'])
def test_a_lease_nobody_can_read_holds_nobody_back(folder: RunFolder, content: str) -> None:
    (folder.path / "lease.json").write_text(content)
    assert folder.held_by is None
    assert folder.take("plan-000").conductor == 1


def test_a_run_is_conducted_once(folder: RunFolder) -> None:
    other = RunFolder(folder.path)
    assert folder.take("plan-000").epoch == 1
    with pytest.raises(RunError, match="conducts the run"):
        other.take(None)
    folder.give_back()
    taken = other.take(None)
    assert (taken.conductor, taken.epoch) == (2, 2)


def test_of_two_that_take_over_at_once_one_does(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have looked: nobody conducts the run, and the last commit is the same for both."""
    folder.take("plan-000")
    folder.give_back()
    last = folder.checkpoint.last()
    other = RunFolder(folder.path)
    monkeypatch.setattr(other.checkpoint, "last", lambda: last)
    folder.take(None)
    folder.give_back()
    with pytest.raises(RunError, match="at the same moment"):
        other.take(None)


def test_a_conductor_that_stands_still_loses_the_run(folder: RunFolder) -> None:
    folder.take("plan-000")
    lease = folder.checkpoint.lease
    assert lease is not None
    folder.checkpoint.sign(lease.model_copy(update={"renewed": lease.renewed - LEASE_SECONDS - 1}))
    assert RunFolder(folder.path).take(None).conductor == 2


def test_a_conductor_that_waits_for_a_broker_keeps_the_run(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but `take` is called: its lease is renewed all the same."""
    monkeypatch.setattr(run_folder, "RENEW_SECONDS", 0.01)
    folder.take("plan-000")
    lease = folder.checkpoint.lease
    assert lease is not None
    folder.checkpoint.sign(lease.model_copy(update={"renewed": lease.renewed - LEASE_SECONDS - 1}))
    watch = Stopwatch()
    while RunFolder(folder.path).held_by is None:
        assert watch.seconds() < 5
        pause(0.01)
    folder.give_back()
    assert RunFolder(folder.path).held_by is None


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="no other namespace of processes here")
def test_a_conductor_in_another_namespace_of_processes_is_not_taken_for_dead(folder: RunFolder) -> None:
    """Its number means nothing here, whether a process has it or not: only the age of its lease says something."""
    script = (
        f"from penstock.engines.placed.run_folder import RunFolder; RunFolder({str(folder.path)!r}).take('plan-000')"
    )
    subprocess.run(["unshare", "--pid", "--fork", sys.executable, "-c", script], check=True)
    lease = folder.checkpoint.lease
    assert lease is not None
    assert lease.host != this_host()
    with pytest.raises(RunError, match="conducts the run"):
        folder.take(None)
    folder.checkpoint.sign(lease.model_copy(update={"renewed": lease.renewed - LEASE_SECONDS - 1}))
    assert folder.take(None).conductor == 2


def test_a_folder_of_an_older_version_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"pipeline": "p", "generation": 0, "plan": "plan-000.json"}')
    with pytest.raises(BadInputError, match=r"another version of Penstock \(0\.1\)"):
        penstock.resume(tmp_path)
