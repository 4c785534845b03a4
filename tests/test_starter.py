"""`penstock init`: the project can be planned, its code does what it says, its commands are real. No Spark here."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
import pytest
import typer

import penstock
from adapters import model
from penstock.base.errors import BadInputError
from penstock.cli.main import app
from penstock.dataflow.formats import reading_of, writing_of
from penstock.dataflow.logic import Per
from penstock.inputs.finders import logic_of
from penstock.inputs.starter import DATA_FILES, SAMPLE_ORDERS, sample_orders
from penstock.modelling.library import ModelLibrary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def as_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("starter") / "project"
    penstock.init(folder)
    return folder


@pytest.fixture
def project(as_made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh project as the current folder, which nobody changes; its module is forgotten afterwards, and so is where
    it was found."""
    monkeypatch.chdir(as_made)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield as_made
    sys.modules.pop("orders", None)


def test_it_can_be_planned_with_models_of_its_code(project: Path) -> None:
    # 1,000 tuples/s need 1,000 of parse (10,000 with a thread) and 900 of score (a tenth are tests): a thread each
    parse, score = ((f"orders/{name}", (1, rate, 0.5, 0.1)) for name, rate in (("parse", 10_000), ("score", 9_000)))
    models = ModelLibrary.of([model(*parse), model(*score)])
    plan = penstock.plan("orders:pipeline", 1000, models=models)
    operators = plan.document()["operators"]
    assert {name: operators[name]["threads"] for name in ("parse", "score")} == {"parse": 1, "score": 1}
    assert operators["score"]["rate"] == pytest.approx(900)
    found = penstock.capacity("orders:pipeline", project / "cluster.yaml", models=models, allocator="mba", placer="sam")
    assert found["mba+sam"].placed > 1000


def test_without_models_it_says_whose_is_missing(project: Path) -> None:
    with pytest.raises(BadInputError, match="operator 'parse' was not measured: penstock profile PIPELINE"):
        penstock.plan("orders:pipeline", 1000)


def test_its_code_does_what_its_schemas_say(project: Path) -> None:
    pipeline = penstock.find_pipeline("orders:pipeline")
    code = logic_of(pipeline)
    files = sorted((project / "data").iterdir())
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    parsed = [row for row in map(code["parse"], rows) if row is not None]
    assert (len(rows), len(parsed)) == (SAMPLE_ORDERS, SAMPLE_ORDERS * 9 // 10)
    assert code["parse"]({"user": "ada", "price": "10.00 USD", "test": False}) == {"user": "ada", "cents": 900}
    assert code["score"].per is Per.PANDAS
    scored = code["score"](pd.DataFrame(parsed))
    assert list(scored.columns) == ["user", "cents", "score"]
    assert scored["score"].between(0, 1).all()


def test_its_source_is_the_sample_data_and_its_sink_parquet(project: Path) -> None:
    operators = penstock.find_pipeline("orders:pipeline").operators
    reading = reading_of(operators["events"])
    files = [path.name for path in project.glob(reading.options["path"])]
    assert len(files) == DATA_FILES
    # every batch takes as many: the last one too
    assert DATA_FILES % int(reading.options["maxFilesPerTrigger"]) == 0
    assert writing_of(operators["store"]).format == "parquet"


def test_the_commands_of_its_readme_exist(project: Path) -> None:
    lines = [line.strip() for line in (project / "README.md").read_text().splitlines() if line.startswith("    penst")]
    assert len(lines) == 5
    verbs = cast("Any", typer.main.get_command(app)).commands
    for line in lines:
        _, verb, *words = shlex.split(line.partition("   ")[0])
        command = verbs[verb]
        if hasattr(command, "commands"):
            command, words = command.commands[words[0]], words[1:]
        # parsed, not run: an unknown option or a missing value raises
        command.make_context(verb, words)


def test_the_sample_data_are_the_same_every_time() -> None:
    assert sample_orders(50) == sample_orders(50)


def test_nothing_is_written_where_something_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text("mine")
    with pytest.raises(BadInputError, match=r"orders.py: already there"):
        penstock.init(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["orders.py"]
    with pytest.raises(BadInputError, match="expected a folder, found a file"):
        penstock.init(tmp_path / "orders.py")
    assert (tmp_path / "orders.py").read_text() == "mine"
