"""Types of Arrow, changed inside of structs, arrays and maps as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable


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
