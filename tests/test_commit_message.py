"""The check of commit subjects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from check_commit_message import find_problem


@pytest.mark.parametrize(
    "message",
    [
        "Add a third token",
        "Reject option keys that have no effect\n\nNothing reads them.",
        "Process late rows once",
        "Need a node for every pinned slot",
        "Bring the tables up to date",
        "Pass the deadline on",
        "Merge branch 'ready/house'",
        "Discuss the fence in the design page",
        "Add " + "x" * 68,
    ],
)
def test_accepted(message: str) -> None:
    assert find_problem(message) is None


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("", "empty"),
        ("# only a comment", "empty"),
        ("What nothing would read is refused by name", "imperative"),
        ("Added a token", "imperative"),
        ("Adding a token", "imperative"),
        ("Adds a token", "imperative"),
        ("add a token", "capital"),
        ("Add a token.", "full stop"),
        ("Add " + "x" * 69, "73 characters"),
        ("Add a token\nbecause", "empty line"),
    ],
)
def test_rejected(message: str, problem: str) -> None:
    assert problem in (find_problem(message) or "")


def test_it_is_a_hook(tmp_path: Path) -> None:
    tool = Path(__file__).parents[1] / "tools" / "check_commit_message.py"
    (tmp_path / "message").write_text("Added a token\n", encoding="utf-8")
    done = subprocess.run([sys.executable, tool, tmp_path / "message"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.partition(":")[0]) == (1, "commit message")
