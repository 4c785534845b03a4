"""The archive of Spark's classes: found by what it is of, used where it is whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.base.clock import now
from penstock.spark.internals.class_archive import MOST_KEPT, archive_file, keep, making, using


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return archive_file(Path("/java"), Path("/spark"), "4.3.0")


def test_it_is_of_one_java_and_one_spark(archive: Path) -> None:
    assert archive.name.startswith("spark-4.3.0-")
    others = [(Path("/java"), Path("/spark"), "4.0.0"), (Path("/other"), Path("/spark"), "4.3.0")]
    assert archive not in [archive_file(*other) for other in others]


def test_made_by_the_first_found_by_the_next(archive: Path) -> None:
    assert using(archive) == ""
    options, made = making(archive)
    assert made is not None
    assert options.startswith(f"-XX:ArchiveClassesAtExit={made} ")
    made.write_bytes(b"classes")
    assert using(archive) == ""  # it may not be whole yet
    keep(made, archive)
    assert using(archive).startswith(f"-XX:SharedArchiveFile={archive} -Xshare:auto")
    assert (archive.stat().st_mode & 0o777, archive.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert making(archive) == ("", None)


def test_what_was_not_written_is_not_kept(archive: Path) -> None:
    _, made = making(archive)
    assert made is not None
    keep(made, archive)
    assert not archive.exists()


def test_few_are_kept_and_nothing_half_written(archive: Path) -> None:
    archive.parent.mkdir(parents=True)
    for number in range(MOST_KEPT + 2):
        old = archive.with_name(f"old-{number}.jsa")
        old.write_bytes(b"")
        os.utime(old, (number, number))
    assert using(archive.with_name("old-0.jsa"))  # the oldest, and in use
    left = archive.with_name("x.new")
    left.write_bytes(b"half")
    os.utime(left, (now() - 7200, now() - 7200))
    _, made = making(archive)
    assert made is not None
    assert not left.exists()
    made.write_bytes(b"classes")
    keep(made, archive)
    kept = sorted(path.name for path in archive.parent.iterdir())
    newest = [f"old-{number}.jsa" for number in range(4, MOST_KEPT + 2)]
    assert kept == ["old-0.jsa", *newest, archive.name]
    assert len(kept) == MOST_KEPT


def test_a_cache_that_cannot_be_written_is_no_reason_not_to_start(archive: Path) -> None:
    archive.parent.parent.parent.mkdir(exist_ok=True)
    (archive.parent.parent).write_text("a file where the folder would be")
    assert making(archive) == ("", None)
