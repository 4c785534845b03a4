"""The shape of the project: who may import whom, how long a module may be, and what loading it costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(penstock.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

LAYERS = (
    "errors",
    "files",
    "registry",
    "clock",
    "dataflow",
    "cluster",
    "modelling",
    "allocation",
    "placement",
    "segmentation",
    "prediction",
    "planning",
    "sharing",
    "report",
    "simulation",
    "spark",
    "control",
    "service",
    "workloads",
    "pictures",
    "starter",
    "api",
    "running",
    "placed_job",
    "placed",
    "simulated_job",
    "simulated_fused",
    "simulated_search",
    "simulating",
    "measuring",
    "experiments",
    "experimenting",
    "cli",
    "__main__",
)
"""A package imports itself and what stands before it. Some are planned: they have their place already."""

LONGEST_MODULE = 500


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module a file imports, inside functions and for type checking too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide who imports whom"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imports_of(path: Path) -> set[str]:
    return set(imported(ast.parse(path.read_text("utf-8"))))


def layer_of(path: Path) -> str:
    """The part of the project a file belongs to; "" for the package's own `__init__`."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py").replace("__init__", "")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def mentions(names: set[str], package: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for name in names)


def wrong_imports(layer: str, names: set[str]) -> set[str]:
    """Imports of parts of the project that do not stand before `layer`."""
    allowed = LAYERS[: LAYERS.index(layer) + 1]
    ours = {name.split(".")[1] for name in names if name.startswith("penstock.")}
    return ours - set(allowed) - {"__version__"}


def test_the_rule_can_fail() -> None:
    tree = ast.parse("def f():\n    from penstock.placement.sam import Sam\n    import penstock.modelling.model")
    assert wrong_imports("cluster", set(imported(tree))) == {"placement", "modelling"}
    assert wrong_imports("placement", set(imported(tree))) == set()


def test_every_part_has_a_place_in_the_order() -> None:
    assert {layer_of(path) for path in MODULES} - {""} <= set(LAYERS)


@pytest.mark.parametrize("path", [path for path in MODULES if layer_of(path)], ids=name_of)
def test_imports_only_what_stands_before(path: Path) -> None:
    assert wrong_imports(layer_of(path), imports_of(path)) == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_stay_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST_MODULE


def test_only_the_spark_package_imports_spark() -> None:
    assert {layer_of(path) for path in MODULES if mentions(imports_of(path), "pyspark")} == {"spark"}


def test_only_pictures_draw() -> None:
    drawing = {layer_of(path) for path in MODULES if mentions(imports_of(path), "matplotlib")}
    assert drawing <= {"pictures"}


def test_one_module_reads_the_clock() -> None:
    clocks = [
        name_of(path)
        for path in MODULES
        if mentions(imports_of(path), "time") or mentions(imports_of(path), "datetime")
    ]
    # what travels may hold dates and times; that they are never those of now is seen from the names it uses
    assert clocks == ["clock.py", "spark/payloads.py"]
    text = (ROOT / "spark" / "payloads.py").read_text("utf-8")
    assert not re.search(r"\b(now|utcnow|today|monotonic|perf_counter)\b", text)


def test_no_module_draws_random_numbers_without_a_seed() -> None:
    # the standard library's generator and numpy's old one are seeded by the machine
    for path in MODULES:
        assert not mentions(imports_of(path), "random"), name_of(path)
        assert "np.random.seed" not in path.read_text("utf-8"), name_of(path)


def loaded_after(code: str) -> set[str]:
    """Top-level packages in memory after `code` ran in a fresh interpreter."""
    script = f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


def test_importing_the_package_costs_nothing() -> None:
    assert loaded_after("import penstock").isdisjoint({"numpy", "pydantic", "yaml", "rich", "typer", "matplotlib"})


def test_planning_loads_neither_spark_nor_drawing() -> None:
    loaded = loaded_after(
        "import penstock\npenstock.compare('linear', 10)\n"
        "plan = penstock.plan('linear', 50)\npenstock.capacity('linear', plan.cluster, allocator='mba', placer='sam')"
    )
    assert "numpy" in loaded
    assert loaded.isdisjoint({"pyspark", "matplotlib"})


def test_everything_exported_exists() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None


def test_what_is_not_exported_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'sparkle'"):
        _ = penstock.sparkle
