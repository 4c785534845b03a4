"""Who may know a cluster manager: all but the contract and the registry belongs to `spark/clusters`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import penstock
import penstock_lab

ROOT = Path(penstock.__file__).parent
MANAGERS = ROOT / "spark" / "clusters"
STARTERS = {
    "api/clusters.py",
    "api/controller.py",
    "cli/commands/cluster.py",
    "control/executors/spark_rounds.py",  # a deployment that names no cluster starts one for its rounds
    "testing/clusters.py",
    "types.pyi",
}
"""Modules that start and end the cluster of this machine, which is no part of the contract."""


def imports_of(text: str) -> set[str]:
    """Return all modules a text imports, inside functions and for type checking too."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            module = node.module if node.level == 0 else f"penstock.{node.module}"
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


@cache
def imports_outside() -> dict[str, set[str]]:
    """Return the imports of every module outside `spark/clusters`."""
    files = [*ROOT.rglob("*.py"), *ROOT.rglob("*.pyi"), *Path(penstock_lab.__file__).parent.rglob("*.py")]
    return {
        str(file.relative_to(ROOT.parent)).removeprefix("penstock/"): imports_of(file.read_text("utf-8"))
        for file in files
        if MANAGERS not in file.parents
    }


def importers(package: str) -> set[str]:
    """Return the modules outside `spark/clusters` that import a package."""
    return {
        module
        for module, names in imports_outside().items()
        if any(name == package or name.startswith(f"{package}.") for name in names)
    }


@pytest.mark.parametrize("line", ["from penstock.a.b import c", "import penstock.a.b", "from .a.b import c"])
def test_the_rule_can_fail(line: str) -> None:
    assert "penstock.a.b" in imports_of(f"def f():\n    {line}")


def test_nothing_else_knows_the_standalone_manager() -> None:
    assert importers("penstock.spark.clusters.standalone") == set()
    assert importers("penstock.spark.clusters.spark_cluster") == set()


def test_the_cluster_of_this_machine_is_started_in_few_places() -> None:
    outside_lab = {name for name in importers("penstock.spark.clusters.local") if not name.startswith("penstock_lab/")}
    assert outside_lab == STARTERS
