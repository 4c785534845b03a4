"""Asking something of a run through its folder."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import penstock
from penstock.clock import pause
from penstock.errors import BadInputError
from penstock.spark.requests import RunError, RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create()
    made.describe(
        {
            "pipeline": "p",
            "master": "spark://127.0.0.1:7077",
            "generation": 0,
            "plan": "plan-000.json",
            "emitted": {},
            "load": {},
            "routing": "shuffle",
            "segmenter": "ends",
            "segments": [["source", "sink"]],
        }
    )
    return made


def answer_once(folder: RunFolder, document: dict[str, object]) -> threading.Thread:
    def conduct() -> None:
        while not (asked := folder.requests()):
            pause(0.01)
        folder.answer(asked[0], document)

    thread = threading.Thread(target=conduct)
    thread.start()
    return thread


def test_a_request_gets_its_answer(folder: RunFolder) -> None:
    folder.sign()
    thread = answer_once(folder, {"seconds": 1.5})
    assert penstock.drain(folder.path) == 1.5
    thread.join()
    assert not folder.requests()


def test_an_error_is_raised_where_it_was_asked(folder: RunFolder) -> None:
    folder.sign()
    thread = answer_once(folder, {"error": "the run is not drained"})
    with pytest.raises(RunError, match="not drained"):
        penstock.resume(folder.path)
    thread.join()


def test_a_run_nobody_conducts_cannot_be_drained(folder: RunFolder) -> None:
    with pytest.raises(RunError, match="penstock resume"):
        penstock.drain(folder.path)


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no run was started"):
        penstock.drain(tmp_path)


def test_a_run_that_does_not_answer_is_given_up(folder: RunFolder) -> None:
    folder.sign()
    with pytest.raises(RunError, match="did not answer"):
        folder.ask("drain", patience=0.2)
    assert not folder.requests()


@pytest.mark.parametrize("text", ["not json", "[]", '{"pipeline": "p", "surprise": 1}'])
def test_a_description_that_was_tampered_with_is_bad_input(folder: RunFolder, text: str) -> None:
    (folder.path / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadInputError, match=r"run\.json"):
        penstock.resume(folder.path)
