"""The reference operators on plain tuples, in threads, with the services they need; nothing of it needs Spark."""

from __future__ import annotations

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.base.errors import BadInputError
from penstock.dataflow.code import find_logic
from penstock.dataflow.logic import Logic
from penstock.inputs.finders import builtin_pipeline
from penstock.modelling.library import reference_library
from penstock.workloads.operators import (
    batch_file_write,
    parse_xml,
    pi,
    reference_logic,
    split_words,
)
from penstock.workloads.operators.file_write import BATCH, LINE_BYTES, WRITE_FOLDER, BatchWriter
from penstock.workloads.operators.parse_xml import Reader
from penstock.workloads.operators.pi import pi_logic, viete
from penstock.workloads.operators.words import LONGEST, SHORTEST, line
from workload_builders import ROWS, run

ALL = reference_logic


def columns(code: Logic) -> list[str]:
    assert code.schema is not None
    return [column.split()[0] for column in code.schema.split(", ")]


def test_there_is_code_for_every_reference_model() -> None:
    # the models of the applications stand under PIPELINE/OPERATOR, and their pipelines say where the code is
    assert set(reference_logic) == {name for name in reference_library().models if "/" not in name}


@pytest.mark.parametrize("name", ALL)
def test_sends_on_the_value_with_what_the_schema_says(name: str, around: dict[str, str]) -> None:
    for sent in run(ALL[name], [0, 7, ROWS, 10**12], something="else"):
        for row in sent if isinstance(sent, list) else [sent]:
            assert list(row) == columns(ALL[name])
    assert find_logic(f"penstock.workloads.operators:{name}") is ALL[name]


@pytest.mark.parametrize("name", ALL)
def test_threads_agree(name: str, around: dict[str, str]) -> None:
    code = ALL[name]
    expected = run(code, list(range(50)))
    with ThreadPoolExecutor(8) as pool:
        for answer in pool.map(lambda _: run(code, list(range(50))), range(8)):
            assert answer == expected


@pytest.mark.parametrize("name", ALL)
def test_travels_to_another_process(name: str, around: dict[str, str]) -> None:
    packed = pytest.importorskip("pyspark.cloudpickle").dumps(ALL[name])
    assert len(packed) < 4_000, "code, not what it works on"
    script = (
        "import pickle, sys\n"
        "code = pickle.load(sys.stdin.buffer)\n"
        "handle = () if code.open is None else (code.open(),)\n"
        "print(code({'value': 3}, *handle))\n"
        "if code.close is not None: code.close(*handle)\n"
    )
    answer = subprocess.run([sys.executable, "-c", script], input=packed, capture_output=True, check=True)
    assert answer.stdout.decode().strip() == str(run(ALL[name], [3])[0])


def test_pi() -> None:
    # by hand: sqrt(2)/2 = 0.70710678..., and 2 / 0.70710678 = 2.82842712
    assert viete(1) == pytest.approx(2.82842712)
    assert pi({"value": 1})["pi"] == pytest.approx(math.pi, abs=1e-8)
    assert pi_logic(factors=1, evaluations=2)({"value": 1}) == {"value": 1, "pi": viete(1)}


def test_parse_xml() -> None:
    assert Reader().count('<a x="1" y="2"><b/><b z="3">text</b></a>') == (3, 3)
    # by hand: 4 messages of a station with 1 attribute, and 8 readings with 3, each with 2 elements inside
    assert run(parse_xml, [5]) == [{"value": 5, "elements": 4 * (1 + 8 * 3), "attributes": 4 * (1 + 8 * 3)}]


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><a>&c;</a>',
        '<!DOCTYPE a [<!ENTITY f SYSTEM "file:///etc/hostname">]><a>&f;</a>',
        '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd"><a/>',
        "<a><b></a>",
        "",
    ],
)
def test_bad_xml_is_refused_and_the_reader_goes_on(text: str) -> None:
    reader = Reader()
    with pytest.raises(BadInputError):
        reader.count(text)
    assert reader.count("<a/>") == (1, 0)


def test_words() -> None:
    counts: dict[str, int] = {}
    for number in range(2_000):
        words = split_words({"value": number})
        assert " ".join(row["word"] for row in words) == line(number)
        assert SHORTEST <= len(words) <= LONGEST
        for row in words:
            counts[row["word"]] = counts.get(row["word"], 0) + 1
    assert len(counts) > 100
    assert counts["the"] > 10 * min(counts.values())
    assert line(1) != line(2)
    # what word-count says about itself: 9 words a line
    (out,) = builtin_pipeline("word-count").outputs("split")
    assert sum(counts.values()) / 2_000 == pytest.approx(out.selectivity, rel=0.02)


def lines(folder: Path) -> list[bytes]:
    return [row for path in sorted(folder.glob("rows-*.txt")) for row in path.read_bytes().splitlines(keepends=True)]


def test_writes_whole_batches_and_the_rest_when_closed(tmp_path: Path) -> None:
    writer = BatchWriter(tmp_path, batch=10)
    numbers = [writer.add(value) for value in range(25)]
    assert numbers == [0] * 10 + [1] * 10 + [2] * 5
    assert len(lines(tmp_path)) == 20
    writer.close()
    assert [int(row) for row in lines(tmp_path)] == list(range(25))
    assert {len(row) for row in lines(tmp_path)} == {LINE_BYTES}


def test_the_operator_writes_to_the_folder_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WRITE_FOLDER, str(tmp_path / "new"))
    sent = run(batch_file_write, list(range(BATCH + 1)))
    assert sent[-1] == {"value": BATCH, "batch": 1}
    assert len(lines(tmp_path / "new")) == BATCH + 1


def test_disk_stays_bounded(tmp_path: Path) -> None:
    for _ in range(3):  # three lives of a thread: the next goes on where the one before ended
        writer = BatchWriter(tmp_path, batch=10, largest_file=5_000)
        for value in range(333):
            writer.add(value)
        writer.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"rows-0.txt", "rows-0.old.txt", "rows-0.lock"}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2 * (5_000 + 10 * LINE_BYTES)


def test_threads_at_the_same_time_have_files_of_their_own(tmp_path: Path) -> None:
    writers = [BatchWriter(tmp_path) for _ in range(3)]
    assert len({writer.path for writer in writers}) == 3
    for writer in writers:
        writer.close()


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv(WRITE_FOLDER, str(tmp_path / "file"))
    with pytest.raises(BadInputError, match="cannot be written"):
        run(batch_file_write, [1])
