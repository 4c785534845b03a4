"""The commands of the tutorial, of the pages by role and of those about advice and manifests, run as they stand. Output
is compared; where it depends on the hour, but for its numbers."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.cli.main import run
from penstock.planning.registry import SHARERS

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.mark.parametrize("page", ["attach.md", "kubernetes.md", "i-have-a-query.md"])
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


LIVES = frozenset({"up", "list", "decisions", "events", "nodes", "dashboard", "submit", "set", "down"})
"""What they print depends on the hour, or on how far a fleet that lives has come."""
LOOKS = frozenset({"list", "decisions", "events"})
"""What they print comes true after a while."""
GROUPS = frozenset({"controller", "pipelines", "cluster", "plans", "dev"})
SECONDS = 30.0


def plain(line: str, *, lives: bool) -> str:
    """Without what differs from one time or place to another, and without the widths of tables."""
    line = line.strip()
    if lives:
        line = re.sub(r"#code=\S+", "#code", line)
        line = re.sub(r"\S+/(read-)?token\b", "token", line)
        line = re.sub(r"\bby \S+$", "by somebody", line)
        line = re.sub(r"\d[\d,.:]*", "#", line)
        line = re.sub(r": (?:waiting|starting|active)\b", ": there", line)
    return " ".join(line.split())


@pytest.fixture
def first_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The policy of the example, registered as an installed one is, here and in processes that are started."""
    registered = tmp_path / "installed" / "first_come-1.dist-info"
    registered.mkdir(parents=True)
    (registered / "METADATA").write_text("Metadata-Version: 2.1\nName: first-come\nVersion: 1\n")
    declared = tomllib.loads((ROOT / "examples/policy/pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    sections = [f"[{group}]\n" + "\n".join(f"{n} = {v}" for n, v in names.items()) for group, names in declared.items()]
    (registered / "entry_points.txt").write_text("\n".join(sections))
    paths = [str(registered.parent), str(ROOT / "examples" / "policy")]
    for path in paths:
        monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    SHARERS.__dict__.pop("_addresses", None)
    yield
    SHARERS.__dict__.pop("_addresses", None)


@pytest.mark.parametrize("page", ["tutorial.md", "i-run-a-cluster.md", "i-write-a-policy.md"])
def test_what_lives_prints_what_is_shown(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    first_come: None,
) -> None:
    """Every line a page shows is one the command prints; a page may show fewer."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    told = commands(page)
    assert told
    try:
        for words, shown in told:
            word = words[1] if words[0] in GROUPS else words[0]
            lives = word in LIVES
            wanted, waited = [plain(line, lives=lives) for line in shown], Stopwatch()
            while True:
                assert run(words) == 0, words
                printed = capsys.readouterr().out
                lines = {plain(line, lives=lives) for line in printed.splitlines()}
                missing = [line for line in wanted if line not in lines]
                if not missing:
                    break
                assert word in LOOKS, f"{missing} is not in\n{printed}"
                assert waited.seconds() < SECONDS, f"{missing} is not in\n{printed}"
                pause(0.2)
            if page == "tutorial.md" and word in {"submit", "set"}:
                # one after the other on an empty cluster: who gets how many does not depend on the hour
                assert printed.strip().split(",")[1:] == shown[0].split(",")[1:]
    finally:
        penstock.down(folder=tmp_path / "state")


def test_code_shown_is_that_of_the_examples() -> None:
    for page, example in (
        ("i-have-a-query.md", "attached/window_count.py"),
        ("i-write-a-policy.md", "policy/first_come.py"),
    ):
        text = (ROOT / "docs" / page).read_text("utf-8")
        there = {line.strip() for line in (ROOT / "examples" / example).read_text("utf-8").splitlines()}
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        assert blocks
        for line in "".join(blocks).splitlines():
            assert line.strip() in there, f"{page}: {line}"
