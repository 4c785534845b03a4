"""Fields that no sample had when a schema was found out: what is in them would be left out without a word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from penstock.runtime.inner_types import inner_fields
from penstock.runtime.nested_values import NestedMisfitError

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
