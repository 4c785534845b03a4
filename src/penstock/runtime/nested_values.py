"""What does not fit its type though Arrow takes it, inside structs, arrays and maps above all: Arrow cuts what follows
the point of an object that is to be a whole number, and puts null where a field inside forbids it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

INEXACT_FROM = 2.0**53
"""From here on a float may stand for several whole numbers."""
UNSEEN = "no sample had it when the schema was found out; give schema='NAME TYPE, ...'"
_FRACTIONS = (float, Decimal, np.floating)


class NestedMisfitError(ValueError):
    """`field` is the path to the value, in Spark's words: `user.age`, `scores.element`, `counts.value`."""

    def __init__(self, field: str, line: str) -> None:
        super().__init__(line)
        self.field = field


def refuse_fractions(values: Iterable[Any], field: pa.Field) -> None:
    """Raises at the first number with a fraction where `field` has whole ones inside."""
    if _has_whole_numbers(field.type):
        for value in values:
            _refuse_loss(value, field.type, field.name, math.inf)


def refuse_losses(values: Iterable[Any], field: pa.Field) -> None:
    """The same of objects in a frame, and of the field itself. pandas has made floats of whole numbers with a null
    among them, and what was 2^53 + 1 is 2^53 then: such a float does not fit either."""
    if pa.types.is_integer(field.type) or _has_whole_numbers(field.type):
        for value in values:
            _refuse_loss(value, field.type, field.name, INEXACT_FROM)


def refuse_unseen_fields(values: Iterable[Any], field: pa.Field) -> None:
    """Raises at the first value in a field that no struct inside of `field` has."""
    if _has_structs(field.type):
        for value in values:
            _refuse_unseen(value, field.type, field.name)


def refuse_inexact(values: NDArray[np.floating[Any]]) -> None:
    """Raises at the first float that is to be a whole number and may stand for several."""
    inexact = values[np.abs(values) >= INEXACT_FROM]
    if len(inexact):
        raise ValueError(_inexact(inexact[0]))


def _inexact(value: float) -> str:
    return f"{value:.0f} as a float may stand for several whole numbers (from 2^53 on); send Int64"


def refuse_forbidden_nulls(values: pa.Array, field: pa.Field) -> None:
    """Raises at a null inside of `values` that its type forbids."""
    if _forbids_nulls(field.type):
        _refuse_null(values, field.type, field.name)


def inner_fields(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """What a type is made of, with the names Spark has for that."""
    if pa.types.is_struct(kind):
        return [(field.name, field) for field in kind]
    if pa.types.is_map(kind):
        return [("key", kind.key_field), ("value", kind.item_field)]
    return [("element", kind.value_field)] if pa.types.is_nested(kind) and hasattr(kind, "value_field") else []


@cache
def _has_whole_numbers(kind: pa.DataType) -> bool:
    return any(pa.types.is_integer(inner.type) or _has_whole_numbers(inner.type) for _, inner in inner_fields(kind))


@cache
def _has_structs(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or any(_has_structs(inner.type) for _, inner in inner_fields(kind))


@cache
def _forbids_nulls(kind: pa.DataType) -> bool:
    return any(not inner.nullable or _forbids_nulls(inner.type) for _, inner in _fields_with_nulls(kind))


def _fields_with_nulls(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """Keys of a map are never null: Arrow sees to that."""
    return inner_fields(kind)[1:] if pa.types.is_map(kind) else inner_fields(kind)


def _refuse_loss(value: Any, kind: pa.DataType, path: str, inexact_from: float) -> None:
    if value is None:
        return
    if pa.types.is_integer(kind):
        if isinstance(value, _FRACTIONS) and value == value and value % 1:  # noqa: PLR0124 - NaN is left to Arrow
            raise NestedMisfitError(path, f"{value} is no whole number")
        if isinstance(value, float | np.floating) and abs(float(value)) >= inexact_from:
            raise NestedMisfitError(path, _inexact(float(value)))
        return
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        return
    for name, inner in inner_fields(kind):
        if pa.types.is_integer(inner.type) or _has_whole_numbers(inner.type):
            for part in _parts(value, name, kind):
                _refuse_loss(part, inner.type, f"{path}.{name}", inexact_from)


def _refuse_unseen(value: Any, kind: pa.DataType, path: str) -> None:
    if value is None:
        return
    inner_ones = inner_fields(kind)
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        names = {name for name, _ in inner_ones}
        for name, part in value.items():
            if name not in names and part is not None:
                raise NestedMisfitError(f"{path}.{name}", UNSEEN)
    for name, inner in inner_ones:
        if _has_structs(inner.type):
            for part in _parts(value, name, kind):
                _refuse_unseen(part, inner.type, f"{path}.{name}")


def _parts(value: Any, name: str, kind: pa.DataType) -> Iterable[Any]:
    """The values of one inner field; none of what is of another shape, which Arrow refuses itself."""
    if pa.types.is_struct(kind):
        return [value.get(name)] if isinstance(value, Mapping) else []
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [pair_value if name == "value" else key for key, pair_value in pairs]
    return value if isinstance(value, Iterable) else []


def _refuse_null(values: pa.Array, kind: pa.DataType, path: str) -> None:
    """What is inside a null is no value at all."""
    present = values.drop_null() if values.null_count else values
    for name, inner in _fields_with_nulls(kind):
        if pa.types.is_struct(kind):
            part = pc.struct_field(present, name)
        elif pa.types.is_map(kind):
            part = pc.list_flatten(present.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))).field(1)
        else:
            part = pc.list_flatten(present)
        if not inner.nullable and part.null_count:
            raise NestedMisfitError(f"{path}.{name}", "null where the schema forbids it")
        if _forbids_nulls(inner.type):
            _refuse_null(part, inner.type, f"{path}.{name}")
