"""Folders with a name that anybody can guess, in a folder where everybody may write."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.base.errors import BadInputError
from penstock.connectors.storage import user_folder
from penstock.dataflow.load import Load
from penstock.engines.placed.bundle.process import open_crumbs
from penstock.engines.placed.messages import GenerationOrder
from penstock.runtime.batch import Marks
from penstock.runtime.call_journal import CallJournal
from penstock.workloads.operators.file_write import write_folder


@pytest.fixture(autouse=True)
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def order(checkpoint: str) -> GenerationOrder:
    return GenerationOrder(
        *(
            "run-1",
            1,
            1,
            0,
            frozenset(),
            (),
            (),
            {},
            {},
            {},
            (0, 0),
            False,
            True,
            Load.constant(1.0),
            0.0,
            None,
            checkpoint,
        )
    )


def test_the_folder_is_private_and_the_same_each_time(tmp: Path) -> None:
    folder = user_folder("crumbs")
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp, 0o700)
    assert user_folder("crumbs") == folder


@pytest.mark.parametrize("use", [lambda: user_folder("rows"), write_folder])
@pytest.mark.parametrize("kind", ["open", "link", "file", "theirs"])
def test_a_folder_that_somebody_else_prepared_is_refused(
    tmp: Path, monkeypatch: pytest.MonkeyPatch, kind: str, use: Any
) -> None:
    path = tmp / f"penstock-rows-{os.getuid()}"
    match kind:
        case "open":
            path.mkdir()
            path.chmod(0o777)
        case "link":
            (tmp / "elsewhere").mkdir(mode=0o700)
            path.symlink_to(tmp / "elsewhere")
        case "file":
            path.touch()
        case "theirs":
            own = os.getuid()
            (tmp / f"penstock-rows-{own + 1}").mkdir(mode=0o700)
            monkeypatch.setattr(os, "getuid", lambda: own + 1)
    with pytest.raises(BadInputError, match=r"penstock-rows-\d+: .*TMPDIR"):
        use()


@pytest.mark.parametrize("checkpoint", ["s3://bucket/run", "/nowhere/at/all"])
def test_crumbs_without_a_folder_of_the_run_follow_no_link_of_others(tmp: Path, checkpoint: str) -> None:
    planted = tmp / f"penstock-crumbs-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    with pytest.raises(BadInputError, match="open to other users"):
        open_crumbs(order(checkpoint), "bundle-a", first=True)
    assert list(planted.iterdir()) == []


def test_crumbs_stay_in_the_folder_of_the_run(tmp: Path) -> None:
    checkpoint = tmp / "run" / "checkpoint"
    checkpoint.mkdir(parents=True)
    crumbs = open_crumbs(order(str(checkpoint)), "bundle-a", first=True)
    assert crumbs.note_call("op", Marks(np.array([7])), 0, lambda: {"a": 1}) is None
    crumbs.close()
    [file] = (checkpoint / "crumbs").iterdir()
    assert b'"op", 7' in file.read_bytes()
    assert (checkpoint / "crumbs").stat().st_mode & 0o777 == 0o700
    assert list(tmp.glob("penstock-crumbs-*")) == []


def test_a_crumb_is_not_written_through_a_link(tmp: Path) -> None:
    (tmp / "precious").write_text("precious")
    (tmp / "crumb").symlink_to(tmp / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        CallJournal(tmp / "crumb")
    assert (tmp / "precious").read_text() == "precious"
