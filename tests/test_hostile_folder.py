"""Files in the current folder never stand in for modules that Penstock imports."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.control.pipeline_document import described

OPTIONAL = {"uvloop", "httptools", "orjson", "simplejson", "colorama", "sitecustomize", "usercustomize"}
"""Modules that libraries import if they are installed."""
STREAMS = "[{from: a, to: b}, {from: b, to: c}]"
DOCUMENT = f"{{name: own, operators: {{a: {{kind: source}}, b: {{model: pi}}, c: {{kind: sink}}}}, streams: {STREAMS}}}"
OWN = f"""
import yaml
from penstock.dataflow.code import parse_pipeline
def code(row): return row
pipeline = parse_pipeline(yaml.safe_load({DOCUMENT!r}), "own")
"""
PENSTOCK = str(Path(sys.executable).with_name("penstock"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of the name of every module there is; each says that it was imported."""
    folder = tmp_path_factory.mktemp("hostile")
    installed = {name for name in importlib.metadata.packages_distributions() if name.isidentifier()}
    for name in {*sys.stdlib_module_names, *installed, *OPTIONAL} - {"penstock"}:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'imported')!r}, 'a').write({name!r} + ' ')\n")
    (folder / "own.py").write_text(OWN)
    return folder


@pytest.fixture(autouse=True)
def nothing_was_imported(hostile: Path) -> Iterator[None]:
    yield
    imported = hostile / "imported"
    text = imported.read_text() if imported.exists() else ""
    imported.unlink(missing_ok=True)
    assert text == ""


def call(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
    )


PLAN = ("plan", "linear", "--rate", "100", "--json")


def test_planning_imports_nothing_from_the_current_folder(hostile: Path) -> None:
    done = call(hostile, PENSTOCK, *PLAN)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [("-m", "penstock", *PLAN), ("-mpenstock", "--version")], ids=["plan", "version"])
def test_as_a_module_it_leaves_the_current_folder_out_at_once(
    hostile: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    loaded = call(tmp_path, sys.executable, "-P", "-c", "import runpy, sys; print(*sys.modules)").stdout.split()
    # what Python itself imports before it comes to Penstock is not ours to choose
    before = {f"{name.partition('.')[0]}.py" for name in loaded}
    folder = shutil.copytree(hostile, tmp_path / "hostile", ignore=lambda *_: before)
    done = call(folder, sys.executable, *words)
    assert done.returncode == 0, done.stderr


def test_code_of_the_user_is_found_after_everything_else(hostile: Path) -> None:
    done = call(hostile, PENSTOCK, "plan", "own:pipeline", "--rate", "100", "--json")
    assert json.loads(done.stdout)["pipeline"] == "own", done.stderr


def test_a_submitted_file_brings_no_modules_but_those_it_names(hostile: Path) -> None:
    operators = "{a: {kind: source}, b: {run: own:code}, c: {kind: sink}}"
    (hostile / "p.yaml").write_text(f"{{name: p, operators: {operators}, streams: {STREAMS}}}")
    assert described(str(hostile / "p.yaml"), to_run=True)["name"] == "p"
    assert described("own:pipeline", hostile, to_run=False)["name"] == "own"


def test_a_controller_imports_nothing_from_the_folder_it_is_started_in(hostile: Path, tmp_path: Path) -> None:
    state = {"PENSTOCK_STATE": str(tmp_path)}
    try:
        for words in (("up", "--simulated", "--nodes", "1"), ("submit", "a", "linear", "--rate", "5"), ("list",)):
            done = call(hostile, PENSTOCK, *words, **state)
            assert done.returncode == 0, done.stderr
    finally:
        assert "ended" in call(hostile, PENSTOCK, "down", "--json", **state).stdout


def test_every_process_of_ours_is_started_without_the_current_folder() -> None:
    texts = {path: path.read_text("utf-8") for path in Path(penstock.__file__).parent.rglob("*.py")}
    assert [path for path, text in texts.items() if re.search(r'sys\.executable,\s*"-[mc]"', text)] == []
