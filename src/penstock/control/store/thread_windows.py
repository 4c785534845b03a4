"""What all threads of a pipeline did in one window, as one compressed value: they are far more than anything else that
is measured, and nobody asks for them by value."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.control.core.incoming import PartReading

FAST = 1
"""Of zlib's levels: ten times smaller already."""


def packed(reports: Iterable[Iterable[PartReading]]) -> bytes | None:
    """The means of all reports of a window; None where they say nothing of threads."""
    sums: dict[tuple[str, str, int], dict[str, list[float]]] = {}
    for parts in reports:
        for part in parts:
            if part.operator is not None and part.slot is not None:
                values = sums.setdefault((part.operator, part.slot.node, part.slot.number), {})
                for metric, value in part.values.items():
                    values.setdefault(metric, []).append(value)
    if not sums:
        return None
    means = [
        [*where, {metric: sum(values) / len(values) for metric, values in metrics.items()}]
        for where, metrics in sums.items()
    ]
    return zlib.compress(json.dumps(means, separators=(",", ":")).encode(), FAST)


def unpacked(value: bytes) -> Iterator[tuple[str, dict[str, float]]]:
    """OPERATOR/NODE/SLOT and what was measured there."""
    rows: list[Any] = json.loads(zlib.decompress(value))
    for operator, node, slot, metrics in rows:
        yield f"{operator}/{node}/{slot}", metrics
