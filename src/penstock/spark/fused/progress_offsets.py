"""Offsets as the progress of a query shows them."""

from __future__ import annotations

import json
from typing import Any

_NONE = frozenset({None, "", "null", "None"})
"""Where there is no offset, as before the first batch: Spark 4.0 writes it as Python does."""


def parsed_offset(text: str | None) -> Any:
    """What a source wrote as its offset; None where there is none."""
    return None if text in _NONE else json.loads(str(text))
