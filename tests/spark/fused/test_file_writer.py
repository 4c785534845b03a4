"""Files of several sinks in one folder: each removes its own and nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from penstock.engines.fused.sinks.writers import (
    FileWriter,
    batches_in,
    begin_like,
    in_pattern,
    left_by,
    owner_in_names,
    plain_owner,
)


@pytest.mark.parametrize(("first", "second"), [("東", "西"), ("a_b", "a-b"), ("a b", "a_b"), ("", "-")])
def test_no_two_owners_have_one_name(first: str, second: str) -> None:
    assert owner_in_names(f"run-{first}") != owner_in_names(f"run-{second}")


@pytest.mark.parametrize(
    ("name", "batch", "is_left"),
    [
        ("part-run-out-000000003-00000.json", 3, True),
        ("part-run-out-000000003-00000.json", None, True),
        ("part-run-out-000000004-00000.json", 3, False),
        ("part-run-out-1234567890-00000.json", None, True),
        ("part-run-out-2-000000003-00000.json", 3, False),
        ("part-run-out-2-000000003-00000.json", None, False),
        ("part-runxout-000000003-00000.json", None, False),
    ],
)
def test_what_an_owner_left_is_told_from_what_begins_alike(name: str, batch: int | None, is_left: bool) -> None:
    assert bool(left_by(["run-out"], batch).match(name)) is is_left


def test_the_number_of_a_batch_is_in_the_pattern_of_what_it_left() -> None:
    assert begin_like(["a-1234", "a"], 3) == "part-{a-1234,a}-000000003-*"
    assert begin_like(["a-1234", "a"], None) == "part-{a-1234,a}-*"


def test_batches_that_are_there_are_read_off_one_listing() -> None:
    listing = (
        "[S{path=file:/o/d=1/part-a-000000003-00000.json; length=1}, S{path=file:/o/part-a-1234-000000007-0.json}]"
    )
    assert batches_in(listing + "/o/part-b-000000001-0.json", ["a-1234", "a"]) == {3, 7}
    assert batches_in("null", ["a"]) == set()


def test_a_path_stands_for_itself_in_a_pattern() -> None:
    assert in_pattern("a[1]{b}*?\\c") == r"a\[1\]\{b\}\*\?\\c"


def ids(folder: Path) -> list[int]:
    return sorted(ds.dataset(folder, format="parquet").to_table()["id"].to_pylist())


@pytest.mark.parametrize("replaces_all", [False, True])
def test_sinks_share_a_folder_of_any_name(session: Any, tmp_path: Path, replaces_all: bool) -> None:
    folder = tmp_path / "odd [1]{a,b}"
    owners = ["run-東", "run-西", "run-out", "run-out-2"]
    writers = [
        FileWriter(session, "sink", "parquet", {"path": str(folder)}, owner, replaces_all=replaces_all)
        for owner in owners
    ]
    for number, writer in enumerate(writers):
        writer.prepare()
        for _ in range(2):  # the second time takes the place of the first
            writer.write(session.range(10 * number, 10 * number + 3, 1, 1), 0)
    assert ids(folder) == [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32]
    writers[2].write(session.range(50, 51, 1, 1), 1)
    assert ids(folder) == [0, 1, 2, 10, 11, 12, *([] if replaces_all else [20, 21, 22]), 30, 31, 32, 50]


def test_a_batch_that_an_earlier_version_left_is_not_there_twice(session: Any, tmp_path: Path) -> None:
    writer = FileWriter(session, "sink", "parquet", {"path": str(tmp_path)}, "run-a_b", replaces_all=False)
    for batch in (0, 1):
        writer.write(session.range(batch, batch + 1, 1, 1), batch)
    for file in tmp_path.glob("part-*"):
        file.rename(tmp_path / file.name.replace(owner_in_names("run-a_b"), plain_owner("run-a_b")))
    writer.write(session.range(1, 2, 1, 1), 1)
    assert ids(tmp_path) == [0, 1]


def test_a_folder_is_looked_at_once_and_for_a_batch_that_is_run_again(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_for: list[int | None] = []
    pattern = FileWriter._pattern

    def noting(writer: FileWriter, batch: int | None) -> str:
        looked_for.append(batch)
        return pattern(writer, batch)

    monkeypatch.setattr(FileWriter, "_pattern", noting)

    def writer() -> FileWriter:
        return FileWriter(session, "sink", "parquet", {"path": str(tmp_path)}, "run-out", replaces_all=False)

    first = writer()
    for batch in (0, 1, 2, 2):
        first.write(session.range(10 * batch, 10 * batch + 2, 1, 2), batch)
    assert looked_for == [None, 2]
    # another process goes on, and runs the last batch again; one whose checkpoint was removed begins anew
    looked_for.clear()
    second = writer()
    for batch in (2, 3):
        second.write(session.range(10 * batch, 10 * batch + 1, 1, 1), batch)
    assert looked_for == [None, 2]
    assert ids(tmp_path) == [0, 1, 10, 11, 20, 30]
    third = writer()
    for batch in (0, 1, 2, 3):
        third.write(session.range(100 + batch, 101 + batch, 1, 1), batch)
    assert ids(tmp_path) == [100, 101, 102, 103]
