"""Values from outside as every store can keep them: finite numbers, integers of 64 bits, text that is Unicode."""

from __future__ import annotations

from math import isfinite
from typing import Any

LARGEST_INTEGER = 2**63 - 1
LONGEST_TEXT = 4000


def plain_text(text: str) -> str:
    cut = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()


def plain_value(value: Any) -> Any:
    """Turn numbers that are not finite or too large into None, and values of other types into text."""
    match value:
        case None | bool():
            return value
        case int():
            return value if abs(value) <= LARGEST_INTEGER else None
        case float():
            return value if isfinite(value) else None
        case list() | tuple():
            return [plain_value(part) for part in value]
        case dict():
            return {plain_text(str(name)): plain_value(part) for name, part in value.items()}
    return plain_text(str(value))
