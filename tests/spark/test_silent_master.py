"""A master that says nothing is given up on; one whose Java is at work is not. The Java here is `sleep`, or a shell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.errors import BadInputError
from penstock.spark.session import silent_master
from penstock.spark.session.silent_master import expecting_an_answer


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_master, "SILENT_SECONDS", 2)


def run(java: str | Path, *words: str) -> None:
    subprocess.run([str(java), *words], check=True)


def test_silence_is_one_line_and_ends_java(tmp_path: Path) -> None:
    java = shutil.copy(str(shutil.which("sleep")), tmp_path / "java")
    said = r"master 'spark://h:1': it takes connections, and did not answer within 2 s"
    with pytest.raises(BadInputError, match=said), expecting_an_answer("spark://h:1"):
        run(java, "60")


def test_what_goes_wrong_otherwise_is_said_as_it_is(tmp_path: Path) -> None:
    java = shutil.copy(str(shutil.which("false")), tmp_path / "java")
    with pytest.raises(subprocess.CalledProcessError), expecting_an_answer("spark://h:1"):
        run(java)


def test_java_that_is_at_work_is_left_alone(tmp_path: Path) -> None:
    java = shutil.copy(str(shutil.which("sh")), tmp_path / "java")
    with expecting_an_answer("spark://h:1"):
        run(java, "-c", "n=0; while [ $n -lt 1500000 ]; do n=$((n+1)); done")
