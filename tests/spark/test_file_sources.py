"""Sources with files, without Spark: which row is which tuple, and what becomes of rows that cannot be read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.base.errors import BadInputError
from penstock.connectors.file_source import FileFeed, FileIndex, MalformedRowError, RowReader, index_of
from penstock.dataflow.formats import reading_of
from penstock.dataflow.pipeline import Kind, Operator


def source(files: Path | str, **more: Any) -> Operator:
    return Operator(name="s", kind=Kind.SOURCE, files=str(files), **more)


@contextmanager
def reading(index: FileIndex, folder: Path) -> Iterator[RowReader]:
    index.save(folder / "index.json")
    with closing(RowReader(str(folder / "index.json"))) as reader:
        yield reader


def everything(index: FileIndex, folder: Path) -> list[Any]:
    """Every row in order; the text of the error in place of one that cannot be read."""
    rows: list[Any] = []
    with reading(index, folder) as reader:
        for number in range(index.rows):
            try:
                rows.append(reader.row(number))
            except MalformedRowError as error:
                rows.append(str(error))
    return rows


def write_jsonl(path: Path, count: int, first: int = 0) -> None:
    path.write_text("".join(json.dumps({"n": first + number}) + "\n" for number in range(count)))


@pytest.fixture
def short_stride(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.file_source.STRIDE", 4)


@pytest.mark.usefixtures("short_stride")
def test_rows_are_numbered_over_all_files_and_found_from_anywhere(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", 11)
    write_jsonl(tmp_path / "b.jsonl", 6, first=11)
    index = index_of(source(tmp_path / "*.jsonl"))
    assert (index.rows, [entry.rows for entry in index.entries]) == (17, [11, 6])
    # a place to start from at rows 0, 4 and 8: {"n": 0}\n is nine bytes
    assert index.entries[0].marks == (0, 36, 72)
    with reading(index, tmp_path) as reader:
        for number in (0, 1, 2, 9, 3, 16, 15, 11, 10, 0):
            assert reader.row(number) == {"n": number}


def test_text_has_a_tuple_for_every_line_blank_ones_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\n\n  three \r\nfour")
    rows = everything(index_of(source(tmp_path / "a.txt")), tmp_path)
    assert rows == [{"value": "one"}, {"value": ""}, {"value": "  three "}, {"value": "four"}]


@pytest.mark.usefixtures("short_stride")
def test_json_lines_that_cannot_be_read_are_errors_in_their_place(tmp_path: Path) -> None:
    lines = [b'{"a": 1}', b"", b"{oops", b"[1, 2]", b'{"a": "\xff"}', b"   ", b'{"a": 2}', b'{"a": 3}']
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    rows = everything(index_of(source(tmp_path / "a.jsonl")), tmp_path)
    # the two blank lines are no rows
    assert len(rows) == 6
    assert [row for row in rows if isinstance(row, dict)] == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert "row 2: not valid JSON" in rows[1]
    assert "{oops" in rows[1]
    assert "row 3: expected a JSON object" in rows[2]
    assert "row 4: not UTF-8" in rows[3]


@pytest.mark.usefixtures("short_stride")
def test_csv_records_may_span_lines(tmp_path: Path) -> None:
    records = [f'{number},"line one\nline {number}"' for number in range(9)]
    (tmp_path / "a.csv").write_text("\ufeffn, text\n\n" + "\n".join(records) + "\n", encoding="utf-8")
    index = index_of(source(tmp_path / "a.csv"))
    assert index.entries[0].columns == ("n", "text")
    assert everything(index, tmp_path) == [{"n": str(n), "text": f"line one\nline {n}"} for n in range(9)]
    with reading(index, tmp_path) as reader:
        assert reader.row(6) == {"n": "6", "text": "line one\nline 6"}


def test_csv_records_that_cannot_be_read_are_errors_in_their_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'a,b\n1,2\n3\n"x"y,4\n\xff,5\n6,7\n8,"open\n')
    rows = everything(index_of(source(tmp_path / "a.csv")), tmp_path)
    assert [row for row in rows if isinstance(row, dict)] == [{"a": "1", "b": "2"}, {"a": "6", "b": "7"}]
    assert len(rows) == 6
    assert "row 2: expected 2 fields, found 1: 3" in rows[1]
    assert "row 3: not valid CSV" in rows[2]
    assert "row 4: not valid CSV" in rows[3]
    assert "row 6: not valid CSV" in rows[5]


def test_parquet_is_read_by_row_group(tmp_path: Path) -> None:
    table = pa.table({"n": list(range(1000)), "half": [number / 2 for number in range(1000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    index = index_of(source(tmp_path / "a.parquet"))
    assert index.entries[0].marks == (0, 300, 600, 900)
    assert everything(index, tmp_path) == table.to_pylist()
    with reading(index, tmp_path) as reader:
        for number in (999, 300, 299, 0):
            assert reader.row(number) == {"n": number, "half": number / 2}


def test_files_that_appear_later_come_behind_in_the_order_they_appeared(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "m.jsonl", 2)
    index = index_of(source(tmp_path / "*.jsonl"))
    assert index.with_new_files() is index
    for age, name in ((100, "z"), (50, "a")):
        write_jsonl(tmp_path / f"{name}.jsonl", 1, first=age)
        os.utime(tmp_path / f"{name}.jsonl", (1e9 - age, 1e9 - age))
    grown = index.with_new_files()
    assert [Path(entry.path).name for entry in grown.entries] == ["m.jsonl", "z.jsonl", "a.jsonl"]
    grown.save(tmp_path / "index.json")
    assert FileIndex.read(tmp_path / "index.json") == grown


def test_a_later_file_that_cannot_be_read_is_one_malformed_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    index = index_of(source(tmp_path / "*.parquet"))
    (tmp_path / "b.parquet").write_bytes(b"not parquet")
    rows = everything(index.with_new_files(), tmp_path)
    assert rows[0] == {"n": 1}
    assert "b.parquet: cannot be read as parquet" in rows[1]


def test_a_reader_finds_rows_added_after_it_was_opened(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", 2)
    index = index_of(source(tmp_path / "*.jsonl"))
    with reading(index, tmp_path) as reader:
        assert reader.row(1) == {"n": 1}
        write_jsonl(tmp_path / "b.jsonl", 2, first=2)
        index.with_new_files().save(tmp_path / "index.json")
        assert reader.row(3) == {"n": 3}


def test_a_file_that_lost_rows_says_so(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", 5)
    with reading(index_of(source(tmp_path / "a.jsonl")), tmp_path) as reader:
        write_jsonl(tmp_path / "a.jsonl", 2)
        with pytest.raises(MalformedRowError, match="changed since it was counted"):
            reader.row(4)


def test_there_are_as_many_tuples_as_the_shortest_source_has_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.file_source.LOOK_SECONDS", 0.0)
    write_jsonl(tmp_path / "a.jsonl", 5)
    write_jsonl(tmp_path / "b1.jsonl", 2)
    run = tmp_path / "run"
    run.mkdir()
    feed = FileFeed(run, {n: index_of(source(tmp_path / f"{n}*.jsonl")) for n in "ab"})
    assert feed.tuples == 2
    write_jsonl(tmp_path / "b2.jsonl", 2)
    feed.look()
    assert feed.tuples == 4


@pytest.mark.parametrize(
    ("files", "more", "complaint"),
    [
        ("none/*.jsonl", {}, "source 's': no file matches 'none/\\*.jsonl'"),
        ("folder", {"format": "text"}, "it is a folder, write 'folder/\\*'"),
        ("bad.parquet", {}, "source 's': .*bad.parquet: cannot be read as parquet"),
        ("bad.csv", {}, "source 's': .*bad.csv: cannot be read as csv: not valid CSV"),
    ],
)
def test_files_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: str, more: dict[str, str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "bad.parquet").write_bytes(b"PAR0")
    (tmp_path / "bad.csv").write_bytes(b'"a"b\n1\n')
    with pytest.raises(BadInputError, match=complaint):
        index_of(source(files, **more))


def test_the_format_is_said_by_the_ending_or_given() -> None:
    assert reading_of(source("a/*.CSV")).format == "csv"
    assert reading_of(source("a/*.log", format="text")).format == "text"
