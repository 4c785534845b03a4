"""The shape of the project: who may import whom, how long a module may be, and what loading it costs."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import re
import subprocess
import sys
import typing
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
    "base",
    "dataflow",
    "cluster",
    "modelling",
    "planning",
    "report",
    "simulation",
    "runtime",
    "connectors",
    "spark",
    "workloads",
    "inputs",
    "runs",
    "engines",
    "profiling",
    "control",
    "service",
    "pictures",
    "api",
    "cli",
    "testing",
    "types",
    "plugins",
    "__main__",
)
"""A package imports itself and what stands before it."""

LONGEST_MODULE = 700


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
    tree = ast.parse(
        "def f():\n    from penstock.planning.placement.placers.sam import Sam\n    import penstock.modelling.model"
    )
    assert wrong_imports("cluster", set(imported(tree))) == {"planning", "modelling"}
    assert wrong_imports("planning", set(imported(tree))) == set()


def test_every_part_has_a_place_in_the_order() -> None:
    assert {layer_of(path) for path in MODULES} - {""} == set(LAYERS)


def test_the_page_about_the_design_lists_the_parts_in_their_order() -> None:
    page = (ROOT.parents[1] / "docs" / "design.md").read_text("utf-8").split("## Layers")[1].split("##")[0]
    rows = [re.split(r"\s{2,}", line.strip())[0] for line in page.splitlines() if line.startswith("    ")]
    assert tuple(name for row in rows for name in row.split()) == LAYERS[:-1]


def test_the_tour_names_every_folder_and_only_files_that_are_there() -> None:
    tour = (ROOT.parents[1] / "docs" / "design.md").read_text("utf-8").split("## A tour")[1].split("\n## ")[0]
    folders = {str(path.parent.relative_to(ROOT)) for path in MODULES if len(path.relative_to(ROOT).parts) > 1}
    # a folder of folders is named by what is in it, and clusters and workloads by the folder above them
    named = re.findall(r"`([a-z_/]+)`", tour)
    assert [
        folder
        for folder in sorted(folders)
        if not any(name.rstrip("/").startswith(folder) for name in named)
        and not folder.startswith(("inputs/", "spark/clusters/", "workloads/"))
    ] == []
    files = re.findall(r"`([a-z_/]+\.py)`", tour)
    there = {path.name for path in MODULES} | {name_of(path) for path in MODULES}
    assert files
    assert [file for file in files if file not in there] == []


def test_imports_only_what_stands_before() -> None:
    wrong = {name_of(path): wrong_imports(layer_of(path), imports_of(path)) for path in MODULES if layer_of(path)}
    assert {module: names for module, names in wrong.items() if names} == {}


def test_the_product_imports_nothing_from_the_lab() -> None:
    assert [name_of(path) for path in MODULES if mentions(imports_of(path), "penstock_lab")] == []


def test_modules_stay_short() -> None:
    lines = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {module: count for module, count in lines.items() if count > LONGEST_MODULE} == {}


def test_only_what_runs_on_spark_imports_it() -> None:
    assert {layer_of(path) for path in MODULES if mentions(imports_of(path), "pyspark")} == {
        "spark",
        "engines",
        "profiling",
    }
    placers = [path for path in MODULES if layer_of(path) == "engines" and path.parts[-2] in ("flow", "simulated")]
    assert placers
    assert [name_of(path) for path in placers if mentions(imports_of(path), "pyspark")] == []


def test_only_pictures_draw() -> None:
    drawing = {layer_of(path) for path in MODULES if mentions(imports_of(path), "matplotlib")}
    assert drawing <= {"pictures"}


def test_one_module_reads_the_clock() -> None:
    clocks = [
        name_of(path)
        for path in MODULES
        if mentions(imports_of(path), "time") or mentions(imports_of(path), "datetime")
    ]
    # rows, and what is kept, may hold dates and times; that they are never those of now is seen from the names they use
    in_rows = [f"runtime/{name}.py" for name in ("call_journal", "python_values", "row_values")]
    values = ["engines/placed/bundle/keyed_segment.py", *in_rows]
    assert clocks == ["base/clock.py", *values]
    for name in values:
        text = (ROOT / name).read_text("utf-8")
        assert not re.search(r"\.(now|utcnow|today|time|monotonic|perf_counter)\(", text)


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


def test_everything_exported_exists_and_is_seen() -> None:
    assert {"plan", "run", "simulate", "Load", "RunFailedError"} <= set(dir(penstock))
    assert {"RunResult", "Report"} & set(dir(penstock.types)) == {"RunResult"}
    for module in (penstock, penstock.types, penstock.testing, penstock.plugins):
        for name in dir(module):
            assert getattr(module, name) is not None


def names_in(annotation: ast.AST) -> Iterator[str]:
    for node in ast.walk(annotation):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


@pytest.mark.parametrize("path", sorted((ROOT / "api").glob("[a-z]*.py")), ids=name_of)
def test_what_public_functions_take_and_return_is_exported(path: Path) -> None:
    """By the names in the signatures of the functions that are exported themselves."""
    exported = {*dir(penstock), *dir(penstock.types), *dir(builtins), *dir(collections.abc), *dir(typing), "Path"}
    for function in ast.parse(path.read_text("utf-8")).body:
        if isinstance(function, ast.FunctionDef) and function.name in exported:
            arguments = [*function.args.args, *function.args.kwonlyargs]
            for annotation in [*(one.annotation for one in arguments), function.returns]:
                assert annotation is not None
                assert set(names_in(annotation)) <= exported, f"{path.name}: {function.name}"


def test_what_is_not_exported_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="No penstock attribute sparkle"):
        _ = penstock.sparkle  # type: ignore[attr-defined] # that is the point
