"""Fingerprints of code: the same for the same code, another where it was changed."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.clock import Stopwatch
from penstock.dataflow.code import parse_pipeline, pipeline_document
from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.pipeline import Operator
from penstock.inputs.finders import find_pipeline, logic_of
from penstock.modelling.fingerprint import fingerprint
from penstock.modelling.library import ModelLibrary, changed_code, demands_of
from penstock.modelling.model import MeasuredOn, Model, Point
from penstock.profiling.profiler import Profile, profile_settings
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


IN_STATEMENTS = """
A, B = 1, 2
LIMITS = {}
LIMITS["x"] = 5
TABLE = []
TABLE.append(7)
fill(TABLE)
if len(LIMITS) > 3:
    def chosen(x): return x + 10
else:
    def chosen(x): return x + 20
try:
    from json import loads as reader
except ImportError:
    reader = None
with open("a") as file:
    WORDS = file.read(30)
for number in range(40):
    LIMITS[number] = 50
def starts():
    global STATE
    STATE = 60
STATE = None
from math import sin as curve
pipeline.then("o", logic=work, threads=70)
if __name__ == "__main__":
    print(A, work, 80)
@pipeline.operator(reads="s", threads=90)
def work(row): return chosen(A), LIMITS, reader, WORDS, TABLE, STATE, curve
"""


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("A, B = 1, 2", "A, B = 3, 2", False),
        ('LIMITS["x"] = 5', 'LIMITS["x"] = 6', False),
        ("TABLE.append(7)", "TABLE.append(8)", False),
        ("fill(TABLE)", "empty(TABLE)", False),
        ("> 3", "> 4", False),
        ("x + 10", "x + 11", False),
        ("x + 20", "x + 21", False),
        ("json import loads", "json import load", False),
        ("reader = None", "reader = print", False),
        ("read(30)", "read(31)", False),
        ("range(40)", "range(41)", False),
        ("= 50", "= 51", False),
        ("STATE = 60", "STATE = 61", False),
        ("import sin", "import cos", False),
        # what is said of the operator, and what runs only as a script, is no code of it
        ("threads=70", "threads=71", True),
        ("80", "81", True),
        ("threads=90", "threads=91", True),
    ],
)
def test_every_statement_that_makes_or_changes_a_name_counts(
    tmp_path: Path, before: str, after: str, *, same: bool
) -> None:
    assert before in IN_STATEMENTS
    first = of_file(tmp_path, IN_STATEMENTS)
    assert first is not None
    assert (of_file(tmp_path, IN_STATEMENTS.replace(before, after)) == first) is same


HELPERS = {
    "helper_rates.py": "import helper_deeper as deeper\nfrom helper_ring import back\n"
    "def rate(x): return deeper.BASE * x + back(x)\ndef unused(x): return 1\n",
    "helper_deeper.py": "BASE = 2\nOTHER = 3\n",
    "helper_ring.py": "import helper_rates\ndef back(x): return helper_rates.rate(x) if x else 4\n",
    "helper_package/__init__.py": "from .inner import shown\n",
    "helper_package/inner.py": "from . import sibling\ndef shown(x): return sibling.SIZE\n",
    "helper_package/sibling.py": "SIZE = 5\n",
    "helper_space/part.py": "PART = 6\n",
    "helper_stars.py": "STAR = 7\n",
    "site-packages/helper_library.py": "def price(x): return 8\n",
    "fingerprinted_uses.py": """
from helper_rates import rate
import helper_package, helper_space.part
from helper_stars import *
from helper_library import price
def work(row):
    import helper_deeper
    return rate(row), helper_package.shown, helper_space.part.PART, STAR, price(row)
