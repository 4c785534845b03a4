"""Fingerprints of code: the same for the same code, another where it was changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.pipeline import Operator
from penstock.jobs.planning import changed_code
from penstock.modelling.fingerprint import fingerprint
from penstock.modelling.library import ModelLibrary
from penstock.modelling.model import MeasuredOn, Model, Point

CODE = """
import os
FACTOR = 2
def helper(x):
    return x * FACTOR
def unrelated(x):
    return x
def work(row):
    # a comment
    return {"y": helper(row["x"])}
"""


def of_file(folder: Path, text: str, **said: Any) -> str | None:
    (folder / "fingerprinted_code.py").write_text(text)
    return fingerprint(Operator(name="o", run="fingerprinted_code:work", **said), beside=folder)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("# a comment", "# another", True),
        ('return {"y"', 'return  {"y"', True),
        ("def unrelated(x):\n    return x", "def unrelated(x):\n    return -x", True),
        ('"y"', '"z"', False),
        # what it calls, and what that refers to, of its own module
        ("x * FACTOR", "x + FACTOR", False),
        ("FACTOR = 2", "FACTOR = 3", False),
    ],
)
def test_code_a_file_names(tmp_path: Path, before: str, after: str, *, same: bool) -> None:
    first = of_file(tmp_path, CODE)
    assert first is not None
    assert (of_file(tmp_path, CODE.replace(before, after)) == first) is same


def test_how_it_is_called_counts_and_nothing_is_imported(tmp_path: Path) -> None:
    first = of_file(tmp_path, CODE)
    assert of_file(tmp_path, CODE, per=Per.PANDAS) != first
    assert of_file(tmp_path, CODE, schema="y bigint") != first
    # it would raise
    assert of_file(tmp_path, f"{CODE}\nraise SystemExit\n") == first
    assert of_file(tmp_path, "def other(row): ...") is None
    assert of_file(tmp_path, "def broken(:") is None
    assert fingerprint(Operator(name="o", run="nowhere_to_be_found.at_all:work"), beside=tmp_path) is None


def made(text: str) -> Any:
    names: dict[str, Any] = {"__name__": "made"}
    exec(text, names)  # noqa: S102 - our own text
    return names["work"]


def in_python(function: Any) -> str | None:
    return fingerprint(Operator(name="o", logic=Logic(function)))


def test_code_given_in_python() -> None:
    first = in_python(made(CODE))
    assert in_python(made(CODE)) == first
    assert in_python(made(CODE.replace("x * FACTOR", "x + FACTOR"))) != first
    assert in_python(made(CODE.replace("FACTOR = 2", "FACTOR = 3"))) != first

    def scaled(by: int) -> Any:
        return lambda row: {"y": by * row["x"]}

    assert in_python(scaled(2)) == in_python(scaled(2)) != in_python(scaled(3))


def test_a_plan_warns_of_changed_code_and_of_a_profile_that_ended_too_soon(tmp_path: Path) -> None:
    now = of_file(tmp_path, CODE)
    (tmp_path / "p.yaml").write_text(
        "name: p\n"
        "operators: {s: {kind: source}, o: {run: 'fingerprinted_code:work'}, end: {kind: sink}}\n"
        "streams: [{from: s, to: o}, {from: o, to: end}]\n"
    )
    points = (Point(threads=1, rate=50.0, cpu=0.1, memory=0.1),)

    def warnings(**on: Any) -> str:
        library = ModelLibrary.of([Model("p/o", points, MeasuredOn(**on))])
        return "\n".join(penstock.plan(tmp_path / "p.yaml", 10, models=library).warnings)

    assert "changed" not in warnings(code=now)
    assert "operator 'o': its code changed since model 'p/o' was measured" in warnings(code="0123456789abcdef")
    assert "still rose at 1 threads" in warnings(still_rising=True)
    # a model that does not say is not doubted
    assert warnings() == ""
    pipeline = penstock.pipeline("p").source("s").then("o", model="p/o").sink("end").build()
    library = ModelLibrary.of([Model("p/o", points, MeasuredOn(code="0"))])
    assert changed_code(pipeline, library, None) == []


def test_headroom() -> None:
    plain, roomy = penstock.plan("linear", 80), penstock.plan("linear", 80, load=0.8)
    sized = penstock.plan("linear", 100)
    # threads and slots are those of 80 / 0.8, the rate and what is predicted of it are not
    assert roomy.placement == sized.placement
    assert roomy.rate == 80
    assert roomy.allocation.slots > plain.allocation.slots
    busiest = max(used.cpu for used in roomy.prediction.slots.values())
    assert busiest < max(used.cpu for used in sized.prediction.slots.values())
    assert roomy.document()["load"] == 0.8
    assert "load" not in plain.document()
    for load in (0.0, 1.5, float("nan")):
        with pytest.raises(penstock.BadInputError, match="load: expected a part"):
            penstock.plan("linear", 80, load=load)
