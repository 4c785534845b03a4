"""`penstock dev experiment` without Spark: names, refusals, and a folder that is complete already."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from outcome import Penstock

from penstock_lab.experiments.p_deployer import PDeployerEvaluation
from penstock_lab.sweep import CaseStore


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    experiment, store = PDeployerEvaluation(), CaseStore(folder, "p-deployer")
    cases = list(experiment.cases(quick=False))
    store.begin(cases, quick=False)
    for case in cases:
        store.keep(case, experiment.run_case(case), 0.0)
    return folder


@pytest.fixture
def done(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_list(penstock: Penstock) -> None:
    outcome = penstock("dev", "experiment", "list", "--json")
    assert outcome.code == 0
    assert {one["name"] for one in outcome.document} >= {"model-driven", "p-deployer"}
    assert all(one["cases"] >= one["quick_cases"] > 0 for one in outcome.document)
    assert "Fig 12" in penstock("dev", "experiment", "list").out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("run",), "expected names of experiments, or --all; known: model-driven"),
        (("run", "p-deployer", "--all"), "expected names of experiments, or --all"),
        (("p-deploye",), "unknown experiment 'p-deploye'; did you mean 'p-deployer'?"),
        (("page", "nowhere"), "no results here"),
    ],
)
def test_bad_input(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    outcome = penstock("dev", "experiment", *words)
    assert outcome.code == 2
    assert complaint in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("words", [("run", "p-deployer"), ("p-deployer",)])
def test_the_table_of_a_finished_folder(penstock: Penstock, done: Path, words: tuple[str, ...]) -> None:
    outcome = penstock("dev", "experiment", *words, "-o", done)
    assert outcome.code == 0
    rows = [row.split() for row in outcome.out.splitlines()]
    assert any(row[:2] == ["Section", "7.2,"] and "comparable" in row for row in rows)
    assert any(row[:1] == ["verdicts"] and "agrees," in row for row in rows)
    assert (done / "p-deployer" / "results.parquet").is_file()
    assert (done / "p-deployer" / "nodes.png").is_file()


def test_json_has_lines_and_pictures(penstock: Penstock, done: Path) -> None:
    document = penstock("dev", "experiment", "p-deployer", "-o", done, "--json").document
    (found,) = document
    assert found["experiment"] == "p-deployer"
    assert {"where", "what", "published", "ours", "verdict", "why"} == set(found["lines"][0])
    assert sum(found["verdicts"].values()) == len(found["lines"])
    assert [Path(one).name for one in found["pictures"]] == ["nodes.png"]


def test_the_page(penstock: Penstock, done: Path) -> None:
    outcome = penstock("dev", "experiment", "page", done, "-o", done / "results.md")
    assert outcome.code == 0
    assert "results.md" in outcome.out
    assert "## p-deployer" in (done / "results.md").read_text()
