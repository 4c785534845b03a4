"""Jars from Maven's registry, against sums that are kept in the repository."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from penstock.base.errors import ClusterError
from penstock.spark.broker import jars
from penstock.spark.broker.jars import JarSet

SET = JarSet("mine-1", ("a:b:1",))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds the set, and its sums."""
    monkeypatch.setenv("PENSTOCK_JARS", str(tmp_path / "jars"))
    held = tmp_path / "jars" / SET.name
    held.mkdir(parents=True)
    for name in ("a.jar", "b.jar"):
        (held / name).write_bytes(name.encode())
    rows = [f"{sha256(name.encode()).hexdigest()}  {SET.name}/{name}\n" for name in ("a.jar", "b.jar")]
    (tmp_path / "sums").write_text("".join(["# sums\n", *rows, f"{'0' * 64}  other-1/a.jar\n"]))
    monkeypatch.setattr(jars, "SUMS", tmp_path / "sums")
    return held


def test_jars_with_the_right_sums_are_taken(folder: Path) -> None:
    assert jars.fetch(SET) == [folder / "a.jar", folder / "b.jar"]


@pytest.mark.parametrize("what", ["changed", "missing", "more"])
def test_other_jars_are_refused_by_name(folder: Path, what: str) -> None:
    match what:
        case "changed":
            (folder / "a.jar").write_bytes(b"evil")
        case "missing":
            (folder / "a.jar").unlink()
        case "more":
            (folder / "a.jar").write_bytes(b"a.jar")
            (folder / "evil.jar").write_bytes(b"evil")
    with pytest.raises(ClusterError, match=r"not the jars of mine-1 by their sums: (a|evil)\.jar; remove the folder"):
        jars.fetch(SET)


def test_what_maven_fetched_is_checked_before_it_is_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text("#!/bin/sh\nmkdir jars && printf evil > jars/a.jar && printf b.jar > jars/b.jar\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{maven.parent}:/usr/bin:/bin")
    with pytest.raises(ClusterError, match=r"by their sums: a\.jar"):
        jars.fetch(SET)
    assert not folder.exists()


def test_the_sums_that_are_kept_can_be_read() -> None:
    jars.check_sums(SET, [])
