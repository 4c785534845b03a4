"""The commands of the tutorial and of the pages about advice and manifests, run as they stand; output that does not
depend on the hour is compared."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import penstock
from penstock.cli.main import run

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"^    \$ (?:penstock|\./run) (.*)$", re.MULTILINE)


def commands(page: str) -> list[tuple[list[str], list[str]]]:
    """Each with the lines that follow it."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    found = []
    for match in COMMAND.finditer(text):
        shown = []
        for line in text[match.end() + 1 :].splitlines():
            if not line.startswith("    ") or line.startswith("    $"):
                break
            shown.append(line.strip())
        found.append((shlex.split(match[1], comments=True), shown))
    return found


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    told = commands("tutorial.md")
    assert [words[0] for words, _ in told] == [
        *("plan", "up", "submit", "submit", "list", "priority", "decisions", "down"),
    ]
    try:
        for words, shown in told:
            assert run(words) == 0, words
            said = capsys.readouterr().out
            if words[0] in {"submit", "priority"}:
                assert said.strip().split(",")[1:] == shown[0].split(",")[1:]
            if words[0] == "decisions":
                # what was decided and why is the same at any hour
                reasons = [line[10:] for line in shown if line[:2].isdigit()]
                assert reasons
                assert all(reason in said for reason in reasons)
    finally:
        penstock.down()


@pytest.mark.parametrize("page", ["attach.md", "kubernetes.md"])
def test_output_is_as_shown(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    told = commands(page)
    assert told
    for words, shown in told:
        assert run(words) == 0
        assert [line.strip() for line in capsys.readouterr().out.splitlines()] == shown
