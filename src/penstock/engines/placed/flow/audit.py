"""Every delivery that should have been, looked for among those that were.

A source tuple takes every way from its source to a sink, and is delivered once on each: paths are numbers that say
which way. Where code makes several rows of one, or streams divide what their sender sends, which ways a tuple takes is
not known beforehand: there every tuple must have come to some end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap64

from penstock.dataflow.pipeline import Grouping, Kind
from penstock.runtime.batch import mixed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.dataflow.pipeline import Pipeline, Stream
    from penstock.runtime.account import IdBitmaps


@dataclass(frozen=True, slots=True)
class Ways:
    """By source: the ends of its tuples, each as (sink or aggregation, path); None: not known beforehand."""

    ends: Mapping[str, frozenset[tuple[str, int]]] | None


@dataclass(frozen=True, slots=True)
class Audited:
    emitted: int
    lost: int
    """Deliveries that are missing; tuples that came to no end, where ways are not known."""
    duplicated: int
    dead: int
    filtered: int


def ways_of(pipeline: Pipeline, path_of: Callable[[Stream], int]) -> Ways:
    """`path_of` numbers a stream where paths must tell it apart."""
    if any(stream.weight != 1.0 or stream.grouping is Grouping.ALL for stream in pipeline.streams):
        return Ways(None)
    ends_of: dict[str, frozenset[tuple[str, int]]] = {}
    for source in pipeline.sources:
        ends: set[tuple[str, int]] = set()
        waiting = [(source, 0)]
        while waiting:
            operator, path = waiting.pop()
            declared = pipeline.operators[operator]
            if declared.kind is Kind.SINK or declared.aggregate is not None:
                ends.add((operator, path))
                continue
            for stream in pipeline.outputs(operator):
                step = path_of(stream)
                waiting.append((stream.receiver, int(mixed(np.array([path]), step)[0]) if step else path))
        ends_of[source] = frozenset(ends)
    return Ways(ends_of)


def audit(ids: IdBitmaps, offsets: Mapping[str, int], ways: Ways, *, made_several: bool) -> Audited:
    """`made_several`: some code made several rows of one."""
    emitted = sum(offsets.values())
    put_aside = BitMap64.union(ids.filtered, ids.dead, ids.untraced)
    if ways.ends is None or made_several:
        due = BitMap64(range(max(offsets.values(), default=0)))
        lost = len(due - ids.accounted())
    else:
        lost = 0
        for source, offset in offsets.items():
            due = BitMap64(range(offset)) - put_aside
            lost += sum(len(due - ids.delivered.get(end, BitMap64())) for end in ways.ends[source])
    return Audited(emitted, lost, ids.duplicated, len(ids.dead), len(ids.filtered))
