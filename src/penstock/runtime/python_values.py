"""Values of Python's that Arrow takes, but for others than they are: it cuts what follows the point of a number that is
to be whole, counts one that is to be a time, and takes a text for an array of its characters."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.nested_values import (
    INEXACT_FROM,
    NestedMisfitError,
    inexact,
    inner_fields,
    inner_values,
    with_inner_values,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


# Times, read as they are meant. A time without a zone is on the session's clock, not in UTC as Arrow reads it; a number
# is not a time, though Arrow counts it as microseconds or days.


UTC = "UTC"
_OF_NUMPY: dict[type | None, str] = {datetime: "datetime64[us]", date: "datetime64[D]", timedelta: "timedelta64[us]"}


def zone_of(kind: pa.DataType) -> str | None:
    """Of a moment whose zone is not UTC."""
    zone: str | None = kind.tz if pa.types.is_timestamp(kind) else None
    return None if zone == UTC else zone


def time_type(kind: pa.DataType) -> type | None:
    """What a value of `kind` is in Python, if it is a time."""
    if pa.types.is_timestamp(kind):
        return datetime
    if pa.types.is_date(kind):
        return date
    if pa.types.is_duration(kind):
        return timedelta
    return time if pa.types.is_time(kind) else None


def types_taken_as_they_are(kind: pa.DataType) -> frozenset[type]:
    """Of Python's, for a time, if they say their zone where it has one. A date takes a `datetime` as well: the day it
    shows."""
    wanted = time_type(kind)
    return frozenset({type(None), *([date, datetime] if wanted is date else [wanted] if wanted is not None else [])})


def time_value(value: Any, kind: pa.DataType) -> Any:
    """A value of Python's or numpy's that is to be a time, with a zone where it has none and is to be a moment. Raises
    at what is no such time."""
    wanted = time_type(kind)
    if isinstance(value, np.datetime64 | np.timedelta64) and wanted in _OF_NUMPY:
        value = value.astype(_OF_NUMPY[wanted]).item()
    if wanted is None or not isinstance(value, wanted):
        raise TypeError(f"expected a value of {kind}, got a {type(value).__name__}")
    zone = zone_of(kind)
    return moment_of(value, zone) if zone is not None and isinstance(value, datetime) and not value.tzinfo else value


def times_of_numpy(values: NDArray[Any], kind: pa.DataType) -> NDArray[Any]:
    """The same of an array of `datetime64`. Arrow takes its numbers for `kind`'s unit and UTC, whatever they are."""
    values = values.astype(f"datetime64[{kind.unit}]")
    zone = zone_of(kind)
    return values if zone is None else moments_of(pa.array(values), zone).to_numpy(zero_copy_only=False)


def moments_on_clock(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same, with every time in it that has no zone and is to be a moment read on the session's clock."""
    given = values.type
    if not _is_to_be_read(given, kind):
        return values
    if (zone := zone_of(kind)) is not None:
        return moments_of(values, zone)
    wanted = dict(inner_fields(kind))
    inner = [
        moments_on_clock(part, wanted[name].type) if name in wanted else part
        for (name, _), part in zip(inner_fields(given), inner_values(values), strict=True)
    ]
    return with_inner_values(values, inner)


@cache
def _is_to_be_read(given: pa.DataType, kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(given):
        return given.tz is None and zone_of(kind) is not None
    wanted = dict(inner_fields(kind))
    return any(name in wanted and _is_to_be_read(inner.type, wanted[name].type) for name, inner in inner_fields(given))


def moments_of(shown: pa.Array, zone: str) -> pa.Array:
    """When a clock of `zone` showed these, as `moment_of` has it."""
    offset = clock_of(zone).utcoffset(None)
    if offset is None:
        return pc.assume_timezone(shown, zone, ambiguous="latest", nonexistent="latest")
    in_utc = pc.subtract(shown, pa.scalar(offset, pa.duration(shown.type.unit)))
    return in_utc.cast(pa.timestamp(shown.type.unit, zone))


def shown_on_clock(moments: pa.Array) -> pa.Array:
    """What the clock of their zone showed at these; of arrays of moments, in each."""
    kind = moments.type
    if not pa.types.is_timestamp(kind):
        return with_inner_values(moments, [shown_on_clock(part) for part in inner_values(moments)])
    offset = clock_of(kind.tz).utcoffset(None)
    if offset is None:
        return pc.local_timestamp(moments)
    return pc.add(moments.cast(pa.timestamp(kind.unit)), pa.scalar(offset, pa.duration(kind.unit)))


def moment_of(shown: datetime, zone: str) -> datetime:
    """When a clock of `zone` showed this. Of an hour that comes twice it is the second, and one that is left out ends
    when it begins: so it is in Spark's own Python.

    In a fold the offset before the change (`fold=0`) is the larger, in a gap the smaller of the two.
    """
    if type(shown) is not datetime:  # one of pandas has nanoseconds, and another `replace`
        shown = datetime.fromisoformat(shown.isoformat(timespec="microseconds"))
    clock = clock_of(zone)
    before, after = shown.replace(tzinfo=clock, fold=0), shown.replace(tzinfo=clock, fold=1)
    offset_before, offset_after = before.utcoffset(), after.utcoffset()
    if offset_before is None or offset_after is None or offset_before >= offset_after:
        return after
    local = pa.scalar(shown, pa.timestamp("us"))
    behind_gap: datetime = pc.assume_timezone(local, zone, ambiguous="latest", nonexistent="latest").as_py()
    return behind_gap


@cache
def clock_of(zone: str) -> tzinfo:
    """Not Arrow's own: older ones are of pytz, and those show the local time of long ago when `datetime.replace` puts
    them in. But Arrow reads offsets, such as `+02:00`, too."""
    offset = pa.lib.string_to_tzinfo(zone).utcoffset(None)
    return ZoneInfo(zone) if offset is None else timezone(offset)


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
