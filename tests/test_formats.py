"""Files say which format they have; a plan carries its models; a model belongs to its operator."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import penstock
from penstock.base.errors import BadInputError
from penstock.dataflow.formats import reading_of, writing_of
from penstock.engines.fused.preparation import prepare
from penstock.inputs.finders import find_models_for, find_pipeline
from penstock.modelling.library import ModelLibrary, demands_of, models_document, read_models
from penstock.modelling.model import Model, Point
from penstock.planning.files import read_plan, write_plan
from penstock.runs.config import RunConfig

OF_0_1 = Path(__file__).parent / "formats_0_1"
"""Made with commit 47d9253, by its own `plan`, `models import` and `profile`."""


def model(name: str, rate: float) -> Model:
    return Model(name, (Point(threads=1, rate=rate, cpu=0.5, memory=0.1),))


def chain(name: str) -> penstock.Pipeline:
    return penstock.pipeline(name).source("src").then("work").sink("out").build()


def saved(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / "plan.json"
    document = penstock.plan("linear", 50).document()
    path.write_text(json.dumps({**document, **changes}), "utf-8")
    return path


@pytest.mark.parametrize(("name", "rate"), [("plan.json", 30), ("clicks-plan.json", 20)])
def test_plans_of_0_1_are_read(name: str, rate: float) -> None:
    """As that version wrote them: without a format, and without models."""
    old = read_plan(OF_0_1 / name)
    assert (old.format, old.library(), old.slots.memory_mb) == (1, None, None)
    simulated = penstock.simulate(OF_0_1 / name, seconds=5, models=OF_0_1 / "models.json")
    assert simulated.report.offered_rate == pytest.approx(rate, rel=0.1)


def test_a_plan_of_0_1_can_be_run() -> None:
    job = prepare(OF_0_1 / "plan.json")
    assert (job.slots, job.slot_memory_mb) == (3, None)
    assert job.threads["B"] > 1


def test_models_and_pipelines_of_0_1_are_read() -> None:
    (geocode,) = read_models(OF_0_1 / "models.json")
    assert [point.threads for point in geocode.points] == [1, 4, 16, 32]
    (measured,) = read_models(OF_0_1 / "profiled.json")
    assert (measured.name, measured.points[0].threads, measured.measured_on.code) == ("pi", 1, None)
    assert measured.measured_on.batch_seconds is not None
    pipeline = find_pipeline(OF_0_1 / "pipeline.yaml")
    assert reading_of(pipeline.operators["clicks"]).format == "json"
    assert writing_of(pipeline.operators["out"]).format == "parquet"
    assert pipeline.operators["counts"].aggregate is not None
    plan = penstock.plan(pipeline, 20, models=OF_0_1 / "models.json")
    before = read_plan(OF_0_1 / "clicks-plan.json")
    assert {operator.name: operator.rate for operator in plan.allocation.operators} == pytest.approx(
        {name: operator.rate for name, operator in before.operators.items()}
    )


def test_a_newer_plan_with_keys_nobody_knows_says_that_it_is_newer(tmp_path: Path) -> None:
    with pytest.raises(
        BadInputError, match=r"written by a newer Penstock \(format 9, .* up to 2\): unknown key 'halo'"
    ):
        read_plan(saved(tmp_path, format=9, halo=1))
    # the same key in a file of our own format is a mistake like any other
    with pytest.raises(BadInputError, match=r"plan.json: unknown key 'halo'"):
        read_plan(saved(tmp_path, halo=1))
    assert read_plan(saved(tmp_path, format=9)).format == 9


def test_models_say_their_format_and_old_ones_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    document = models_document([model("work", 10)])
    assert document.pop("format") == 1
    path.write_text(json.dumps(document), "utf-8")
    assert [one.name for one in read_models(path)] == ["work"]
    path.write_text(json.dumps({**document, "format": 7, "weather": "fine"}), "utf-8")
    with pytest.raises(BadInputError, match="written by a newer Penstock"):
        read_models(path)


def test_a_plan_carries_the_models_it_was_made_with(tmp_path: Path) -> None:
    library = ModelLibrary.of([model("work", 25), model("unused", 1)])
    path = tmp_path / "plan.json"
    write_plan(penstock.plan(chain("p"), 100, models=library), path)
    plan = read_plan(path)
    carried = plan.library()
    assert carried is not None
    assert list(carried.models) == ["work"]
    # nothing but the plan is needed to simulate it: 100 tuples/s over threads of 25
    assert plan.operators["work"].threads == 4
    assert penstock.simulate(path, seconds=5).report.stable
    # models given beside it count before its own
    other = ModelLibrary.of([model("work", 3)])
    assert find_models_for(plan, other).get("work").rate(1) == 3
    assert find_models_for(plan).get("work").rate(1) == 25


def test_a_model_of_another_pipelines_operator_does_not_take_over() -> None:
    library = ModelLibrary.of([model("orders/work", 10), model("orders/src", 1), model("work", 40)])
    orders, clicks = (demands_of(chain(name), library) for name in ("orders", "clicks"))
    assert [one.rate(1) for one in (orders["work"], clicks["work"]) if isinstance(one, Model)] == [10, 40]
    assert isinstance(orders["src"], Model)
    assert not isinstance(clicks["src"], Model)


def test_code_beside_the_file_is_found_by_who_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "beside_ops.py").write_text("def make(row):\n    return row\n", "utf-8")
    file = folder / "p.yaml"
    file.write_text(
        "name: p\noperators:\n  src: {kind: source}\n  work: {run: 'beside_ops:make'}\n  out: {kind: sink}\n"
        "streams:\n  - {from: src, to: work}\n  - {from: work, to: out}\n",
        "utf-8",
    )
    # only looking at it must not make what lies beside it importable
    find_pipeline(file)
    assert str(folder) not in sys.path
    assert prepare(file, RunConfig(rate=10, slots=1)).logic["work"]({"a": 1}) == {"a": 1}


def test_what_a_file_says_beside_its_code_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "said_beside.py").write_text("def double(frame):\n    return frame * 2\n", "utf-8")
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: p\noperators:\n  src: {kind: source}\n"
        "  work: {run: 'said_beside:double', per: pandas, schema: 'value long', timeout_seconds: 3, on_error: stop}\n"
        "  out: {kind: sink}\nstreams:\n  - {from: src, to: work}\n  - {from: work, to: out}\n",
        "utf-8",
    )
    code = prepare(file, RunConfig(rate=10, slots=1)).logic["work"]
    assert (code.per, code.schema, code.timeout_seconds, code.on_error) == ("pandas", "value long", 3, "stop")
