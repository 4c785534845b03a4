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
from penstock.api import live
from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, RunError
from penstock.base.files import atomic_path
from penstock.base.lease import LEASE_SECONDS
from penstock.cli.main import run
from penstock.connectors.storage import LocalStorage
from penstock.runs import folder as folder_module
from penstock.runs.config import RunConfig
from penstock.runs.description import RunDescription
from penstock.runs.folder import RunFolder, find_run, note_elsewhere, this_host
from penstock.runs.states import RunState


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create()
    made.describe(RunDescription(run="r", pipeline="p", config=RunConfig(engine="placed")))
    return made


def answer_once(folder: RunFolder, answer: float | RunError) -> threading.Thread:
    def conduct() -> None:
        while not (asked := list(folder.requests())):
            pause(0.01)
        if isinstance(answer, RunError):
            folder.answer_error(asked[0], answer)
        else:
            folder.answer(asked[0], seconds=answer)

    thread = threading.Thread(target=conduct)
    thread.start()
    return thread


def test_a_step_of_the_clock_does_not_free_a_run(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.take_over("plan-000")
    created = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: created(process) + 3)
    assert folder.held_by is not None
    folder.release()


@pytest.mark.parametrize("engine", ["fused", "placed"])
def test_a_store_that_does_not_answer_is_one_line_that_names_the_option(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SilentStorage(LocalStorage):
        def list(self, folder: str) -> list[str]:
            raise OSError(f"when listing '{folder}': no connection\nafter 3 attempts")

    monkeypatch.setattr(folder_module, "storage", lambda place: SilentStorage(Path(place)))
    with pytest.raises(BadInputError, match=r"^folder=: mock:///run: cannot be read: when listing '': no connection$"):
        penstock.start("linear", 5, engine=engine, folder="mock:///run")


def test_a_request_gets_its_answer(folder: RunFolder) -> None:
    folder.take_over("plan-000")
    folder.write_state(RunState.RUNNING)
    thread = answer_once(folder, 1.5)
    assert live.pause(folder.path) == 1.5
    thread.join()
    assert list(folder.requests()) == []


def test_an_error_is_raised_where_it_was_asked(folder: RunFolder) -> None:
    folder.take_over("plan-000")
    folder.write_state(RunState.PAUSED)
    thread = answer_once(folder, RunError("no executor came"))
    with pytest.raises(RunError, match="no executor came"):
        penstock.resume(folder.path)
    thread.join()


def test_it_is_listed_as_its_lease_says(folder: RunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "runs"))
    note_elsewhere(folder.path)

    def states() -> list[tuple[str, str]]:
        return [(it.engine, str(it.state)) for it in penstock.list_runs()]

    assert states() == [("placed", "lost")]
    folder.take_over("plan-000")
    assert states() == [("placed", "starting")]
    folder.describe(folder.description.model_copy(update={"began": 1.8e9}))
    assert states() == [("placed", "running")]
    assert find_run("r") == folder.path
    folder.release()
    assert states() == [("placed", "stopped")]
    (folder.path / "run.json").write_text("{}")
    assert states() == []


def test_a_run_without_a_process_cannot_be_paused(folder: RunFolder) -> None:
    with pytest.raises(BadInputError, match="run 'r' is lost: cannot pause it; its process is gone; resume it first"):
        live.pause(folder.path)


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no run was started"):
        live.stop_run(tmp_path)


def test_a_run_that_does_not_answer_is_given_up(folder: RunFolder) -> None:
    folder.take_over("plan-000")
    with pytest.raises(RunError, match="did not answer"):
        folder.ask("pause", patience=0.2)
    assert list(folder.requests()) == []


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
    (tmp_path / "requests" / "good.json").write_text('{"id": "good", "ask": "pause"}')
    assert [asked.ask for asked in folder.requests()] == ["pause"]
    assert (tmp_path / "requests" / "z.refused").read_text() == content


@pytest.mark.parametrize("content", ["", "{}", "null", '{"host": "x"}'])
def test_a_lease_nobody_can_read_holds_nobody_back(folder: RunFolder, content: str) -> None:
    (folder.path / "lease.json").write_text(content)
    assert folder.held_by is None
    assert folder.take_over("plan-000").conductor == 1


def test_a_run_is_conducted_once(folder: RunFolder) -> None:
    other = RunFolder(folder.path)
    assert folder.take_over("plan-000").epoch == 1
    with pytest.raises(BadInputError, match="conducts the run"):
        other.take_over(None)
    folder.release()
    taken = other.take_over(None)
    assert (taken.conductor, taken.epoch) == (2, 2)


