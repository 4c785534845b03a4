"""What a run left for itself, and somebody emptied, cut off or replaced: one line, and a run that lives goes on."""

from __future__ import annotations

import json
import logging
import zlib
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from penstock.base.errors import BadInputError
from penstock.connectors.file_source import FileEntry, FileFormat, FileIndex
from penstock.connectors.number_files import KeptNumbers
from penstock.dataflow.load import Load
from penstock.runs.folder import RunFolder
from penstock.runs.states import RunState
from penstock.runtime.call_journal import CallRecord, read_last_call, read_records, write_records

if TYPE_CHECKING:
    from pathlib import Path

DAMAGED = [b"", b"{", b"\xff\xfe", b"[1, 2", b'{"a": 1}', b"null", b"nan", b"-3", b'["x"]', b"\x00" * 40]
CRUMB = CallRecord("parse", 17, 0)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_number_read_before_counts(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "most_rows"
    file.write_text("250")
    numbers = KeptNumbers(tmp_path)
    assert numbers.whole("most_rows", 7) == 250
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert numbers.whole("most_rows", 7) == 250
    assert len(caplog.messages) == 1
    assert "\n" not in caplog.messages[0]
    assert str(file) in caplog.messages[0]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_number_never_read_is_what_else_there_is_or_a_complaint(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "reached").write_bytes(content)
    assert KeptNumbers(tmp_path).whole("reached", 7) == 7
    with pytest.raises(BadInputError, match="reached"):
        KeptNumbers(tmp_path).get("reached")


def test_large_whole_numbers_are_exact(tmp_path: Path) -> None:
    (tmp_path / "reached").write_text(str(2**60 + 1))
    assert KeptNumbers(tmp_path).get("reached") == 2**60 + 1


@pytest.mark.parametrize("content", DAMAGED)
def test_crumbs_that_cannot_be_read_are_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "crumb"
    file.write_bytes(content)
    assert read_last_call(file) is None
    assert read_records(file) == []


def test_crumbs_are_read_back(tmp_path: Path) -> None:
    write_records(tmp_path / "known", [CRUMB, CallRecord("parse", None, 0, 3, "ab")])
    assert read_records(tmp_path / "known") == [CRUMB, CallRecord("parse", None, 0, 3, "ab")]
    assert read_records(tmp_path / "nothing") == []


@pytest.mark.parametrize("content", DAMAGED)
def test_poison_known_before_is_forgotten_not_fatal(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("pyspark")
    from penstock.spark.region_function import _poisoned

    crumb, poison = tmp_path / "a.crumb", tmp_path / "a.poison"
    crumb.write_text(json.dumps(["parse", 17, 0, None, None]))
    poison.write_bytes(content)
    assert _poisoned(crumb, poison) == [CRUMB]
    assert read_records(poison) == [CRUMB]


@pytest.mark.parametrize("content", DAMAGED)
def test_an_index_that_is_none_says_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "files-0.json"
    FileIndex("*.txt", FileFormat.TEXT, (FileEntry("a.txt", 2, (0,)),)).save(path)
    assert FileIndex.read(path).rows == 2
    path.write_bytes(content)
    with pytest.raises(BadInputError, match="files-0") as raised:
        FileIndex.read(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", DAMAGED)
def test_the_load_goes_on_as_it_was(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("pyspark")
    from penstock.spark.load_source import LoadReader, begin, bound_batches, spread_over

    begin(tmp_path)
    bound_batches(tmp_path, 3)
    spread_over(tmp_path, 2)
    (tmp_path / "start").write_text("1.0")
    options = {"load": json.dumps(Load.constant(1000).document()), "folder": str(tmp_path), "partitions": "4"}
    reader = LoadReader(options)
    assert reader.latestOffset({"tuples": 5}) == {"tuples": 8}
    assert len(reader.partitions({"tuples": 5}, {"tuples": 8})) == 2
    for name in ("start", "most_rows", "partitions"):
        (tmp_path / name).write_bytes(content)
    assert reader.latestOffset({"tuples": 8}) == {"tuples": 11}
    assert len(reader.partitions({"tuples": 8}, {"tuples": 11})) == 2
    with pytest.raises(BadInputError, match="start"):
        begin(tmp_path)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_trial_goes_on_as_it_was(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("pyspark")
    from penstock.profiling.trial_source import TrialReader, TrialSetting

    setting = TrialSetting(number=1, operator="a", threads=1, rate=1e9, start=1.0, most_rows=10)
    setting.write(tmp_path)
    reader = TrialReader({"folder": str(tmp_path)})
    assert asdict(reader._setting()) == asdict(setting)
    (tmp_path / "setting").write_bytes(content)
    assert reader.latestOffset({"trial": 1, "tuples": 10}) == {"trial": 1, "tuples": 20}
    with pytest.raises(BadInputError, match="setting"):
        TrialReader({"folder": str(tmp_path)}).latestOffset({"trial": 1, "tuples": 10})


@pytest.mark.parametrize("content", DAMAGED)
def test_counts_of_lost_messages_begin_anew(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("pyspark")
    from penstock.engines.fused.sources.topic_notices import LOST, lost_messages

    (tmp_path / LOST).write_bytes(content)
    assert lost_messages(tmp_path).notes == []


@pytest.mark.parametrize("content", [*DAMAGED, *map(zlib.compress, DAMAGED)])
def test_state_that_is_none_says_so(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("pyspark")
    from penstock.engines.placed.bundle.keyed_segment import read_states

    (tmp_path / "state").write_bytes(content)
    with pytest.raises(BadInputError, match="state") as raised:
        read_states(str(tmp_path), {3: "state"})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [*DAMAGED, b"[null]", b'{"state": []}', b'{"state": "dancing"}'])
def test_a_run_whose_state_cannot_be_read_is_lost_once_its_process_is_gone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    assert RunFolder(tmp_path).state() == (RunState.LOST, {})
