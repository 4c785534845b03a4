"""Count the structure of the code: its size, the modules that five walks visit, and the places an extension touches.

    python tools/count_structure.py                a table of what is there, with the targets
    python tools/count_structure.py --json         the same as JSON
    python tools/count_structure.py --at main      of another revision; walks it does not have are as the review counted

Walks and places are declared and explained in structure.toml, beside this file. The walk of a plan is traced instead:
a module counts if one of its public functions or methods is called from another module.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HERE = Path(__file__).parent
DECLARED = HERE / "structure.toml"
NO_WALK = frozenset({"base"})
"""Packages that every reader knows."""
BY_HAND = "by hand"

TRACER = """
import contextlib, io, sys
from penstock.cli.main import main

visited = {}

def inner(frame, name):
    while frame is not None and frame.f_globals.get("__name__") == name and frame.f_code.co_name.startswith("<"):
        frame = frame.f_back
    return frame

def note(frame, event, _):
    name, called = frame.f_globals.get("__name__", ""), frame.f_code.co_name
    if event == "call" and name.startswith("penstock.") and not called.startswith(("_", "<")):
        caller = inner(frame.f_back, name)
        if caller is not None and caller.f_globals.get("__name__") != name:
            visited[name.removeprefix("penstock.")] = None

def once():
    sys.argv = ["penstock", *sys.argv[1:]]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main()

