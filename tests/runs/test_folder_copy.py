"""Files of a run in object storage are there for a conductor on another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import RunFailedError
from penstock.connectors.storage import LocalStorage, storage
from penstock.runs.folder import RunFolder
from penstock.runs.folder_copy import FolderCopy


@pytest.fixture
def copies(tmp_path: Path) -> tuple[FolderCopy, FolderCopy]:
    """Two machines with copies of one place."""
    store = storage((tmp_path / "store").as_uri())
    first, second = FolderCopy(store, tmp_path / "first"), FolderCopy(store, tmp_path / "second")
    first.fetch()
    return first, second


def test_another_machine_finds_the_saved_files(copies: tuple[FolderCopy, FolderCopy]) -> None:
    first, second = copies
    (first.folder / "audit").mkdir()
    (first.folder / "audit" / "0").write_text("a")
    (first.folder / "start").write_text("1")
    first.save()
    (first.folder / "audit" / "1").write_text("never saved")
    second.fetch()
    assert sorted(str(path.relative_to(second.folder)) for path in second.folder.rglob("*") if path.is_file()) == [
        "audit/0",
        "start",
    ]


def test_files_that_changed_or_left_are_followed_and_others_not_written_again(
    copies: tuple[FolderCopy, FolderCopy], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = copies
    for name in ("kept", "changed", "gone"):
        (first.folder / name).write_text(name)
    first.save()
    written: list[str] = []
    store = first._store
    write = store.write

    def noted(path: str, fill: Any) -> None:
        written.append(path)
        write(path, fill)

    monkeypatch.setattr(store, "write", noted)
    (first.folder / "changed").write_text("changed anew")
    (first.folder / "gone").unlink()
    first.save()
    assert written == ["files/changed"]
    second.fetch()
    assert {path.name: path.read_text() for path in second.folder.iterdir()} == {
        "kept": "kept",
        "changed": "changed anew",
    }


def test_logs_are_saved_at_the_end_and_scratch_never(copies: tuple[FolderCopy, FolderCopy]) -> None:
    first, _ = copies
    (first.folder / "log").write_text("a line")
    (first.folder / "crumbs").mkdir()
    (first.folder / "crumbs" / "c").write_text("c")
    first.save()
    assert first._store.list_all("files") == []
    first.save(logs=True)
    assert first._store.list_all("files") == ["files/log"]


def test_a_conductor_that_was_replaced_saves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "runs"))
    place = (tmp_path / "run").as_uri()
    first, second = RunFolder(place), RunFolder(place)
    first.take()
    (first.working_folder / "start").write_text("1")
    first.save_files()
    monkeypatch.setattr(second, "_check_free", lambda: None)  # the first is suspended and renews nothing
    second.take()
    (first.working_folder / "start").write_text("2")
    with pytest.raises(RunFailedError, match="another process has taken the run over"):
        first.save_files()
    second.release()
    first.release()
    assert LocalStorage(tmp_path / "run").read("files/start") == b"1"


def test_copies_of_dead_processes_are_removed(tmp_path: Path) -> None:
    store, copies = storage((tmp_path / "store").as_uri()), tmp_path / "copies"
    living, own = copies / "place-1-aa", copies / "place-2-bb"
    dead = copies / f"place-{2**22 + 1}-cc"  # above the largest process number of Linux
    for folder in (living, dead):
        folder.mkdir(parents=True)
    FolderCopy(store, own).fetch()
    assert {path.name for path in copies.iterdir()} == {living.name, own.name}
