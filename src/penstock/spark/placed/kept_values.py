"""Values of groups that JSON has no word for, as they stand in files of state."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any


def written_value(value: Any) -> Any:
    """What JSON has no word for."""
    if isinstance(value, bytes):
        return {"penstock bytes": value.hex()}
    if isinstance(value, datetime.datetime):
        return {"penstock moment": value.isoformat()}
    if isinstance(value, datetime.date):
        return {"penstock date": value.isoformat()}
    if isinstance(value, Decimal):
        return {"penstock decimal": str(value)}
    raise TypeError(f"a value of type {type(value).__name__} cannot be kept")


def read_value(kept: dict[str, Any]) -> Any:
    if "penstock bytes" in kept:
        return bytes.fromhex(kept["penstock bytes"])
    if "penstock moment" in kept:
        return datetime.datetime.fromisoformat(kept["penstock moment"])
    if "penstock date" in kept:
        return datetime.date.fromisoformat(kept["penstock date"])
    if "penstock decimal" in kept:
        return Decimal(kept["penstock decimal"])
    return kept
