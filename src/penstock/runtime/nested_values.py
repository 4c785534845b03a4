"""What does not fit its type though Arrow takes it, in columns: a null where a field inside forbids it, a number that
is infinite only where it has 32 bits, and floats and times that are to be whole numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


# Nested types of Arrow and their values: the inside of structs, arrays and maps.


def inner_fields(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """What a type is made of, with the names Spark has for that."""
    if pa.types.is_struct(kind):
        return [(field.name, field) for field in kind]
    if pa.types.is_map(kind):
        return [("key", kind.key_field), ("value", kind.item_field)]
    return [("element", kind.value_field)] if pa.types.is_nested(kind) and hasattr(kind, "value_field") else []


def inner_values(values: pa.Array) -> list[pa.Array]:
    """For every one of `inner_fields` what `values` hold there; of a null array or map nothing, of a null struct a
    null."""
    kind = values.type
    if pa.types.is_struct(kind):
        return values.flatten()  # type: ignore[no-any-return] # Arrow says nothing about types
    if pa.types.is_map(kind):
        return _as_lists(values).flatten().flatten()  # type: ignore[no-any-return]
    return [values.flatten()] if inner_fields(kind) else []


def with_inner_values(values: pa.Array, inner: Sequence[pa.Array]) -> pa.Array:
    """The same structs, arrays (as lists) or maps with other values inside, as many as `inner_values` has."""
    kind = values.type
    nulls = values.is_null()
    if pa.types.is_struct(kind):
        fields = [field.with_type(part.type) for field, part in zip(kind, inner, strict=True)]
        return pa.StructArray.from_arrays(inner, fields=fields, mask=nulls)
    large = pa.types.is_large_list(kind)
    lengths = pc.list_value_length(_as_lists(values) if pa.types.is_map(kind) else values)
    sizes = pc.fill_null(lengths, 0).to_numpy()
    ends = np.concatenate([[0], np.cumsum(sizes)])
    offsets = pa.array(ends, pa.int64() if large else pa.int32(), mask=np.append(nulls, False))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(offsets, *inner)
    return (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, *inner)


def _as_lists(maps: pa.Array) -> pa.Array:
    """Of pairs: Arrow counts those, and a slice of maps has the keys of all."""
    return maps.cast(pa.list_(pa.struct([maps.type.key_field, maps.type.item_field])))


def with_innermost(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The same, with what `change` makes of every type in it that is not made of others."""

    def changed(field: pa.Field) -> pa.Field:
        return field.with_type(with_innermost(field.type, change))

    if pa.types.is_struct(kind):
        return pa.struct([changed(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(changed(kind.key_field), changed(kind.item_field), kind.keys_sorted)
    if pa.types.is_list(kind):
        return pa.list_(changed(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(changed(kind.value_field))
    return change(kind)


def in_zone(schema: pa.Schema, zone: str) -> pa.Schema:
    """The same with every moment in `zone`: the moments stay, the clock that shows them is another."""

    def moved(kind: pa.DataType) -> pa.DataType:
        is_moment = pa.types.is_timestamp(kind) and kind.tz is not None
        return pa.timestamp(kind.unit, zone) if is_moment else kind

    fields = [field.with_type(with_innermost(field.type, moved)) for field in schema]
    return pa.schema(fields, schema.metadata)


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


# Reject fields that no sample had when the schema was found out: their values would be dropped silently.


UNSEEN = "no sample had it when the schema was found out; give schema='NAME TYPE, ...'"


def refuse_unseen_fields(values: Iterable[Any], field: pa.Field) -> None:
    """Raises at the first value in a field that no struct inside of `field` has."""
    if _has_structs(field.type):
        for value in values:
            _refuse_unseen(value, field.type, field.name)


@cache
def _has_structs(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or any(_has_structs(inner.type) for _, inner in inner_fields(kind))


def _refuse_unseen(value: Any, kind: pa.DataType, path: str) -> None:
    if value is None:
        return
    fields = inner_fields(kind)
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        names = {name for name, _ in fields}
        for name, part in value.items():
            if name not in names and part is not None:
                raise NestedMisfitError(f"{path}.{name}", UNSEEN)
    for name, inner in fields:
        if _has_structs(inner.type):
            for part in _parts(value, name, kind):
                _refuse_unseen(part, inner.type, f"{path}.{name}")


def _parts(value: Any, name: str, kind: pa.DataType) -> Iterable[Any]:
    """The values of one inner field; none of what is of another shape, which does not fit anyway."""
    if pa.types.is_struct(kind):
        return [value.get(name)] if isinstance(value, Mapping) else []
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [pair_value if name == "value" else key for key, pair_value in pairs]
    return value if isinstance(value, Iterable) else []
