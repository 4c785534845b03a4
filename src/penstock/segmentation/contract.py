"""What a segmentation policy is asked and what it answers: which operators run fused as one segment.

A segment is one function over batches: its operators hand tuples on in memory. Streams between segments are channels,
which cost time and a batch of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from penstock.errors import BadInputError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.pipeline import Pipeline, Stream

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
