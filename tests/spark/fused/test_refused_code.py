"""Code and names that cannot go: one line that says whose they are, before anything is written or when it raised."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import BadInputError, RunFailedError
from penstock.dataflow.builder import PipelineBuilder

pytestmark = pytest.mark.usefixtures("own_runs")


def numbers(folder: Path, schema: str = "n bigint") -> PipelineBuilder:
    folder.mkdir()
    (folder / "0.json").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(10)))
    return penstock.pipeline("p").source("in", format="json", options={"path": str(folder)}, schema=schema)


def framed(frame: Callable[[Any], Any]) -> PipelineBuilder:
    return penstock.pipeline("p").source("in", frame=frame)


def locked() -> Callable[[Any], Any]:
    lock = threading.Lock()

    def code(row: Any) -> Any:
        with lock:
            return row

    return code


def raises(error: Exception) -> Callable[..., Any]:
    def code(*_: Any) -> Any:
        raise error

    return code


OWN: dict[str, Any] = {"per": "dataframe"}
WHOLE: dict[str, Callable[[Path], PipelineBuilder]] = {
    "unpicklable without schema": lambda f: numbers(f).then("a", logic=locked()).sink("out"),
    "unpicklable with schema": lambda f: numbers(f).then("a", logic=locked(), schema="n bigint").sink("out"),
    "frame= raises": lambda _: framed(raises(FileNotFoundError(2, "No such file", "gone.csv"))).sink("out"),
    "frame= gives no frame": lambda _: framed(lambda _: 5).sink("out"),
    "frame= gives a table": lambda _: framed(lambda session: session.range(5)).sink("out"),
    "operator raises": lambda f: numbers(f).then("a", logic=raises(KeyError("user")), **OWN).sink("out"),
    "operator gives no frame": lambda f: numbers(f).then("a", logic=lambda _: None, **OWN).sink("out"),
    "schema": lambda f: numbers(f).then("a", logic=lambda row: row, schema="n whatever").sink("out"),
    "schema of a source": lambda f: numbers(f, "n whatever").then("a", logic=lambda row: row).sink("out"),
    "package": lambda f: numbers(f).sink("out", format="delta", options={"path": "x"}),
    "column of a source": lambda f: numbers(f, "n bigint, penstock_id string").sink("out"),
    "column of code": lambda f: numbers(f).then("a", logic=lambda r: r, schema="Penstock_due double").sink("out"),
    "column of Spark's": lambda f: (
        numbers(f).then("a", logic=lambda frame: frame.selectExpr("n AS penstock_exit"), **OWN).sink("out")
    ),
}


@pytest.mark.parametrize(
    ("which", "complaint"),
    [
        ("unpicklable without schema", r"operator 'a': its code cannot be sent to workers: .*; make what .* open=$"),
        ("unpicklable with schema", r"operator 'a': its code cannot be sent to workers: .*; make what .* open=$"),
        ("frame= raises", r"source 'in': FileNotFoundError: .*gone\.csv"),
        ("frame= gives no frame", "source 'in': frame: expected a DataFrame, got int"),
        ("frame= gives a table", "source 'in': frame: expected a stream"),
        ("operator raises", "operator 'a': KeyError: 'user'"),
        ("operator gives no frame", "operator 'a': expected its code to return a DataFrame, got NoneType"),
        ("schema", "operator 'a': schema 'n whatever': "),
        ("schema of a source", "source 'in': schema 'n whatever': "),
        ("package", r"sink 'out': .*it needs a package: --packages io\.delta:delta-spark"),
        ("column of a source", "source 'in': column 'penstock_id': Penstock keeps that name"),
        ("column of code", "operator 'a': column 'Penstock_due': Penstock keeps that name"),
        ("column of Spark's", "operator 'a': column 'penstock_exit': Penstock keeps that name"),
    ],
)
def test_what_cannot_go_is_said_in_one_line(session: Any, tmp_path: Path, which: str, complaint: str) -> None:
    with pytest.raises(BadInputError, match=f"^{complaint}") as refused:
        penstock.run(WHOLE[which](tmp_path / "in"), session=session, slots=2, until_end=True)
    assert "\n" not in str(refused.value)


def test_a_function_that_cannot_write_is_named_by_its_sink(session: Any, tmp_path: Path) -> None:
    p = numbers(tmp_path / "in").sink("out", write=raises(ValueError("full\nup")))
    with pytest.raises(RunFailedError, match=r"^sink 'out': ValueError: full up$"):
        penstock.run(p, session=session, slots=2, until_end=True)


def test_seconds_end_a_run_to_which_nothing_comes(session: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    p = penstock.pipeline("p").source("in", format="json", options={"path": str(tmp_path / "in")}, schema="n bigint")
    report = penstock.run(p.sink("out"), session=session, slots=2, seconds=1.5).report
    assert (report.audit.emitted, report.sustained_rate) == (0, 0.0)
