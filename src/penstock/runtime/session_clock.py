"""Times as Arrow takes them for what they are. One that says no zone is what the session's clock showed, where Arrow
takes it for UTC; and a number is no time, where Arrow counts it as microseconds or days."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone, tzinfo
from functools import cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.inner_types import inner_fields, inner_values, with_inner_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
