"""Java and its Python workers talk where no other user can."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.spark.internals.settings import ENABLED, FOLDER, MAX_FOLDER_BYTES, keeps_others_out, socket_settings


@pytest.mark.parametrize(
    ("umask", "enabled"), [(0o022, True), (0o077, True), (0o002, False), (0o020, False), (0, False)]
)
def test_sockets_in_a_shared_folder_only_if_the_umask_keeps_others_out(umask: int, enabled: bool) -> None:
    before = os.umask(umask)
    try:
        assert socket_settings(None) == ({ENABLED: "true"} if enabled else {})
        assert socket_settings(Path("/x" * MAX_FOLDER_BYTES)) == ({ENABLED: "true"} if enabled else {})
    finally:
        os.umask(before)


def test_in_a_folder_of_its_own_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    try:
        settings = socket_settings(Path("s"))
    finally:
        os.umask(before)
    assert settings == {ENABLED: "true", FOLDER: str(tmp_path / "s")}
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700


def test_systems_that_do_not_say_their_umask_keep_ports(tmp_path: Path) -> None:
    assert not keeps_others_out(tmp_path / "status")
    (tmp_path / "status").write_text("Name:\tpython\n")
    assert not keeps_others_out(tmp_path / "status")
