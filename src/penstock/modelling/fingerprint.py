"""A fingerprint of the code of an operator: the same for the same code, another where it was changed.

Code that a file names (`run: module:attribute`) is read, not imported: who plans what somebody sent must not run it.
What counts is the statement that makes the attribute and those of its module it refers to, without comments and layout.
Code given in Python is what Python made of it, and what it keeps (`reach`). Neither looks into other modules.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.dataflow.logic import Logic
from penstock.modelling.reach import text_of_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.dataflow.pipeline import Operator

LENGTH = 16
"""Hex digits that are kept."""


def fingerprint(operator: Operator, code: Logic | None = None, beside: Path | None = None) -> str | None:
    """Of the code an operator names or has, else of `code`; None where it cannot be seen. `beside`: where its modules
    may lie, after everywhere Python looks."""
    declared = (operator.per, operator.schema_, operator.aggregate and operator.aggregate.model_dump_json())
    given = operator.logic if operator.logic is not None else code
    if operator.logic is None and operator.run is not None:
        source = _of_file(operator.run, beside)
        if source is None:
            return None
        parts = [source]
    elif given is not None:
        parts = list(text_of_code(given if isinstance(given, Logic) else Logic(given)))
    elif operator.aggregate is not None:
        parts = []
    else:
        return None
    return hashlib.sha256("\n".join([repr(declared), *parts]).encode()).hexdigest()[:LENGTH]


def _of_file(address: str, beside: Path | None) -> str | None:
    module, _, attribute = address.partition(":")
    path = _file_of(module, [*sys.path, *([] if beside is None else [str(beside)])])
    if path is None:
        return None
    try:
        made_by = _statements(ast.parse(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, SyntaxError):
        return None
    wanted, reached = [attribute], dict[str, str]()
    while wanted:
        name = wanted.pop()
        if name in made_by and name not in reached:
            reached[name] = ast.dump(made_by[name])
            wanted += [node.id for node in ast.walk(made_by[name]) if isinstance(node, ast.Name)]
    return "\n".join(reached[name] for name in sorted(reached)) if attribute in reached else None


def _file_of(module: str, folders: Sequence[str]) -> Path | None:
    """The file of a module, found without importing it or the packages it is in."""
    places: Sequence[str] | None = folders
    spec = None
    for depth in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:depth])
        spec = PathFinder.find_spec(name, places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    origin = None if spec is None else spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _statements(tree: ast.Module) -> dict[str, ast.stmt]:
    """The last statement of a module that makes each of its names."""
    made_by: dict[str, ast.stmt] = {}
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                made_by[name] = statement
            case ast.Assign(targets=targets):
                made_by |= {target.id: statement for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                made_by[name] = statement
    return made_by
