"""Readings of one window, as one compressed value for each owner: thousands of numbers every ten seconds are
written, thinned and forgotten as a few hundred rows.

    PIPELINE    the pipeline itself (subject ""), its operators, and the partitions it reads: TOPIC/PARTITION
    PIPELINE/   its threads: OPERATOR/NODE/SLOT
    /           all nodes, by name
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Readings = dict[str, dict[str, float]]
"""Values by subject and metric."""

NODES = "/"
FAST = 1
"""Level of zlib: already ten times smaller."""


def threads_of(pipeline: str) -> str:
    """The owner of what its threads do."""
    return f"{pipeline}/"


def is_of_threads(owner: str) -> bool:
    return owner.endswith("/") and owner != NODES


def packed(readings: Readings) -> bytes:
    return zlib.compress(json.dumps(readings, separators=(",", ":")).encode(), FAST)


def unpacked(value: bytes) -> Readings:
    readings: Readings = json.loads(zlib.decompress(value))
    return readings


class Means:
    """Running means of readings."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, tuple[float, int]]] = {}

    def add(self, subject: str, values: Iterable[tuple[str, float]]) -> None:
        sums = self._sums.setdefault(subject, {})
        for metric, value in values:
            total, count = sums.get(metric, (0.0, 0))
            sums[metric] = (total + value, count + 1)

    def readings(self) -> Readings:
        return {
            subject: {metric: total / count for metric, (total, count) in sums.items()}
            for subject, sums in self._sums.items()
        }


def merged(values: Iterable[bytes]) -> bytes:
    """The means of several windows as one."""
    means = Means()
    for value in values:
        for subject, metrics in unpacked(value).items():
            means.add(subject, metrics.items())
    return packed(means.readings())
