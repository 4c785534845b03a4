"""What a segmentation policy is asked and what it answers: which operators run fused as one segment.

A segment is one function over batches: its operators hand tuples on in memory. Streams between segments are channels,
which cost time and a batch of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Protocol

from penstock.base.errors import BadInputError, PenstockError
from penstock.cluster.topology import CPU_POINTS_PER_SLOT
from penstock.dataflow.pipeline import Grouping, flows, topological_order
from penstock.dataflow.task_graph import capped_groups
from penstock.modelling.library import demands_of
from penstock.modelling.model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.dataflow.pipeline import Operator, Pipeline, Stream
    from penstock.modelling.library import ModelLibrary


Segment = tuple[str, ...]
"""Names of operators in topological order."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What one second of the stream costs: seconds of computing by operator, tuples and bytes on every stream."""

    computing: Mapping[str, float]
    tuples: tuple[float, ...]
    bytes: tuple[float, ...]


class Segmenter(Protocol):
    """One way of cutting a pipeline. Every operator is in one segment; the graph of the segments has no cycle.

    Segments come in topological order. `costs` is given where `needs_costs` says so. Pure: same input, same answer.
    """

    name: ClassVar[str]
    needs_costs: ClassVar[bool]

    def segments(self, pipeline: Pipeline, costs: Costs | None) -> tuple[Segment, ...]: ...


@dataclass(frozen=True, slots=True)
class Segmentation:
    """A pipeline cut into segments, and the streams that have become channels."""

    segmenter: str
    segments: tuple[Segment, ...]
    channels: tuple[Stream, ...]


def segmentation(pipeline: Pipeline, segmenter: Segmenter, costs: Costs | None) -> Segmentation:
    """The policy's answer, checked: third parties write policies too."""
    if segmenter.needs_costs and costs is None:
        raise BadInputError(f"segmenter '{segmenter.name}' needs the costs of operators and streams")
    groups = segmenter.segments(pipeline, costs)
    segment_of = {name: number for number, segment in enumerate(groups) for name in segment}
    if sorted(name for segment in groups for name in segment) != sorted(pipeline.operators):
        raise PenstockError(f"segmenter '{segmenter.name}' did not put every operator into one segment")
    channels = tuple(s for s in pipeline.streams if segment_of[s.sender] != segment_of[s.receiver])
    if any(segment_of[stream.sender] > segment_of[stream.receiver] for stream in channels):
        raise PenstockError(f"segmenter '{segmenter.name}' made segments that wait for each other")
    return Segmentation(segmenter.name, groups, channels)


# Costs of a second of the stream, from models, declared demands and sizes of tuples.


def costs_of(pipeline: Pipeline, library: ModelLibrary, rate: float) -> Costs:
    """At `rate` tuples/s: an operator with a model computes `1 / peak rate` seconds of a slot per tuple; one with a
    declared demand what its threads are declared to need; a source or sink without either nothing."""
    demands = demands_of(pipeline, library)
    rates = flows(pipeline)
    computing = {}
    for name, gain in rates.operators.items():
        demand = demands[name]
        computing[name] = gain.at(rate) / demand.peak_rate if isinstance(demand, Model) else 0.0
        if demand is None:
            computing[name] = _declared(pipeline.operators[name])
    tuples = tuple(gain.at(rate) for gain in rates.streams)
    sizes = tuple(count * stream.bytes for count, stream in zip(tuples, pipeline.streams, strict=True))
    return Costs(computing, tuples, sizes)


def _declared(operator: Operator) -> float:
    return (operator.threads or 0) * (operator.cpu or 0.0) / CPU_POINTS_PER_SLOT


# Segments that a placement allows: operators run as one only if they are on the same slots.
#
# Inside a segment a tuple stays on its slot. The plan's own routing does the same if both ends of a stream are on one
# slot only, or if the stream is dealt evenly and every slot has the same share of both ends' threads.


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
