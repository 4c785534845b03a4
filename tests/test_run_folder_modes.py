"""Folders of runs are for their owner alone, also those that were there before."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from penstock.base.errors import BadInputError
from penstock.connectors.storage import LocalStorage
from penstock.runs.folder import RunFolder, new_run_folder
from penstock.spark.session.embedded import _jvm_messages_in

NOBODY = 65534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def make(folder: Path) -> None:
    RunFolder(folder).create()


@pytest.mark.parametrize("inside", [[], ["run.json", "java.log"]], ids=["empty", "of a run"])
def test_a_folder_that_was_there_before_is_closed(tmp_path: Path, inside: list[str]) -> None:
    tmp_path.chmod(0o755)
    for name in inside:
        (tmp_path / name).touch()
    make(tmp_path)
    assert mode(tmp_path) == 0o700
    assert {mode(path) for path in tmp_path.iterdir() if path.is_dir()} == {0o700}


def test_a_folder_with_other_things_stays_as_it_is_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "thesis.tex").touch()
    with caplog.at_level(logging.WARNING):
        make(tmp_path)
    assert mode(tmp_path) == 0o755
    assert [record.message for record in caplog.records] == [
        f"{tmp_path}: other users may look into it; name a folder that is new, or chmod 700 it"
    ]


def test_a_folder_that_all_may_write_to_is_not_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    make(tmp_path)
    assert mode(tmp_path) == 0o1777


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a folder away")
def test_a_folder_of_another_user_is_refused_in_one_line(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    with pytest.raises(BadInputError, match="belongs to another user; name a folder of your own"):
        make(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_java_writes_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with _jvm_messages_in(tmp_path / "java.log"):
            pass
    finally:
        os.umask(before)
    assert mode(tmp_path / "java.log") == 0o600


@pytest.mark.parametrize("name", ["订单" * 40, "😀" * 200, "𠮷" * 80])
def test_a_run_of_a_pipeline_of_any_name_has_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    assert mode(new_run_folder(name)) == 0o700


def test_a_file_that_was_put_into_place_is_on_the_disk_by_its_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[bool, list[str]]] = []

    def note(handle: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(handle).st_mode), [path.name for path in tmp_path.iterdir()]))

    monkeypatch.setattr(os, "fsync", note)
    LocalStorage(tmp_path).write("state", lambda file: file.write(b"x"))
    assert synced[-1] == (True, ["state"])