once()  # what is imported when it is first used is not visited
sys.setprofile(note)
once()
sys.setprofile(None)
print(*visited)
"""


@dataclass
class Tree:
    """The sources of one revision. `root` holds src/ and tools/."""

    root: Path

    @property
    def package(self) -> Path:
        return self.root / "src" / "penstock"

    @cached_property
    def modules(self) -> list[Path]:
        return sorted(self.package.rglob("*.py"))

    def path_of(self, module: str) -> Path:
        return self.package / f"{module.replace('.', '/')}.py"

    def parsed(self, module: str) -> ast.Module:
        return ast.parse(self.path_of(module).read_text("utf-8"))

    def imports(self, module: str) -> set[str]:
        """The modules of the package that a module imports, inside functions too."""
        found = set()
        for node in ast.walk(self.parsed(module)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock"):
                inside = (node.module or "").removeprefix("penstock").removeprefix(".")
                found |= {inside, *(f"{inside}.{alias.name}".removeprefix(".") for alias in node.names)}
        return found

    def has(self, module: str, name: str) -> bool:
        """Whether a module defines a function, a class, or the method of a class (CLASS.METHOD)."""
        body: Iterable[ast.stmt] = self.parsed(module).body
        for part in name.split("."):
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            # functions of routes are made by a function around them
            found = [node for one in body for node in ast.walk(one) if isinstance(node, kinds) and node.name == part]
            if not found:
                return False
            body = found[0].body
        return True


@dataclass(frozen=True)
class Walk:
    name: str
    target: int
    before: int
    modules: tuple[str, ...]
    traced: bool
    wrong: tuple[str, ...] = field(default=())
    """Declared steps that are not there, or that nothing on the walk leads to."""


def sizes(tree: Tree) -> dict[str, float]:
    lines = imports = 0
    for path in tree.modules:
        text = path.read_text("utf-8")
        lines += len(text.splitlines())
        imports += sum(
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Import | ast.ImportFrom)
        )
    return {
        "modules": len(tree.modules),
        "lines": lines,
        "import_lines_percent": round(100 * imports / lines, 1) if lines else 0.0,
        "exported_names": exported(tree),
    }


def exported(tree: Tree) -> int:
    stub = ast.parse((tree.package / "__init__.pyi").read_text("utf-8"))
    return sum(len(node.names) for node in stub.body if isinstance(node, ast.ImportFrom) and node.level)


def without_known(modules: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(module for module in modules if module.partition(".")[0] not in NO_WALK))


def traced(tree: Tree, words: list[str]) -> tuple[str, ...]:
    environment = {**os.environ, "PYTHONPATH": str(tree.root / "src"), "NO_COLOR": "1"}
    command = [sys.executable, "-c", TRACER, *words]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=tree.root)  # noqa: S603
    if answer.returncode:
        raise SystemExit(f"count_structure: {' '.join(words)}: {answer.stderr.strip().splitlines()[-1]}")
    return without_known(answer.stdout.split())


def wrong_steps(tree: Tree, declared: dict[str, Any]) -> Iterator[str]:
    steps = [step.partition(":") for step in declared["steps"]]
    there = [module for module, _, _ in steps if tree.path_of(module).is_file()]
    imported = {module: tree.imports(module) for module in there}
    for module, _, name in steps:
        if module not in there:
            yield f"{module}: no such module"
        elif name and not tree.has(module, name):
            yield f"{module}: no {name}"
        elif module not in declared.get("begins", {}) and not any(
            module in names for other, names in imported.items() if other != module
        ):
            yield f"{module}: no other module of the walk imports it"


def walks(tree: Tree, declared: dict[str, Any]) -> list[Walk]:
    found = []
    for name, one in declared["walks"].items():
        if "traced" in one:
            found.append(Walk(name, one["target"], one["before"], traced(tree, one["traced"]), traced=True))
            continue
        modules = without_known(step.partition(":")[0] for step in one["steps"])
        found.append(Walk(name, one["target"], one["before"], modules, False, tuple(wrong_steps(tree, one))))
    return found


def wrong_places(tree: Tree, places: Iterable[str]) -> Iterator[str]:
    """Places to change that are not there, or do not have the mark."""
    for place in places:
        what, _, rest = place.partition(" ")
        file, _, mark = rest.partition(": ")
        if what == "new":
            if not (tree.package / file).parent.is_dir():
                yield f"{file}: no such folder"
        elif not (tree.package / file).is_file():
            yield f"{file}: no such file"
        elif mark not in (tree.package / file).read_text("utf-8"):
            yield f"{file}: no '{mark}'"


def counted(tree: Tree, declared: dict[str, Any]) -> dict[str, Any]:
    """Return all counts. A tree in which some declared step or place is missing is another one than was declared: what
    is not traced is then as the review counted it."""
    rows = walks(tree, declared)
    missing = {name: list(wrong_places(tree, kind["places"])) for name, kind in declared["extensions"].items()}
    is_other = any(walk.wrong for walk in rows) or any(missing.values())
    return {
        **sizes(tree),
        "walks": {
            walk.name: {
                "modules": walk.before if is_other and not walk.traced else len(walk.modules),
                "target": walk.target,
                "how": "traced" if walk.traced else BY_HAND if is_other else "declared",
                "visited": list(walk.modules),
                "wrong": list(walk.wrong),
            }
            for walk in rows
        },
        "extensions": {
            name: {
                "places": kind["before"] if is_other else len(kind["places"]),
                "how": BY_HAND if is_other else "declared",
                "wrong": missing[name],
            }
            for name, kind in declared["extensions"].items()
        },
    }


def revision(name: str, folder: Path) -> Tree:
    archive = subprocess.run(["git", "archive", name, "src"], capture_output=True, check=False, cwd=HERE.parent)  # noqa: S603, S607
    if archive.returncode:
        raise SystemExit(f"count_structure: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as packed:
        packed.extractall(folder, filter="data")
    return Tree(folder)


def _words(name: str) -> str:
    return name.replace("_", " ")


def table(found: dict[str, Any], declared: dict[str, Any]) -> str:
    """Return the Markdown table of docs/design.md. Sizes are rounded: they change with every commit."""
    before, targets = declared["before"], declared["targets"]
    rows = [
        ("modules", round(before["modules"], -1), round(found["modules"], -1), targets["modules"]),
        ("thousand lines", round(before["lines"] / 1000), round(found["lines"] / 1000), ""),
        ("% of lines that import", round(before["import_lines_percent"]), round(found["import_lines_percent"]), ""),
        ("exported names", before["exported_names"], found["exported_names"], targets["exported_names"]),
    ]
    for name, walk in found["walks"].items():
        now = f"{walk['modules']} ({walk['how']})"
        rows.append((f"modules on the walk: {_words(name)}", declared["walks"][name]["before"], now, walk["target"]))
    for name, kind in found["extensions"].items():
        now, target = f"{kind['places']} ({kind['how']})", targets["extension_places"]
        rows.append((f"places for a new {_words(name)}", declared["extensions"][name]["before"], now, target))
    lines = ["| counted | before | now | target |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--at", metavar="REV", help="a revision of git; default: the files as they are")
    options = parser.parse_args()
    declared = tomllib.loads(DECLARED.read_text("utf-8"))
    with tempfile.TemporaryDirectory(prefix="penstock-structure-") as folder:
        tree = Tree(HERE.parent) if options.at is None else revision(options.at, Path(folder))
        found = counted(tree, declared)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(table(found, declared))
    if options.at is None:
        for kind in ("walks", "extensions"):
            for name, one in found[kind].items():
                for wrong in one["wrong"]:
                    print(f"{name}: {wrong}", file=sys.stderr)


if __name__ == "__main__":
    main()
