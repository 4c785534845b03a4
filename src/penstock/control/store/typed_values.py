"""Values of the core from the plain documents the store keeps of them, checked against their annotations."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from penstock.cluster.topology import Slot
from penstock.control.store.raw_rows import shown


class WrongValueError(ValueError):
    """A value that is not of its type: the field, and why."""


@cache
def field_types(kind: type) -> dict[str, Any]:
    """Annotations of a dataclass, resolved. Modules of the core import some names for type checking only."""
    return get_type_hints(kind, localns={"Mapping": Mapping, "Slot": Slot})


def to_typed(kind: Any, value: Any, path: str = "") -> Any:  # noqa: PLR0911 - one return for every kind of type
    """Return `value` as a `kind`, or raise an error that names the field. Whole numbers are never negative."""
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in {Union, types.UnionType}:
        kinds = get_args(kind)
        if value is None and type(None) in kinds:
            return None
        (kind,) = (member for member in kinds if member is not type(None))
        return to_typed(kind, value, path)
    if origin is Mapping:
        of = get_args(kind)[1]
        return {key: to_typed(of, item, f"{path}.{key}") for key, item in _is(dict, value, path, "a mapping").items()}
    if origin is tuple:
        of = get_args(kind)[0]
        items = _is(list, value, path, "a list")
        return tuple(to_typed(of, item, f"{path}[{position}]") for position, item in enumerate(items))
    if is_dataclass(kind):
        return to_dataclass(kind, value, path)  # type: ignore[arg-type] # never an instance
    return _plain(kind, value, path)


def to_dataclass(kind: type, document: Any, path: str = "") -> Any:
    return kind(**dataclass_arguments(kind, document, path))


def dataclass_arguments(
    kind: type, document: Any, path: str = "", leave_out: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Arguments that make a `kind`; a field that has a default may be missing, as in stores of earlier versions."""
    given = dict(_is(dict, document, path, "a mapping"))
    prefix = f"{path}." if path else ""
    arguments = {}
    for field in fields(kind):
        if field.name in leave_out:
            continue
        if field.name in given:
            arguments[field.name] = to_typed(field_types(kind)[field.name], given.pop(field.name), prefix + field.name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise WrongValueError(f"{prefix}{field.name}: missing")
    if given:
        raise WrongValueError(f"{prefix}{next(iter(given))}: unknown field")
    return arguments


def _plain(kind: Any, value: Any, path: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        try:
            return kind(value)
        except ValueError:
            raise WrongValueError(f"{path}: expected one of {', '.join(kind)}, found {shown(value)}") from None
    if kind is bool:
        return _is(bool, value, path, "yes or no")
    if kind is str:
        return _is(str, value, path, "text")
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        raise WrongValueError(f"{path}: expected a {'whole ' if kind is int else ''}number, found {shown(value)}")
    if kind is int and value < 0:
        raise WrongValueError(f"{path}: expected at least 0, found {shown(value)}")
    if isinstance(value, float) and math.isnan(value):
        raise WrongValueError(f"{path}: nan is not a number")
    return value


def _is(kind: type, value: Any, path: str, expected: str) -> Any:
    if not isinstance(value, kind):
        raise WrongValueError(f"{path + ': ' if path else ''}expected {expected}, found {shown(value)}")
    return value