renamed = work
from helper_ring import back as imported
""",
}


def with_helpers(folder: Path, change: tuple[str, str, str] | None = None) -> Path:
    for name, text in HELPERS.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        changed = text if change is None or change[0] != name else text.replace(change[1], change[2])
        file.write_text(changed)
    return folder


@pytest.mark.parametrize("attribute", ["work", "imported"])
@pytest.mark.parametrize(
    ("file", "before", "after", "of_imported", "of_work"),
    [
        ("helper_rates.py", "* x", "+ x", False, False),
        ("helper_rates.py", "return 1", "return 2", True, True),
        ("helper_deeper.py", "BASE = 2", "BASE = 9", False, False),
        ("helper_deeper.py", "OTHER = 3", "OTHER = 9", True, True),
        ("helper_ring.py", "else 4", "else 5", False, False),
        ("helper_package/sibling.py", "5", "6", True, False),
        ("helper_package/inner.py", "sibling.SIZE", "sibling.SIZE + 1", True, False),
        ("helper_space/part.py", "6", "7", True, False),
        ("helper_stars.py", "7", "8", True, False),
        # of libraries only what is imported counts
        ("site-packages/helper_library.py", "8", "9", True, True),
        ("fingerprinted_uses.py", "from helper_library import price", "from helper_deeper import price", True, False),
    ],
)
def test_own_modules_it_imports_from_count(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attribute: str,
    file: str,
    before: str,
    after: str,
    *,
    of_imported: bool,
    of_work: bool,
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "b" / "site-packages")
    operator = Operator(name="o", run=f"fingerprinted_uses:{attribute}")
    first = fingerprint(operator, beside=with_helpers(tmp_path / "a"))
    second = fingerprint(operator, beside=with_helpers(tmp_path / "b", (file, before, after)))
    assert None not in (first, second)
    assert (first == second) is (of_work if attribute == "work" else of_imported)


def test_code_in_python_and_the_same_in_a_file_have_the_same_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "both_ways.py").write_text(
        "import penstock\nfrom both_helper import price\np = penstock.pipeline('p').source('s')\n"
        "@p.operator(reads='s', schema='v long', threads=2)\ndef parse(row): return {'v': price(row)}\n"
        "@penstock.logic(per='pandas', schema='v long')\ndef scored(frame): return frame\n"
        "p.then('score', logic=scored).then('last', logic=lambda row: price(row)).sink('end')\n"
    )
    (tmp_path / "both_helper.py").write_text("def price(row): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    built = find_pipeline("both_ways:p")
    read = parse_pipeline(pipeline_document(built), "file")
    codes = logic_of(read)
    names = ("parse", "score", "last")
    prints = {name: fingerprint(built.operators[name]) for name in names}
    assert {name: fingerprint(read.operators[name], codes[name]) for name in names} == prints
    # whoever plans does not import it: what no module has by a name is not seen then
    assert {name: fingerprint(read.operators[name]) for name in names} == {**prints, "last": None}

    # a rewritten pipeline says `per` as it was measured, and its code is the same
    points = (Point(threads=1, rate=50.0, cpu=0.1, memory=0.1),)
    measured = {name: MeasuredOn(code=prints[name], per=codes[name].per) for name in names}
    library = ModelLibrary.of([Model(f"p/{name}", points, on) for name, on in measured.items()])
    rewritten = parse_pipeline(pipeline_document(penstock.rewrite(read, 10, models=library).pipeline), "file")
    assert rewritten.operators["score"].per is Per.PANDAS
    assert changed_code(rewritten, demands_of(rewritten, library)) == []
    assert changed_code(built, demands_of(built, library)) == []
    as_arrow = read.operators["score"].model_copy(update={"per": Per.ARROW})
    assert fingerprint(as_arrow, measured=measured["score"]) != prints["score"]

    # what the helper says counts, of code that only Python has too
    import_module("both_helper").price.__code__ = (lambda row: 2).__code__
    assert fingerprint(built.operators["last"]) != prints["last"]
    (tmp_path / "both_helper.py").write_text("def price(row): return 22\n")
    complaints = changed_code(built, demands_of(built, library))
    assert [complaint.split("'")[1] for complaint in complaints] == ["parse", "last"]


def test_models_of_earlier_versions_keep_their_fingerprints(tmp_path: Path) -> None:
    text = "import json\nFACTOR = 2\ndef work(row): return json.dumps(FACTOR)\n"
    first = of_file(tmp_path, text)
    statements = [ast.dump(statement) for statement in ast.parse(text).body[1:]]
    old = hashlib.sha256("\n".join([repr((None, None, None)), *statements]).encode()).hexdigest()[:16]
    operator = Operator(name="o", run="fingerprinted_code:work")
    assert first != old
    assert fingerprint(operator, beside=tmp_path, measured=MeasuredOn(code=old)) == old
    now = of_file(tmp_path, text.replace("FACTOR = 2", "FACTOR = 3"))
    assert fingerprint(operator, beside=tmp_path, measured=MeasuredOn(code=old)) == now not in (first, old)


def test_fused_operators_have_the_fingerprint_of_their_parts(tmp_path: Path) -> None:
    def chain(text: str) -> str | None:
        (tmp_path / "fingerprinted_code.py").write_text(text)
        parts = (Operator(name="a", run="fingerprinted_code:work"), Operator(name="b", model="pi"))
        return fingerprint(Operator(name="a+b", chain=parts), Logic(print), tmp_path)

    assert None is not chain(CODE) == chain(CODE) != chain(CODE.replace("FACTOR = 2", "FACTOR = 3"))


def test_a_module_that_is_too_much_to_read_is_not_looked_into(tmp_path: Path) -> None:
    watch = Stopwatch()
    assert of_file(tmp_path, f"{CODE}\nDEEP = {'-' * 100_000}1\n") is None
    assert of_file(tmp_path, f"{CODE}\nLONG = '{'x' * 5_000_000}'\n") is None
    for number in range(300):
        (tmp_path / f"ring_{number}.py").write_text(f"from ring_{number + 1} import f\n")
    (tmp_path / "ring_300.py").write_text("from ring_0 import f\n")
    assert of_file(tmp_path, "from ring_0 import f as work\n") is not None
    assert watch.seconds() < 10


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
    plain, roomy = penstock.plan("linear", 80), penstock.plan("linear", 80, utilisation=0.8)
    sized = penstock.plan("linear", 100)
    # threads and slots are those of 80 / 0.8, the rate and what is predicted of it are not
    assert roomy.placement == sized.placement
    assert roomy.rate == 80
    assert roomy.allocation.slots > plain.allocation.slots
    busiest = max(used.cpu for used in roomy.prediction.slots.values())
    assert busiest < max(used.cpu for used in sized.prediction.slots.values())
    assert roomy.document()["utilisation"] == 0.8
    assert "utilisation" not in plain.document()
    for wrong in (0.0, 1.5, float("nan")):
        with pytest.raises(penstock.BadInputError, match=r"utilisation=: expected 0.01 to 1, found"):
            penstock.plan("linear", 80, utilisation=wrong)
