"""What does not fit its type though Arrow takes it, in columns: a null where a field inside forbids it, a number that
is infinite only where it has 32 bits, and floats and times that are to be whole numbers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.inner_types import inner_fields, inner_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

INEXACT_FROM = 2.0**53
"""From here on a float may stand for several whole numbers."""


class NestedMisfitError(ValueError):
    """`field` is the path to the value, in Spark's words: `user.age`, `scores.element`, `counts.value`."""

    def __init__(self, field: str, line: str) -> None:
        super().__init__(line)
        self.field = field


def refuse_inexact(values: NDArray[np.floating[Any]]) -> None:
    """Raises at the first float that is to be a whole number and may stand for several."""
    unclear = values[np.abs(values) >= INEXACT_FROM]
    if len(unclear):
        raise ValueError(inexact(unclear[0]))


def inexact(value: float) -> str:
    return f"{value:.0f} as a float may stand for several whole numbers (from 2^53 on); send Int64"


def refuse_other_meanings(given: pa.DataType, field: pa.Field) -> None:
    """Raises where a column of type `given` has times that are to be whole numbers in `field`, or the other way round:
    Arrow would count microseconds or days."""
    path = _other_meaning(given, field.type, field.name)
    if path is not None:
        raise NestedMisfitError(path, f"{given} is not {field.type}: a time is no number")


@cache
def _other_meaning(given: pa.DataType, kind: pa.DataType, path: str) -> str | None:
    if pa.types.is_temporal(given) and pa.types.is_integer(kind):
        return path
    if pa.types.is_integer(given) and pa.types.is_temporal(kind):
        return path
    wanted = dict(inner_fields(kind))
    parts = (
        _other_meaning(inner.type, wanted[name].type, f"{path}.{name}")
        for name, inner in inner_fields(given)
        if name in wanted
    )
    return next((part for part in parts if part is not None), None)


def are_infinite(values: pa.Array) -> bool:
    """Whether floats of 32 bits among `values` are; where what they were made of is not, it was too large."""
    return _has_floats(values.type) and _infinite(values) > 0


def refuse_new_infinities(given: pa.Array, made: pa.Array) -> None:
    """Raises where floats of 32 bits in `made` are infinite that were not when `given`."""
    if are_infinite(made) and _infinite(given) < _infinite(made):
        raise ValueError("a number is too large for a float of 32 bits")


@cache
def _has_floats(kind: pa.DataType) -> bool:
    return pa.types.is_float32(kind) or any(_has_floats(inner.type) for _, inner in inner_fields(kind))


def _infinite(values: pa.Array) -> int:
    if pa.types.is_floating(values.type):
        return pc.sum(pc.is_inf(values)).as_py() or 0
    return sum(map(_infinite, inner_values(values)))


def refuse_forbidden_nulls(values: pa.Array, field: pa.Field) -> None:
    """Raises at a null inside of `values` that its type forbids."""
    if _forbids_nulls(field.type):
        _refuse_null(values, field.type, field.name)


@cache
def _forbids_nulls(kind: pa.DataType) -> bool:
    """Keys of a map are never null: Arrow sees to that."""
    fields = inner_fields(kind)[1:] if pa.types.is_map(kind) else inner_fields(kind)
    return any(not inner.nullable or _forbids_nulls(inner.type) for _, inner in fields)


def _refuse_null(values: pa.Array, kind: pa.DataType, path: str) -> None:
    """What is inside a null is no value at all."""
    present = values.drop_null() if values.null_count else values
    for (name, inner), part in zip(inner_fields(kind), inner_values(present), strict=True):
        if not inner.nullable and part.null_count:
            raise NestedMisfitError(f"{path}.{name}", "null where the schema forbids it")
        if _forbids_nulls(inner.type):
            _refuse_null(part, inner.type, f"{path}.{name}")