def test_of_two_that_take_over_at_once_one_does(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have looked: nobody conducts the run, and the last commit is the same for both."""
    folder.take_over("plan-000")
    folder.release()
    last = folder.checkpoint.last()
    other = RunFolder(folder.path)
    monkeypatch.setattr(other.checkpoint, "last", lambda: last)
    folder.take_over(None)
    folder.release()
    with pytest.raises(RunError, match="at the same moment"):
        other.take_over(None)


def test_a_conductor_that_stands_still_loses_the_run(folder: RunFolder) -> None:
    folder.take_over("plan-000")
    lease = folder.checkpoint.lease
    assert lease is not None
    folder.checkpoint.sign(lease.model_copy(update={"renewed": lease.renewed - LEASE_SECONDS - 1}))
    assert RunFolder(folder.path).take_over(None).conductor == 2


def test_a_conductor_that_waits_for_a_broker_keeps_the_run(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but `take` is called: its lease is renewed all the same."""
    monkeypatch.setattr(folder_module, "RENEW_SECONDS", 0.01)
    folder.take_over("plan-000")
    lease = folder.checkpoint.lease
    assert lease is not None
    folder.checkpoint.sign(lease.model_copy(update={"renewed": lease.renewed - LEASE_SECONDS - 1}))
    watch = Stopwatch()
    while RunFolder(folder.path).held_by is None:
        assert watch.seconds() < 5
        pause(0.01)
    folder.release()
    assert RunFolder(folder.path).held_by is None


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="no other namespace of processes here")
def test_a_conductor_in_another_namespace_of_processes_is_not_taken_for_dead(folder: RunFolder) -> None:
    """Its number means nothing here, whether a process has it or not: only the age of its lease says something."""
    script = f"from penstock.runs.folder import RunFolder; RunFolder({str(folder.path)!r}).take_over('plan-000')"
    subprocess.run(["unshare", "--pid", "--fork", sys.executable, "-c", script], check=True)
    lease = folder.checkpoint.lease
    assert lease is not None
    assert lease.host != this_host()
    with pytest.raises(BadInputError, match="conducts the run"):
        folder.take_over(None)
    folder.checkpoint.sign(lease.model_copy(update={"renewed": lease.renewed - LEASE_SECONDS - 1}))
    assert folder.take_over(None).conductor == 2


def test_a_folder_of_an_older_version_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"pipeline": "p", "generation": 0, "plan": "plan-000.json"}')
    with pytest.raises(BadInputError, match=r"another version of Penstock \(0\.1\)"):
        penstock.resume(tmp_path)


def test_a_folder_of_a_newer_version_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"format": 4, "run": "r", "pipeline": "p"}')
    with pytest.raises(
        BadInputError, match=r"a run of a newer Penstock \(format 4, this one knows up to 3\)"
    ) as refused:
        penstock.resume(tmp_path)
    assert "\n" not in str(refused.value)
    assert run(["runs", "stop", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("document", "engine", "state"),
    [
        # fused runs of 0.1 say format 2, placed ones version 2
        ('{"format": 2, "engine": "fused", "run": "r", "pipeline": "p", "slots": 2, "checkpoint": "c", "started": "s"}',
         "fused", "ended"),
        ('{"version": 2, "run": "r", "pipeline": "p", "master": "spark://h:1", "load": {"spells": [[1, 5]], "repeats": '
         'true}, "began": 0.0, "routing": "shuffle", "segmenter": "ends"}', "placed", "held"),
    ],
)  # fmt: skip
def test_folders_of_0_1_are_read(tmp_path: Path, document: str, engine: str, state: str) -> None:
    (tmp_path / "run.json").write_text(document)
    (tmp_path / "state.json").write_text(f'{{"state": "{state}"}}')
    folder = RunFolder(tmp_path)
    assert folder.description.engine == engine
    # ended is stopped; held is paused, and without a process it is lost
    assert folder.state()[0] is {"ended": RunState.STOPPED, "held": RunState.LOST}[state]


def test_a_lock_keeps_others_out_until_it_is_released(tmp_path: Path) -> None:
    mine, other = RunFolder(tmp_path), RunFolder(tmp_path)
    mine.create()
    mine.take()
    with pytest.raises(BadInputError, match=r"process \d+ on .* conducts the run; `penstock runs stop` ends it"):
        other.take()
    mine.release()
    other.take()
    assert mine.held_by is not None
    other.release()
    assert mine.held_by is None


def test_a_request_that_is_still_being_written_is_left_alone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    with atomic_path(folder.path / "requests" / "mine.json") as temporary:
        assert list(folder.requests()) == []
        assert temporary.exists()
        temporary.write_text('{"id": "mine", "ask": "rescale", "slots": 2}')
    assert [(asked.ask, asked.slots) for asked in folder.requests()] == [("rescale", 2)]
    assert list(folder.requests()) == []
