"""Times that say no zone: what the session's clock showed, and which moments those were. Arrow takes them for UTC."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone, tzinfo
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.nested_values import inner_fields

UTC = "UTC"


def zone_of(kind: pa.DataType) -> str | None:
    """Of a moment whose zone is not UTC."""
    zone: str | None = kind.tz if pa.types.is_timestamp(kind) else None
    return None if zone == UTC else zone


def has_zone(kind: pa.DataType) -> bool:
    """Itself such a moment, or with one inside."""
    return zone_of(kind) is not None or (pa.types.is_nested(kind) and _has_zone_inside(kind))


@cache
def _has_zone_inside(kind: pa.DataType) -> bool:
    return any(has_zone(inner.type) for _, inner in inner_fields(kind))


def with_zone(value: Any, kind: pa.DataType) -> Any:
    """The same, with a zone for every `datetime` in it that has none and is to be a moment. What is of another shape
    than its type is left to Arrow, which refuses it; so are numbers of numpy, which Arrow hands out in UTC."""
    if value is None or not has_zone(kind):
        return value
    if (zone := zone_of(kind)) is not None:
        is_local = isinstance(value, datetime) and value.tzinfo is None and value == value  # noqa: PLR0124 - no NaT
        return moment_of(value, zone) if is_local else value
    if pa.types.is_struct(kind):
        if not isinstance(value, Mapping):
            return value
        types = {field.name: field.type for field in kind}
        return {name: with_zone(part, types[name]) if name in types else part for name, part in value.items()}
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(with_zone(key, kind.key_type), with_zone(item, kind.item_type)) for key, item in pairs]
    is_array = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype.kind == "O")
    return [with_zone(item, kind.value_type) for item in value] if is_array else value


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
