"""The table operator and the database behind it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.base.errors import BadInputError
from penstock.workloads.operators import azure as table_database
from penstock.workloads.operators import (
    azure_table,
)
from penstock.workloads.operators.azure import COLUMNS, TABLE_DATABASE, TABLE_DELAY, ensure_database, is_complete
from workload_builders import ROWS, run, seconds


def test_looks_up_by_key(around: dict[str, str]) -> None:
    first, again = run(azure_table, [3, 3 + ROWS])
    assert len(COLUMNS) == 20
    assert first["row_key"] == again["row_key"] == 3
    assert {**again, "value": 3} == first
    # by hand: 3 * 40503 = 121509 = 4 * 30000 + 1509; 3 * 7919 = 23757 = 47 * 500 + 257
    assert (first["meter"], first["zone"], first["tariff"], first["status"]) == (1509, "zone-257", "day", "ok")


def test_the_table_may_be_slow_like_a_service(around: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TABLE_DELAY, "20")
    assert 0.1 <= seconds(lambda: run(azure_table, list(range(5)))) < 0.4
    for wrong in ("-1", "nan", "soon"):
        monkeypatch.setenv(TABLE_DELAY, wrong)
        with pytest.raises(BadInputError, match=f"{TABLE_DELAY}: expected milliseconds of at least 0, found '{wrong}'"):
            run(azure_table, [1])


def test_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TABLE_DATABASE, str(tmp_path / "none"))
    with pytest.raises(BadInputError, match="no database at"):
        run(azure_table, [1])
    (tmp_path / "none").write_text("not a database, but long enough to be looked at " * 20)
    with pytest.raises(BadInputError, match="is not a table of Penstock's"):
        run(azure_table, [1])
    monkeypatch.delenv(TABLE_DATABASE)
    with pytest.raises(BadInputError, match=f"{TABLE_DATABASE} is not set"):
        run(azure_table, [1])


def test_the_database_is_built_once_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_database, "SLICE", 900)
    heard: list[tuple[int, int]] = []
    path = ensure_database(tmp_path, ROWS, lambda done, all_: heard.append((done, all_)))
    assert heard == [(900, ROWS), (1_800, ROWS), (ROWS, ROWS)]
    built = path.stat().st_mtime_ns
    assert ensure_database(tmp_path, ROWS, lambda *_: pytest.fail("built again")) == path
    assert path.stat().st_mtime_ns == built
    assert ensure_database(tmp_path, ROWS + 1) != path


def test_every_build_is_the_same(tmp_path: Path) -> None:
    one, other = (ensure_database(tmp_path / name, ROWS) for name in ("a", "b"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("share", [0, 0.3, 0.99])
def test_a_truncated_database_is_built_again(tmp_path: Path, share: float) -> None:
    path = ensure_database(tmp_path, ROWS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert not is_complete(path, ROWS)
    assert ensure_database(tmp_path, ROWS).read_bytes() == whole


def test_what_a_killed_builder_left_is_removed(tmp_path: Path) -> None:
    path = ensure_database(tmp_path, ROWS)
    path.unlink()
    (tmp_path / f".{path.stem}-abc.sqlite").write_text("half")
    ensure_database(tmp_path, ROWS)
    assert {found.name for found in tmp_path.iterdir()} == {path.name, path.with_suffix(".lock").name}


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(_done: int, _all: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_database(tmp_path, ROWS, fail)
    assert not list(tmp_path.glob("*.sqlite")) + list(tmp_path.glob(".*.sqlite"))


def test_two_who_need_it_at_the_same_time_build_it_once(tmp_path: Path) -> None:
    heard: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: ensure_database(tmp_path, ROWS, lambda done, _: heard.append(done)), range(4)))
    assert len(paths) == 1
    assert heard == [ROWS]


def test_where_the_database_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert ensure_database(rows=10).parent == tmp_path / "penstock"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert table_database.default_folder() == tmp_path / "home/.cache/penstock"


def test_a_folder_that_cannot_hold_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInputError, match="cannot be written"):
        ensure_database(tmp_path / "file", ROWS)
    with pytest.raises(BadInputError, match="rows: expected at least 1"):
        ensure_database(tmp_path, 0)
