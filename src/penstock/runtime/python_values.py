"""Values of Python's that Arrow takes, but for others than they are: it cuts what follows the point of a number that is
to be whole, counts one that is to be a time, and takes a text for an array of its characters."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from decimal import Decimal
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.runtime.inner_types import inner_fields
from penstock.runtime.nested_values import INEXACT_FROM, NestedMisfitError, inexact
from penstock.runtime.session_clock import time_type, time_value, times_of_numpy, types_taken_as_they_are, zone_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NONE = type(None)
_WHOLE_TYPES = frozenset({int, _NONE})
_DICTS = frozenset({dict, _NONE})
_ARRAYS = frozenset({list, tuple, np.ndarray, _NONE})
_WHOLE_DTYPES = frozenset("iu")
_WHOLE = (int, np.integer, np.bool_)
_FRACTIONS = (float, Decimal, np.floating)
_TEXTS = (str, bytes, bytearray, memoryview)
_FLOAT_END = 3.4028235677973366e38
"""From here on what is rounded to 32 bits is infinite."""
_MISSING = frozenset({"NaTType", "NAType"})
"""Types of pandas, which need not be there: `NaT` and `NA`."""


def are_plain(values: Collection[Any], kind: pa.DataType) -> bool:
    """Whether the types of `values` alone say that Arrow makes `kind` of them as they are, or refuses them. Nothing is
    done per value that Python does not do in C."""
    types = _plain_types(kind)
    if types is not None:
        return types.issuperset(map(type, values)) and (zone_of(kind) is None or _say_their_zone(values))
    parts = _inner_parts(values, kind)
    return parts is not None and all(
        not may_mislead(inner.type) or are_plain(list(part), inner.type)
        for (_, inner), part in zip(inner_fields(kind), parts, strict=True)
    )


def _say_their_zone(times: Iterable[Any]) -> bool:
    return None not in map(attrgetter("tzinfo"), filter(None, times))


def _inner_parts(values: Collection[Any], kind: pa.DataType) -> Sequence[Iterable[Any]] | None:
    """What is to be looked at for every one of `inner_fields`; None where some of `values` are of another shape."""
    if not inner_fields(kind):
        return []
    is_of_dicts = pa.types.is_struct(kind) or pa.types.is_map(kind)
    types = set(map(type, values))
    if not types <= (_DICTS if is_of_dicts else _ARRAYS):
        return None
    if is_of_dicts:
        return _parts_of_dicts([value for value in values if value is not None], kind)
    if np.ndarray in types and may_mislead(kind.value_type):
        dtypes = {value.dtype.kind for value in values if type(value) is np.ndarray}
        if not (pa.types.is_integer(kind.value_type) and dtypes <= _WHOLE_DTYPES):
            return None
        values = [value for value in values if type(value) is not np.ndarray]
    return [chain.from_iterable(value for value in values if value is not None)]


def _parts_of_dicts(values: list[dict[Any, Any]], kind: pa.DataType) -> Sequence[Iterable[Any]] | None:
    if pa.types.is_map(kind):
        return [chain.from_iterable(values), chain.from_iterable(value.values() for value in values)]
    names = frozenset(field.name for field in kind)
    has_strangers = bool(names) and True in map(names.isdisjoint, values)
    return None if has_strangers else [[value.get(field.name) for value in values] for field in kind]


@cache
def _plain_types(kind: pa.DataType) -> frozenset[type] | None:
    """None: it is made of others, or Arrow refuses what does not fit."""
    if pa.types.is_integer(kind):
        return _WHOLE_TYPES
    return None if time_type(kind) is None else types_taken_as_they_are(kind)


@cache
def may_mislead(kind: pa.DataType) -> bool:
    return _plain_types(kind) is not None or bool(inner_fields(kind))


def fitted(value: Any, kind: pa.DataType, path: str, *, in_frame: bool) -> Any:
    """What Arrow makes `kind` of as it is; raises at what it would take for something else. `path` leads to it.

    `NaT` and `NA` are nulls, and in a frame NaN is, but for floats. pandas has made floats of whole numbers with a null
    among them, and what was 2^53 + 1 is 2^53 then: in a frame such a float does not fit.
    """
    if value is None or type(value).__name__ in _MISSING or _is_nat(value):
        return None
    if pa.types.is_floating(kind):
        return _within_float(value, path) if pa.types.is_float32(kind) else value
    if isinstance(value, float) and in_frame and math.isnan(value):
        return None
    if inner_fields(kind):
        return _fitted_inside(value, kind, path, in_frame)
    if pa.types.is_integer(kind):
        return _whole(value, path, INEXACT_FROM if in_frame else math.inf)
    return value if time_type(kind) is None else _time(value, kind, path)


def _is_nat(value: Any) -> bool:
    return isinstance(value, np.datetime64 | np.timedelta64) and bool(np.isnat(value))


def _whole(value: Any, path: str, inexact_from: float) -> Any:
    if isinstance(value, _WHOLE):
        return int(value)
    if not isinstance(value, _FRACTIONS):
        raise NestedMisfitError(path, f"expected a whole number, got a {type(value).__name__}")
    if math.isnan(value):
        return value  # which Arrow refuses
    if math.isinf(value) or value % 1:
        raise NestedMisfitError(path, f"{value} is no whole number")
    if not isinstance(value, Decimal) and abs(float(value)) >= inexact_from:
        raise NestedMisfitError(path, inexact(float(value)))
    return int(value)


def _time(value: Any, kind: pa.DataType, path: str) -> Any:
    try:
        return time_value(value, kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise NestedMisfitError(path, str(error)) from error


def _within_float(value: Any, path: str) -> Any:
    if isinstance(value, int | float | np.integer | np.floating) and _FLOAT_END <= abs(float(value)) < math.inf:
        raise NestedMisfitError(path, f"{value} is too large for a float of 32 bits")
    return value


def _fitted_inside(value: Any, kind: pa.DataType, path: str, in_frame: bool) -> Any:
    if pa.types.is_struct(kind):
        return _fitted_struct(value, kind, path, in_frame)
    if not pa.types.is_map(kind):
        return _fitted_array(value, kind.value_type, path, in_frame)
    pairs = value.items() if isinstance(value, Mapping) else value
    return [
        (
            fitted(key, kind.key_type, f"{path}.key", in_frame=in_frame),
            fitted(item, kind.item_type, f"{path}.value", in_frame=in_frame),
        )
        for key, item in pairs
    ]


def _fitted_struct(value: Any, kind: pa.DataType, path: str, in_frame: bool) -> Any:
    """A mapping, a tuple of all its parts, or Spark's Row: that has names, though Arrow would take it for a tuple."""
    names = [field.name for field in kind]
    if hasattr(value, "asDict"):
        value = value.asDict()
    elif isinstance(value, tuple) and len(value) == len(names):
        value = dict(zip(names, value, strict=True))
    if not isinstance(value, Mapping):
        return value  # which Arrow refuses
    if names and value.keys().isdisjoint(names):
        raise NestedMisfitError(path, f"the struct has none of the fields {', '.join(names)}")
    return {
        field.name: fitted(value.get(field.name), field.type, f"{path}.{field.name}", in_frame=in_frame)
        for field in kind
    }


def _fitted_array(value: Any, kind: pa.DataType, path: str, in_frame: bool) -> Any:
    """`kind`: of its elements."""
    if isinstance(value, _TEXTS):
        raise NestedMisfitError(path, f"expected an array, got a {type(value).__name__}")
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "iu" and pa.types.is_integer(kind):
            return value
        if value.dtype.kind == "M" and pa.types.is_timestamp(kind):
            return times_of_numpy(value, kind)
    if isinstance(value, Mapping) or not isinstance(value, Collection):
        return value  # which Arrow refuses
    return [fitted(item, kind, f"{path}.element", in_frame=in_frame) for item in value]
