"""Fingerprints of code: the same for the same code, another where it was changed."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.clock import Stopwatch
from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.pipeline import Operator
from penstock.jobs.profiling import Profile, profile_settings
from penstock.modelling.doubts import changed_code
from penstock.modelling.fingerprint import fingerprint
from penstock.modelling.library import ModelLibrary
from penstock.modelling.model import MeasuredOn, Model, Point
from penstock.report.listener import Listener

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


OWN = """
import functools, numpy
class Base:
    RATE = 1
class Scorer(Base):
    __slots__ = ("weights",)
    def __init__(self, *weights): self.weights = list(weights)
    @staticmethod
    def over(x): return x > 1
    def score(self, row): return row
    def other(self, row): return None
class Ring:
    def __init__(self, n): self.n, self.me = n, self
    def __call__(self, row): return self.n
TABLE = ["a", {"b": (1, 2)}]
ARRAY = numpy.arange(3)
def looks_up(row): return TABLE
def multiplies(row): return ARRAY
def closed(kept):
    def inner(row): return kept
    return inner
@functools.lru_cache
def cached(row): return 1
def by_default(row, *, factor=2): return factor
work = %s
"""


@pytest.mark.parametrize(
    ("expression", "changed", "to"),
    [
        ("Scorer(1, 2).score", "Scorer(1, 2)", "Scorer(1, 3)"),
        ("Scorer(1).score", "Scorer(1).score", "Scorer(1).other"),
        ("Scorer(1).score", "x > 1", "x > 2"),
        ("Scorer(1).score", "RATE = 1", "RATE = 2"),
        ("cached", "return 1", "return 2"),
        ("Ring(1)", "Ring(1)", "Ring(2)"),
        ("closed([1, [2]])", "[2]", "[3]"),
        ("closed({'a': 1, 'b': 2})", "'a': 1", "'a': 3"),
        ("closed((1, 2))", "(1, 2))", "(1, 2, 3))"),
        ("closed({'a', 'b', 'c'})", "'c'", "'d'"),
        ("closed(Ring([1]))", "[1]", "[2]"),
        ("closed(range(20_000).__contains__)", "contains", "reversed"),
        ("functools.partial(by_default, factor=3)", "factor=3", "factor=4"),
        ("by_default", "factor=2", "factor=3"),
        ("looks_up", "(1, 2)}", "(1, 3)}"),
        ("multiplies", "arange(3)", "arange(4)"),
    ],
)
def test_what_code_keeps_counts(expression: str, changed: str, to: str) -> None:
    text = OWN % expression
    assert changed in text
    assert in_python(made(text)) == in_python(made(text)) != in_python(made(text.replace(changed, to)))


def test_code_of_a_package_that_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own objects are looked into; those of other libraries are not."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "installed_scores.py").write_text("class Scorer:\n    def score(self, row): return row\n")
    monkeypatch.syspath_prepend(folder)
    scorers = []
    for weight in (1, 2):
        scorer = import_module("installed_scores").Scorer()
        scorer.weight = weight
        scorers.append(scorer)
    first, second = scorers
    assert in_python(first.score) != in_python(second.score)

    def borrowed(scorer: Any) -> Any:
        return lambda row: {"y": scorer.score(row)}

    assert in_python(borrowed(first)) == in_python(borrowed(second))


def test_it_is_the_same_in_every_process() -> None:
    """Whatever the order of sets there, and wherever things lie in memory."""
    kept = "{'a', 'b', 'c', ('d', 1)}, Ring({'x', 'y'}), object(), threading.Lock(), closed, numpy.array([Base()])"
    text = f"import threading\n{OWN % f'closed([{kept}])'}"
    script = (
        "import sys; from penstock.modelling.fingerprint import fingerprint; "
        "from penstock.dataflow.pipeline import Operator; "
        "names = {'__name__': 'made'}; exec(sys.argv[1], names); "
        "print(fingerprint(Operator(name='o', logic=names['work'])))"
    )
    prints = {
        subprocess.run(
            [sys.executable, "-c", script, text],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(prints) == 1
    assert prints == {f"{in_python(made(text))}\n"}


def test_what_is_endless_is_looked_at_in_part() -> None:
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    watch = Stopwatch()
    first = in_python(functools.partial(print, deep, list(range(1_000_000))))
    assert first is not None
    assert watch.seconds() < 5
    assert in_python(functools.partial(print, deep, list(range(1_000_001)))) != first


def test_what_was_measured_with_other_columns_is_measured_again(tmp_path: Path) -> None:
    said: list[str] = []

    class Hearing(Listener):
        def on_message(self, message: str) -> None:
            said.append(message)

    points = (Point(threads=1, rate=50.0, cpu=0.1, memory=0.1),)
    measured = {"p/a": "n long", "p/b": "n long", "p/unsaid": None, "p/unseen": "n long"}
    models = {name: Model(name, points, MeasuredOn(gets=gets)) for name, gets in measured.items()}
    profile = Profile(tmp_path / "m.json", profile_settings(), MeasuredOn(), models, [], Hearing())
    code = dict.fromkeys(measured, Logic(print))
    gets = {"p/a": "n long", "p/b": "n long, more string", "p/unsaid": "n long"}
    assert set(profile.forget_other_columns(code, gets)) == {"p/b"}
    assert set(profile.models) == {"p/a", "p/unsaid", "p/unseen"}
    assert said == ["p/b was measured with n long, and gets n long, more string: it is measured again"]


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
    demands = {"s": None, "o": Model("p/o", points, MeasuredOn(code="0")), "end": None}
    assert changed_code(pipeline, demands) == []


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
