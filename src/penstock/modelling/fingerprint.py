"""A fingerprint of the code of an operator: the same for the same code, another where it was changed.

Code that a file names (`run: module:attribute`) is read, not imported: who plans what somebody sent must not run it.
What counts is the statement that makes the attribute and those of its module it refers to, without comments and layout.
Code given in Python is what Python made of it. Neither looks into other modules.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

from penstock.dataflow.logic import Logic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
        parts = list(_of_logic(given if isinstance(given, Logic) else Logic(given)))
    elif operator.aggregate is not None:
        parts = []
    else:
        return None
    return hashlib.sha256("\n".join([repr(declared), *parts]).encode()).hexdigest()[:LENGTH]


def _of_logic(code: Logic) -> Iterator[str]:
    yield f"{code.per} {code.schema}"
    seen: set[int] = set()
    for function in (code.function, code.open, code.close):
        yield from _of_value(function, seen)


def _of_value(value: object, seen: set[int]) -> Iterator[str]:
    """Of functions, and what they refer to within their module; other things by their text where that says what they
    are, else by their type."""
    if id(value) in seen:
        return
    if isinstance(value, functools.partial):
        yield from _of_value(value.func, seen)
        for argument in (*value.args, *value.keywords.values()):
            yield from _of_value(argument, seen)
    elif isinstance(value, FunctionType):
        seen.add(id(value))
        yield from _of_code(value.__code__)
        kept = [cell.cell_contents for cell in value.__closure__ or () if cell.cell_contents is not value]
        same_module = [
            used
            for name in _names(value.__code__)
            if getattr(used := value.__globals__.get(name), "__module__", None) == value.__module__
            or isinstance(used, int | float | str | bytes)
        ]
        for used in (*(value.__defaults__ or ()), *kept, *same_module):
            yield from _of_value(used, seen)
    elif isinstance(value, type):
        seen.add(id(value))
        yield value.__qualname__
        for name in sorted(vars(value)):
            if isinstance(member := vars(value)[name], FunctionType):
                yield from _of_value(member, seen)
    elif isinstance(value, int | float | str | bytes | bool | None):
        yield repr(value)
    else:
        seen.add(id(value))
        yield from _of_value(type(value), seen)


def _of_code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant)
        else:
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


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
