"""Processes are known again by number and start, whatever the machine's clock does."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock.base import process_identity, processes
from penstock.base.process_identity import ProcessIdentity, boot_id, identity_of, own_identity
from penstock.base.processes import end, find, start


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[ProcessIdentity]:
    identity = start(["/bin/sleep", "60"], os.environ, tmp_path / "log")
    yield identity
    end([psutil.Process(identity.pid)] if psutil.pid_exists(identity.pid) else [])


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Start times that are computed from the clock move with it."""
    before = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: before(process) + seconds)


def written(identity: ProcessIdentity) -> ProcessIdentity:
    return ProcessIdentity.model_validate_json(identity.model_dump_json())


@pytest.mark.parametrize("seconds", [3.0, -3600.0])
def test_a_process_is_found_and_ended_after_the_clock_was_set(
    sleeper: ProcessIdentity, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    set_clock(monkeypatch, seconds)
    process = find(written(sleeper))
    assert process is not None
    end([process])
    assert find(sleeper) is None


def test_another_process_with_its_number_is_not_the_process(sleeper: ProcessIdentity) -> None:
    assert sleeper.ticks is not None
    assert find(sleeper.model_copy(update={"ticks": sleeper.ticks - 1})) is None
    assert find(sleeper.model_copy(update={"boot": "of another boot"})) is None


def test_files_without_ticks_are_still_read(sleeper: ProcessIdentity) -> None:
    created = psutil.Process(sleeper.pid).create_time()
    assert find(ProcessIdentity(pid=sleeper.pid, started=created)) is not None
    assert find(ProcessIdentity(pid=sleeper.pid, started=created - 60)) is None


def test_without_proc_the_time_of_the_start_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_identity, "PROC", tmp_path)
    assert boot_id() == ""
    own = written(own_identity())
    assert own.ticks is None
    assert own.is_there
    assert not own.model_copy(update={"started": own.started - 60}).is_there


def test_names_of_programs_may_look_like_other_fields(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    fields = " ".join(str(number) for number in range(4, 53))
    (tmp_path / "7" / "stat").write_text(f"7 (a) R 1 (b c) S {fields}\n")
    (tmp_path / process_identity._BOOT).parent.mkdir(parents=True)
    (tmp_path / process_identity._BOOT).write_text("this-boot\n")
    monkeypatch.setattr(process_identity, "PROC", tmp_path)
    assert identity_of(7) == ProcessIdentity(pid=7, ticks=22, boot="this-boot")


def test_one_that_has_ended_has_no_identity() -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait()
    with pytest.raises(ProcessLookupError):
        identity_of(process.pid)


def test_no_file_descriptor_left_does_not_make_a_process_dead(sleeper: ProcessIdentity) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            _ = sleeper.is_there
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_that_nobody_could_know_again_is_not_left_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> ProcessIdentity:
        numbers.append(pid)
        raise OSError(24, "Too many open files")

    numbers: list[int] = []
    monkeypatch.setattr(processes, "identity_of", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        start(["/bin/sleep", "60"], os.environ, tmp_path / "log")
    assert not psutil.pid_exists(numbers[0])
