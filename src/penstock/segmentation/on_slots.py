"""Segments as far as a placement allows them: operators run as one only where they sit on the same slots.

Inside a segment a tuple stays on its slot. That is what the plan's own dealing comes to where the two ends of a stream
sit on one slot only, or where the stream is dealt evenly and every slot has the same share of both ends' threads.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from penstock.dataflow.convex import capped_groups
from penstock.dataflow.pipeline import Grouping
from penstock.dataflow.rates import topological_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.dataflow.pipeline import Pipeline, Stream
    from penstock.segmentation.contract import Segment

_EVEN = {Grouping.SHUFFLE, Grouping.LOCAL_OR_SHUFFLE}


def segments_on_slots(
    pipeline: Pipeline, wanted: Sequence[Segment], threads: Mapping[Slot, Mapping[str, int]]
) -> tuple[Segment, ...]:
    """The cut of `wanted`, taken apart where operators do not sit together; an aggregation is always alone."""
    names = list(pipeline.operators)
    place = {name: position for position, name in enumerate(names)}
    shares = {name: _shares(name, threads) for name in names}
    segment_of = {name: number for number, segment in enumerate(wanted) for name in segment}

    def stays(stream: Stream) -> bool:
        sender, receiver = shares[stream.sender], shares[stream.receiver]
        alone = len(sender) == 1 and stream.grouping is not Grouping.ALL
        return sender == receiver and (alone or stream.grouping in _EVEN)

    def together(members: list[int]) -> bool:
        inside = {names[vertex] for vertex in members}
        streams = [s for s in pipeline.streams if s.sender in inside and s.receiver in inside]
        one_place = len({tuple(shares[name].items()) for name in inside}) == 1
        from_one_place = not any(name in pipeline.sources and len(shares[name]) > 1 for name in inside)
        plain = all(pipeline.operators[name].aggregate is None for name in inside)
        return one_place and from_one_place and plain and all(map(stays, streams))

    pairs = [(place[stream.sender], place[stream.receiver]) for stream in pipeline.streams]
    joined = [
        pair
        for pair, stream in zip(pairs, pipeline.streams, strict=True)
        if segment_of[stream.sender] == segment_of[stream.receiver]
    ]
    order = [place[name] for name in topological_order(pipeline)]
    return tuple(tuple(names[vertex] for vertex in group) for group in capped_groups(order, pairs, joined, together))


def _shares(operator: str, threads: Mapping[Slot, Mapping[str, int]]) -> dict[Slot, Fraction]:
    """The part of the operator's threads on each slot."""
    counts = {slot: threads[slot][operator] for slot in sorted(threads) if threads[slot].get(operator)}
    total = sum(counts.values())
    return {slot: Fraction(count, total) for slot, count in counts.items()}
