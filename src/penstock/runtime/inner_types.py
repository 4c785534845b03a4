"""Types of Arrow made of others, and their values: what is inside of structs, arrays and maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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
