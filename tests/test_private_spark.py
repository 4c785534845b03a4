"""Private parts of Spark are touched in one package only, and each touch is declared there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.spark.internals.declarations import declared, page

ROOT = Path(penstock.__file__).parent
INTERNALS = ROOT / "spark" / "internals"
ELSEWHERE = sorted({*ROOT.rglob("*.py"), *(ROOT.parent / "penstock_lab").rglob("*.py")} - set(INTERNALS.rglob("*.py")))

ATTRIBUTES = re.compile(
    r"_j(vm|sc|df|rdd|conf|sparkSession|session|query|listener|stq|cols?|dataStream\w*|reader|writer|seq|map)"
    r"|_gateway|_active_spark_context|_instantiatedSession|_instantiatedContext|_stackTrace"
)
MODULES = (
    "py4j",
    *(f"pyspark.{name}" for name in ("cloudpickle", "daemon", "java_gateway", "serializers", "util", "worker")),
    *(f"pyspark.sql.{name}" for name in ("classic", "connect", "pandas")),
)
TEXTS = re.compile(
    r"org\.apache\.spark\.(sql\.execution|network|scheduler)|^pyspark\.(daemon|worker)|^spark\.python\.daemon"
)
ACCESSORS = {"java_classes", "java_context", "java_session", "analysed_plan", "hadoop_configuration"}
"""Functions that return objects of Java's: whoever calls one touches what it does with them."""


def private_touches(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ATTRIBUTES.fullmatch(node.attr):
            yield node.attr
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith(MODULES))
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from (name for name in names if name.startswith(MODULES))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and TEXTS.search(node.value):
            yield node.value
        elif isinstance(node, ast.Name) and node.id in ACCESSORS:
            yield node.id


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("session._jvm.java", ["_jvm"]),
        ("self._job = self._journal", []),
        ("def f():\n    from py4j.protocol import Py4JError", ["py4j.protocol", "py4j.protocol.Py4JError"]),
        ("from pyspark import cloudpickle", ["pyspark.cloudpickle"]),
        ("from pyspark.sql import DataFrame", []),
        ("x = 'spark.python.daemon.module'", ["spark.python.daemon.module"]),
        ("java_context(session).version()", ["java_context"]),
    ],
)
def test_a_touch_is_seen(code: str, found: list[str]) -> None:
    assert list(private_touches(ast.parse(code))) == found


def test_nothing_private_is_touched_elsewhere() -> None:
    found = {
        str(path.relative_to(ROOT.parent)): sorted(set(private_touches(ast.parse(path.read_text("utf-8")))))
        for path in ELSEWHERE
    }
    assert {module: names for module, names in found.items() if names} == {}


def test_every_function_that_touches_is_declared() -> None:
    touching = [
        f"{path.stem}.{node.name}"
        for path in sorted(INTERNALS.glob("*.py"))
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and any(private_touches(ast.Module(node.body, [])))
    ]
    assert len(touching) > 20
    assert set(touching) - {touch.name for touch in declared()} == HELPERS


HELPERS = {"worker_process._wrap_tasks"}
"""Private functions that one declared function calls."""


def test_the_page_about_versions_is_that_of_the_declarations() -> None:
    text = (ROOT.parents[1] / "docs" / "spark-versions.md").read_text("utf-8")
    assert text == page(), "write it anew: python -m penstock.spark.internals.declarations > docs/spark-versions.md"
    assert max(len(line) for line in text.splitlines()) <= 120
