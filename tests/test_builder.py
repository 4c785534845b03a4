"""Pipelines in Python and in files: the same thing said three ways, and what a pipeline may not be."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import BadInputError
from penstock.dataflow.code import (
    code_of,
    frame_function,
    parse_pipeline,
    pipeline_document,
    read_pipeline,
    write_function,
)
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Grouping, Kind, Operator, Pipeline, Stream
from penstock.dataflow.rewrite import fuse, separate
from penstock.inputs.finders import builtin_pipeline, find_pipeline, known_pipelines, logic_of

WORDS = {
    "name": "words",
    "operators": {
        "lines": {"kind": "source"},
        "split": {"model": "split"},
        "count": {"threads": 4, "cpu": 50, "memory_mb": 1024, "resources": {"gpu": 1}},
        "out": {"kind": "sink"},
    },
    "streams": [
        {"from": "lines", "to": "split"},
        {"from": "split", "to": "count", "selectivity": 8, "constant": 1, "grouping": "fields", "key": "word"},
        {"from": "count", "to": "out"},
    ],
}


def test_a_chain_and_a_file_say_the_same() -> None:
    built = (
        penstock.pipeline("words")
        .source("lines")
        .then("split", model="split")
        .then(
            "count",
            threads=4,
            cpu=50,
            memory_mb=1024,
            resources={"gpu": 1},
            selectivity=8,
            constant=1,
            grouping="fields",
            key="word",
        )
        .sink("out")
        .build()
    )
    assert built == parse_pipeline(WORDS, "words.yaml")


def test_ends_read_back() -> None:
    built = (
        penstock.pipeline("p")
        .source("s", files="data/*.jsonl")
        .source("t", files="logs/*", format="text")
        .then("a", reads=["s", "t"], model="pi")
        .sink("x", parquet="out/x", console=True)
        .build()
    )
    document = pipeline_document(built)
    assert document["operators"]["t"] == {"kind": "source", "files": "logs/*", "format": "text"}
    assert document["operators"]["x"] == {"kind": "sink", "parquet": "out/x", "console": True}
    assert parse_pipeline(document, "p.yaml") == built


def test_a_pipeline_document_reads_back() -> None:
    assert pipeline_document(parse_pipeline(WORDS, "words.yaml")) == WORDS


@pytest.mark.parametrize("name", known_pipelines())
def test_built_in_pipelines_read_back(name: str) -> None:
    found = builtin_pipeline(name)
    assert parse_pipeline(pipeline_document(found), name) == found


@pytest.mark.parametrize("name", known_pipelines())
def test_built_in_pipelines_can_be_planned(name: str) -> None:
    plan = penstock.plan(name, 50)
    assert plan.prediction.slot_aware.rate >= 50 * (1 - 1e-9)


def test_decorators() -> None:
    clicks = penstock.pipeline("clicks")
    clicks.source("events")

    @clicks.operator(reads="events", model="parse_xml", selectivity=0.5)
    def parse(row: str) -> str:
        return row.upper()

    @clicks.operator(reads=["events", "parse"], name="merge", model="pi", grouping="slot-aware")
    def anything(row: str) -> str:
        return row

    clicks.sink("out", reads="merge")
    built = clicks.build()
    assert parse("still callable") == "STILL CALLABLE"
    assert built.operators["parse"].logic == Logic(parse)
    assert built.operators["merge"].logic == Logic(anything)
    assert [(s.sender, s.receiver, s.selectivity, s.grouping) for s in built.streams] == [
        ("events", "parse", 0.5, Grouping.SHUFFLE),
        ("events", "merge", 1.0, Grouping.SLOT_AWARE),
        ("parse", "merge", 1.0, Grouping.SLOT_AWARE),
        ("merge", "out", 1.0, Grouping.SHUFFLE),
    ]
    # 200/s: parse 100, merge 200 + 100
    rates = penstock.plan(clicks, 200).document()["operators"]
    assert {name: row["rate"] for name, row in rates.items()} == {
        "events": 200,
        "parse": 100,
        "merge": 300,
        "out": 300,
    }


def test_streams_a_chain_cannot_say() -> None:
    built = penstock.pipeline("p").source("s").then("a", model="pi").then("b", model="pi").stream("s", "b").build()
    assert [(stream.sender, stream.receiver) for stream in built.inputs("b")] == [("a", "b"), ("s", "b")]
    assert [stream.receiver for stream in built.outputs("s")] == ["a", "b"]
    assert built.sources == ("s",)


def test_many_sources_and_sinks() -> None:
    built = (
        penstock.pipeline("p")
        .source("s")
        .source("t")
        .then("a", reads=["s", "t"], model="pi")
        .sink("x")
        .sink("y", reads="a")
        .build()
    )
    assert built.sources == ("s", "t")
    # one pi thread does 105/s: 2 * 50 = 100 arrive
    assert penstock.plan(built, 50).document()["operators"]["a"] == {
        "rate": 100,
        "threads": 1,
        "cpu": pytest.approx(100 / 105 * 0.9),
        "memory": pytest.approx(100 / 105 * 0.02),
    }


@pytest.mark.parametrize("grouping", list(Grouping))
def test_the_eight_groupings(grouping: Grouping) -> None:
    key = "k" if grouping in {Grouping.FIELDS, Grouping.PARTIAL_KEY} else None
    assert Stream(sender="a", receiver="b", grouping=grouping, key=key).grouping is grouping
    assert len(Grouping) == 8


def changed(**changes: Any) -> dict[str, Any]:
    return {**WORDS, **changes}


def operators(**given: Any) -> dict[str, Any]:
    """A file of one source and these operators, no streams."""
    return {"name": "p", "operators": {"s": {"kind": "source"}, **given}}


def stream(**given: Any) -> dict[str, Any]:
    return changed(streams=[{"from": "lines", "to": "split", **given}])


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ([], "f.yaml: expected a mapping with the keys of a pipelinefile, found list"),
        ("text", "f.yaml: expected a mapping .*, found str"),
        (None, "f.yaml: expected a mapping .*, found nothing"),
        ({"operators": {}}, "f.yaml: name: Field required"),
        (changed(name=""), "f.yaml: name: .*at least 1 character"),
        (changed(name="a/b"), "f.yaml: name: .*match pattern"),
        (changed(operators={}, streams=[]), "f.yaml: pipeline 'words': expected at least one operator"),
        (changed(operators=["a"]), "f.yaml: operators: .*valid dictionary"),
        (changed(operator={}), "f.yaml: unknown key 'operator'; did you mean 'operators'"),
        (operators(a={"modell": "pi"}), "f.yaml: operators.a: unknown key 'modell'; did you mean 'model'"),
        (operators(a=5), "f.yaml: operators.a: .*dictionary"),
        (operators(a={"kind": "sauce"}), "f.yaml: operators.a.kind: .*'source', 'operator' or 'sink', found 'sauce'"),
        (operators(a={"name": "b"}), "f.yaml: operators.a: unknown key 'name'; an operator is named by its key"),
        (operators(a={"function": "os.system"}), "f.yaml: operators.a: unknown key 'function'"),
        (operators(a={"cpu": -1, "memory_mb": 1, "threads": 1}), "f.yaml: operators.a.cpu: .*or equal to 0, found -1"),
        (
            operators(a={"cpu": float("nan"), "memory_mb": 1, "threads": 1}),
            "f.yaml: operators.a.cpu: .*finite number, found nan",
        ),
        (
            operators(a={"cpu": 1, "memory_mb": float("inf"), "threads": 1}),
            "f.yaml: operators.a.memory_mb: .*finite number, found inf",
        ),
        (
            operators(a={"cpu": 1, "memory_mb": 1, "threads": 0}),
            "f.yaml: operators.a.threads: .*or equal to 1, found 0",
        ),
        (
            operators(a={"cpu": 1, "memory_mb": 1, "threads": 1, "resources": {"gpu": -1}}),
            "f.yaml: operators.a.resources.gpu: .*or equal to 0, found -1",
        ),
        (
            operators(a={"kind": "source", "files": "a.bin"}),
            "operators.a: source 'a': the ending of 'a.bin' does not say .*; give format: json, csv, parquet, orc",
        ),
        (
            operators(a={"kind": "source", "options": {"path": "in"}}),
            "source 'a': options mean something only with a format",
        ),
        (operators(a={"kind": "source", "files": "a.csv", "run": "m:f"}), "source 'a' has files and code; keep one"),
        (operators(a={"kind": "sink", "write": "m:f", "format": "json"}), "sink 'a' has write and format; keep one"),
        (operators(a={"per": "panda"}), "operators.a.per: .*'pandas'.*found 'panda'"),
        (operators(a={"frame_code": "x"}), "operators.a: unknown key 'frame_code'"),
        (
            operators(a={"model": "pi", "files": "a.csv"}),
            "operator 'a': 'files' belongs to a source, and its kind is operator",
        ),
        (
            operators(a={"kind": "source", "parquet": "x"}),
            "operator 'a': 'parquet' belongs to a sink, and its kind is source",
        ),
        (
            operators(a={"kind": "source", "console": True}),
            "operator 'a': 'console' belongs to a sink, and its kind is source",
        ),
        (operators(a={"kind": "sink", "parquet": ""}), "operators.a.parquet: .*at least 1 character"),
        (operators(a={"cpu": 1}), "f.yaml: operators.a: operator 'a' declares .*: expected all of threads, cpu"),
        (operators(a={"cpu": 1, "model": "pi"}), "f.yaml: operators.a: operator 'a' names model 'pi' and also"),
        (
            stream(to="spilt"),
            r"f.yaml: pipeline 'words': streams\[0\].to: unknown operator 'spilt'; did you mean 'split'",
        ),
        (stream(**{"from": "x"}), r"f.yaml: pipeline 'words': streams\[0\].from: unknown operator 'x'; known: lines"),
        (stream(selectivity=-1), r"f.yaml: streams\[0\].selectivity: .*or equal to 0, found -1"),
        (stream(selectivity=float("nan")), r"f.yaml: streams\[0\].selectivity: .*finite number, found nan"),
        (stream(constant=float("inf")), r"f.yaml: streams\[0\].constant: .*finite number, found inf"),
        (stream(selectivity="2"), r"f.yaml: streams\[0\].selectivity: .*valid number, found '2'"),
        (stream(selectivity=True), r"f.yaml: streams\[0\].selectivity: .*valid number"),
        (stream(grouping="shuffel"), r"f.yaml: streams\[0\].grouping: .*'shuffle', .*found 'shuffel'"),
        (stream(grouping="fields"), r"f.yaml: streams\[0\]: stream 'lines' -> 'split': grouping 'fields' needs a key"),
        (stream(key="k"), r"f.yaml: streams\[0\]: stream 'lines' -> 'split': a key means something only with"),
        (stream(grouing="all"), r"f.yaml: streams\[0\]: unknown key 'grouing'; did you mean 'grouping'"),
        (
            changed(streams=[{"from": "split", "to": "lines"}]),
            "f.yaml: pipeline 'words': source 'lines' receives stream 'split' -> 'lines'; a source has no input",
        ),
        (
            changed(streams=[{"from": "out", "to": "split"}]),
            "f.yaml: pipeline 'words': sink 'out' sends stream 'out' -> 'split'; a sink has no output",
        ),
    ],
)
def test_bad_pipeline_files(data: object, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint) as caught:
        parse_pipeline(data, "f.yaml")
    assert "\n" not in str(caught.value)


def test_an_operator_declared_twice() -> None:
    with pytest.raises(BadInputError, match="pipeline 'p': operator 'a' is declared twice"):
        penstock.pipeline("p").source("a").then("a").build()


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda p: p.then("a"), "pipeline 'p': operator 'a' has nothing before it to read from"),
        (lambda p: p.source("s", modell="x"), "pipeline 'p': unknown key 'modell'; did you mean 'model'"),
        (lambda p: p.source("s").then("a", selectivity=-1), "pipeline 'p': selectivity: .*or equal to 0, found -1"),
        (lambda p: p.source("s").then("a", reads="t").build(), "pipeline 'p': .*unknown operator 't'; known: s, a"),
        (lambda p: p.source(" "), "pipeline 'p': name: "),
    ],
)
def test_bad_builders(build: Any, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        build(penstock.pipeline("p"))


def test_cycles_are_accepted_until_rates_are_needed() -> None:
    looping = Pipeline.of(
        "loop",
        [Operator(name="s", kind=Kind.SOURCE), Operator(name="a", model="pi"), Operator(name="b", model="pi")],
        [Stream(sender=x, receiver=y) for x, y in ("sa", "ab", "ba")],
    )
    with pytest.raises(BadInputError, match=r"'loop': rates need a pipeline without cycles, found '(a|b)' -> "):
        penstock.plan(looping, 10)


def of_a_module(row: dict[str, Any]) -> dict[str, Any]:
    return row


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (of_a_module, {"run": f"{__name__}:of_a_module", "schema": "value long"}),
        (lambda row: row, {"run": "only-in-python:work"}),
        (penstock.logic(schema="value long", open=dict)(of_a_module), {"run": "only-in-python:work"}),
    ],
)
def test_code_of_a_module_is_named_in_files_and_found_again(code: Any, said: dict[str, str]) -> None:
    built = penstock.pipeline("named").source("in").then("work", logic=code, schema="value long").sink("out").build()
    document = pipeline_document(built)
    assert document["operators"]["work"] == said
    read = parse_pipeline(document, "file").operators["work"]
    if "schema" in said:
        assert code_of(read) == code_of(built.operators["work"])
    else:
        # whatever the operator is called: it is not taken for a reference task
        with pytest.raises(BadInputError, match=r"'work': run .* was given in Python, and no file can name it"):
            code_of(read)


IN_PYTHON = """
import penstock
p = penstock.pipeline("p").source("s", frame=lambda spark: spark)
def opened(): return 3
@p.operator(reads="s", open=opened, schema="value long", threads=8)
def look(row, handle): return {"value": handle}
p.then("pi", logic=lambda row: {"value": row["value"] + 1}, on_error="stop", threads=8).then("plain", logic=opened)
p.sink("out", write=lambda frame, number: number)
def make(): return p.build()
"""


@pytest.mark.parametrize("name", ["p", "make"])
def test_files_name_code_by_the_pipeline_it_was_given_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "given_in_python", raising=False)
    (tmp_path / "given_in_python.py").write_text(IN_PYTHON)
    address = f"given_in_python:{name}"
    built = find_pipeline(address)
    document = pipeline_document(built)
    operators = document["operators"]
    assert operators["look"] == {"run": f"{address}.look", "schema": "value long", "threads": 8}
    assert operators["pi"] == {"run": f"{address}.pi", "on_error": "stop", "threads": 8}
    assert operators["plain"] == {"run": "given_in_python:opened"}
    read = parse_pipeline(document, "file")
    assert logic_of(read) == logic_of(built)
    assert frame_function(read.operators["s"]) is frame_function(built.operators["s"])
    assert write_function(read.operators["out"]) is write_function(built.operators["out"])
    # parts of operators that were separated or fused are found as what they were
    separated = parse_pipeline(pipeline_document(separate(built, "pi", 2).pipeline), "file")
    assert logic_of(separated)["pi.2"] == logic_of(built)["pi"]
    fused = parse_pipeline(pipeline_document(fuse(built, "look", "pi").pipeline), "file")
    chained = logic_of(fused)["look+pi"]
    assert chained.open is not None
    assert chained({"value": 1}, chained.open()) == {"value": 4}


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("given_in_python:p.nosuch", "no such operator in that pipeline; known: s, look, pi, plain, out"),
        ("given_in_python:p.s", "was not given such code"),
        ("given_in_python:opened.look", "expected a Pipeline, a builder, .* found int"),
        ("given_in_python:q.look", "pipeline 'given_in_python:q': AttributeError"),
    ],
)
def test_code_that_no_pipeline_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, complaint: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "given_in_python", raising=False)
    (tmp_path / "given_in_python.py").write_text(IN_PYTHON)
    with pytest.raises(BadInputError, match=f"operator 'o': run '{address}': .*{complaint}"):
        code_of(Operator(name="o", run=address))


@pytest.mark.parametrize(
    ("name", "value"),
    [("open", list), ("close", print), ("on_error", "stop"), ("timeout_seconds", 3.0)],
)
def test_what_is_said_of_calls_is_refused_where_code_is_called_once(name: str, value: Any) -> None:
    with pytest.raises(BadInputError, match=f"operator 'w': {name}: not with per='dataframe': its code is called once"):
        penstock.pipeline("p").source("s").then("w", logic=lambda frame: frame, per="dataframe", **{name: value})


COUNTED = {"key": "k", "outputs": {"n": "count"}, "fields": "k string"}
UNREAD: dict[str, tuple[dict[str, Any], str]] = {
    "threads of Spark's own": ({"o": {"run": "m:f", "per": "dataframe", "threads": 3}}, "'o': threads: not with per="),
    "threads of a source": ({"s": {"kind": "source", "format": "rate", "threads": 3}}, "'s': threads: not of a source"),
    "timeout of an aggregate": (
        {"o": {"aggregate": COUNTED, "timeout_seconds": 3}},
        "'o': timeout_seconds: not beside",
    ),
    "on_error of an aggregate": ({"o": {"aggregate": COUNTED, "on_error": "stop"}}, "'o': on_error: not beside aggreg"),
    "per of an aggregate": ({"o": {"aggregate": COUNTED, "per": "row"}}, "'o': per: not beside aggregate"),
    "schema of an aggregate": ({"o": {"aggregate": COUNTED, "schema": "n long"}}, "'o': schema: not beside aggregate"),
    "schema of a chain": (
        {"o": {"chain": [{"name": "a", "model": "pi"}], "schema": "n long"}},
        "schema: not beside ch",
    ),
    "part of a chain": (
        {"o": {"chain": [{"name": "a", "run": "m:f", "per": "dataframe", "threads": 2}]}},
        "'a': threa",
    ),
    "per of a source": ({"s": {"kind": "source", "per": "row"}}, "source 's': per: not of a source without code"),
    "timeout of a sink": ({"e": {"kind": "sink", "timeout_seconds": 3}}, "sink 'e': timeout_seconds: not of a sink"),
    "on_error of a source": ({"s": {"kind": "source", "format": "rate", "on_error": "stop"}}, "'s': on_error: not of"),
    "schema of the load generator": ({"s": {"kind": "source", "schema": "n long"}}, "'s': schema: not of the load gen"),
    "schema of a frame": ({"s": {"kind": "source", "frame": "m:f", "schema": "n long"}}, "'s': schema: not beside fra"),
}


@pytest.mark.parametrize("case", UNREAD)
def test_what_nothing_reads_is_refused_where_it_is_written(tmp_path: Path, case: str) -> None:
    fields, complaint = UNREAD[case]
    operators = {"s": {"kind": "source"}, "o": {"run": "m:f"}, "e": {"kind": "sink"}, **fields}
    streams = [{"from": "s", "to": "o"}, {"from": "o", "to": "e"}]
    document = {"name": "p", "operators": operators, "streams": streams}
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(BadInputError, match=r"p\.json: ") as caught:
        read_pipeline(tmp_path / "p.json")
    assert complaint in str(caught.value)
    # plans of before may have it in their definition
    assert parse_pipeline(document, "plan.json: definition").name == "p"


def test_what_nothing_reads_is_refused_in_python() -> None:
    p = penstock.pipeline("p").source("s")
    with pytest.raises(BadInputError, match="pipeline 'p': operator 'a': on_error: not beside aggregate"):
        p.then("a", aggregate=COUNTED, on_error="stop")
    with pytest.raises(BadInputError, match="pipeline 'p': operator 'same': threads: not with per='dataframe'"):

        @p.operator(reads="s", per="dataframe", threads=2)
        def same(frame: Any) -> Any:
            return frame

    # what is declared, or has code, does say something
    p.source("t", format="rate", threads=1, cpu=10, memory_mb=10)
    p.source("u", logic=of_a_module, schema="value long", threads=2, on_error="stop")
    p.sink("e", logic=of_a_module, timeout_seconds=2)
