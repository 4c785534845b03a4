"""Models from files and tables; spreads; the reference tasks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import penstock
from adapters import model
from penstock.base.errors import BadInputError
from penstock.modelling.library import (
    ModelLibrary,
    models_document,
    parse_models,
    read_csv_models,
    read_models,
    reference_library,
)
from penstock.modelling.model import MeasuredOn, Model, Point, within_one_core

if TYPE_CHECKING:
    from pathlib import Path


def csv(folder: Path, text: str) -> Path:
    path = folder / "trials.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_import(tmp_path: Path) -> None:
    # rows in any order and of several models; cpu in percent: 85 % = 0.85; an empty spread is no spread
    path = csv(
        tmp_path,
        "model, threads, rate, cpu_percent, memory, rate_spread\n"
        "xml,7,255,85,0.36,\n"
        "pi,1,105,90,0.02,3\n"
        "xml,1,310,80,0.35,12.5\n",
    )
    xml, pi = read_csv_models(path)
    assert (xml.name, pi.name) == ("xml", "pi")
    assert xml.points == (
        Point(threads=1, rate=310, cpu=0.80, memory=0.35, rate_spread=12.5),
        Point(threads=7, rate=255, cpu=0.85, memory=0.36),
    )
    assert pi.points[0].rate_spread == 3
    assert pi.measured_on.what == "imported from trials.csv"


HEADER = "model,threads,rate,cpu,memory\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "header: column 'model' is missing"),
        ("model,threads,rate,cpu\n", "header: column 'memory' is missing"),
        ("model,threads,rate,cpu,memory,disk\n", "header: unknown column 'disk'; expected model, threads"),
        (HEADER, "expected at least one row under the header"),
        (HEADER + "a,1,10,0.1\n", "line 2: number of cells differs from the header"),
        (HEADER + "a,1,10,0.1,0.1,9\n", "line 2: number of cells differs from the header"),
        (HEADER + "a,1,fast,0.1,0.1\n", "line 2: column 'rate': expected a number, found 'fast'"),
        (HEADER + "a,1,nan,0.1,0.1\n", "line 2: rate: .*found nan"),
        (HEADER + "a,1,inf,0.1,0.1\n", "line 2: rate: .*found inf"),
        (HEADER + "a,1,10,-0.1,0.1\n", "line 2: cpu: .*greater than or equal to 0, found -0.1"),
        (HEADER + "a,0,10,0.1,0.1\n", "line 2: threads: .*greater than or equal to 1, found 0"),
        (HEADER + "a,1.5,10,0.1,0.1\n", "line 2: column 'threads': expected a whole number, found 1.5"),
        (HEADER + "a,nan,10,0.1,0.1\n", "line 2: column 'threads': expected a whole number, found nan"),
        (HEADER + "a,inf,10,0.1,0.1\n", "line 2: column 'threads': expected a whole number, found inf"),
        (HEADER + ",1,10,0.1,0.1\n", "line 2: column 'model' is empty"),
        (HEADER + "a,1,,0.1,0.1\n", "line 2: column 'rate' is empty"),
        (HEADER + "a,1,10,0.1,0.1\na,1,11,0.1,0.1\n", "model 'a': thread counts must rise, found 1 after 1"),
        (HEADER + 'a,1,10,0.1,"0.1\n', "not valid CSV: unexpected end of data"),
        ("model,threads,rate,cpu,memory,cpu_percent\na,1,1,1,1,1\n", "header: column 'cpu' is given twice"),
        ("model,threads,rate,cpu,memory,rate\na,1,1,1,1,1\n", "header: column 'rate' is given twice"),
    ],
)
def test_bad_csv(tmp_path: Path, text: str, message: str) -> None:
    path = csv(tmp_path, text)
    with pytest.raises(BadInputError, match=message) as caught:
        read_csv_models(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_model_file_round_trip(tmp_path: Path) -> None:
    measured = Model(
        "m",
        (
            Point(threads=2, rate=5, cpu=0.1, memory=0.2, rate_spread=0.5, provenance={"rate": "measured"}),
            Point(threads=4, rate=9, cpu=0.3, memory=0.4),
        ),
        MeasuredOn(what="a laptop", cores=8, slot_memory_mb=2048),
    )
    path = tmp_path / "m.json"
    path.write_text(json.dumps(models_document([measured], "why")))
    assert read_models(path) == [measured]


def test_a_folder_of_model_files_is_read_in_order_of_names(tmp_path: Path) -> None:
    for file, name in (("b.json", "first"), ("a.json", "second")):
        document = models_document([model(name, (1, 1, 0.1, 0.1))])
        (tmp_path / file).write_text(json.dumps(document))
    (tmp_path / "notes.txt").write_text("not a model")
    assert [found.name for found in read_models(tmp_path)] == ["second", "first"]


def test_a_folder_without_models(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no model file"):
        read_models(tmp_path)


POINT = {"threads": 1, "rate": 10, "cpu": 0.1, "memory": 0.1}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"models": {}}, "m.json: models: expected at least one model"),
        ({"models": {"a": {"points": []}}}, "m.json: model 'a': expected at least one point"),
        (
            {"models": {"a": {"points": [{**POINT, "threads": 2}, POINT]}}},
            "m.json: model 'a': thread counts must rise, found 1 after 2",
        ),
        ({"models": {"a": {"points": [POINT, POINT]}}}, "m.json: model 'a': thread counts must rise, found 1 after 1"),
        (
            {"models": {"a": {"points": [{**POINT, "rate": 0}]}}},
            r"m.json: models.a.points\[0\].rate: .*greater than 0, found 0",
        ),
        (
            {"models": {"a": {"points": [{**POINT, "cpu": -1}]}}},
            r"m.json: models.a.points\[0\].cpu: .*greater than or equal to 0, found -1",
        ),
        (
            {"models": {"a": {"points": [{**POINT, "memory": float("nan")}]}}},
            r"m.json: models.a.points\[0\].memory: .*finite number, found nan",
        ),
        (
            {"models": {"a": {"points": [{**POINT, "rate": "10"}]}}},
            r"m.json: models.a.points\[0\].rate: .*valid number, found '10'",
        ),
        (
            {"models": {"a": {"points": [{**POINT, "threads": True}]}}},
            r"m.json: models.a.points\[0\].threads: .*valid integer",
        ),
        (
            {"models": {"a": {"points": [{**POINT, "treads": 1}]}}},
            r"m.json: models.a.points\[0\]: unknown key 'treads'; did you mean 'threads'",
        ),
        ([POINT], "m.json: expected a mapping with the keys of a modelfile, found list"),
        (None, "m.json: expected a mapping with the keys of a modelfile, found nothing"),
    ],
)
def test_bad_model_files(data: object, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        parse_models(data, "m.json")


def test_two_models_of_one_name() -> None:
    with pytest.raises(BadInputError, match="model 'a' is given twice"):
        ModelLibrary.of([model("a", (1, 1, 0, 0))] * 2)


def test_an_unknown_model_suggests_the_nearest() -> None:
    with pytest.raises(BadInputError, match="operator 'X': no model named 'parse_xm'; did you mean 'parse_xml'"):
        reference_library().get("parse_xm", "operator 'X'")


# The spread is linear between points, as the rate is: half way between 0.5 (2 threads) and 1.5 (4 threads) is 1;
# half way from 0 threads to 2 is 0.25.
@pytest.mark.parametrize(("threads", "expected"), [(0, 0), (1, 0.25), (2, 0.5), (3, 1), (4, 1.5), (9, 1.5)])
def test_spread(threads: int, expected: float) -> None:
    spread = Model(
        "m",
        (
            Point(threads=2, rate=5, cpu=0, memory=0, rate_spread=0.5),
            Point(threads=4, rate=9, cpu=0, memory=0, rate_spread=1.5),
        ),
    )
    assert spread.rate_spread(threads) == pytest.approx(expected)


# The figures document 000 states: peak rate and the threads that reach it.
@pytest.mark.parametrize(
    ("name", "peak", "threads"),
    [
        ("parse_xml", 310, 1),
        ("pi", 110, 2),
        ("azure_blob", 30, 50),
        ("azure_table", 40, 60),
        ("split_words", 5300, 1),
    ],
)
def test_reference_tasks(name: str, peak: float, threads: int) -> None:
    found = reference_library().models[name]
    assert (found.peak_rate, found.peak_threads) == (peak, threads)


def test_every_reference_figure_says_how_it_is_known() -> None:
    known = reference_library()
    assert sum("/" not in one.name for one in known) == 6
    for found in known:
        for point in found.points:
            assert {"rate", "cpu", "memory"} <= set(point.provenance), (found.name, point.threads)
            assert all(text.strip() for text in point.provenance.values())


def test_models_of_a_file_come_before_the_reference_ones(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(models_document([model("pi", (1, 999, 0.1, 0.1))])))
    found = penstock.models(path)
    assert found.models["pi"].peak_rate == 999
    assert found.models["parse_xml"].peak_rate == 310


def test_more_threads_than_keep_the_core_busy_do_no_more() -> None:
    # one thread wants its core for 0.6 of the 0.62 s it is at work; four did a fifth more, on another core
    one_thread = Point(threads=1, rate=100.0, cpu=0.7, memory=0.0, operator_cpu=0.6, busy=0.62)
    four = Point(threads=4, rate=120.0, cpu=1.0, memory=0.0, operator_cpu=0.9, engine_cpu=0.3, busy=0.84)
    capped = within_one_core(Model("m", (one_thread, four))).points[1]
    assert capped.rate == 100.0
    # what a tuple takes of CPU, and of time, stays as it was seen
    assert (capped.operator_cpu, capped.engine_cpu, capped.busy) == pytest.approx((0.75, 0.25, 0.7))
    assert Model("m", (one_thread, capped)).peak_threads == 1
    # fewer than that are slower, and one that waits gains by threads
    slower = four.model_copy(update={"rate": 80.0})
    assert within_one_core(Model("m", (one_thread, slower))).points[1] == slower
    waits = one_thread.model_copy(update={"operator_cpu": 0.1})
    assert within_one_core(Model("m", (waits, four))).points == (waits, four)
