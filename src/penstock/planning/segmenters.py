"""Segmenters: which operators run as one (E-Stream's subgraphs, ends, single operators, the whole pipeline)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from penstock.base.files import Weight  # noqa: TC001 - options are checked by their annotations at run time
from penstock.cluster.topology import BYTES_PER_MEGABIT, DEFAULT_BANDWIDTH_MBPS
from penstock.dataflow.pipeline import Kind, topological_order
from penstock.dataflow.task_graph import Edge, communication_to_computation, convex_groups, joined_pairs

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Pipeline
    from penstock.planning.segmentation import Costs, Segment


Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Ccr:
    """Joins the ends of every stream with `ccr = moving / (computing of both ends) > delta`, then whatever lies on a
    path between members, then segments that would wait for each other.

    Moving one second's tuples takes `bytes / bandwidth + tuples * overhead`.
    """

    delta: Weight = 1.0
    bandwidth_mbps: Rate = DEFAULT_BANDWIDTH_MBPS
    overhead_us: Weight = 0.0
    """What it costs to hand over one tuple, whatever its size, in microseconds."""

    name: ClassVar[str] = "ccr"
    needs_costs: ClassVar[bool] = True

    def segments(self, pipeline: Pipeline, costs: Costs | None) -> tuple[Segment, ...]:
        assert costs is not None  # noqa: S101 - `needs_costs`
        names = list(pipeline.operators)
        place = {name: position for position, name in enumerate(names)}
        order = [place[name] for name in topological_order(pipeline)]
        per_byte = 1 / (self.bandwidth_mbps * BYTES_PER_MEGABIT)
        edges = [
            Edge(place[stream.sender], place[stream.receiver], size * per_byte + 1e-6 * tuples * self.overhead_us)
            for stream, size, tuples in zip(pipeline.streams, costs.bytes, costs.tuples, strict=True)
        ]
        ratios = communication_to_computation([costs.computing[name] for name in names], edges)
        joined = joined_pairs(ratios, self.delta)
        return tuple(tuple(names[vertex] for vertex in group) for group in convex_groups(order, list(ratios), joined))


@dataclass(frozen=True, slots=True)
class EndsApart:
    """Join a source with the operator it feeds, and a sink with the one that feeds it, if that is only one.

    Sources and sinks do no work, so a micro-batch of their own would cost time for nothing.
    """

    name: ClassVar[str] = "ends"
    needs_costs: ClassVar[bool] = False

    def segments(self, pipeline: Pipeline, costs: Costs | None) -> tuple[Segment, ...]:
        names = list(pipeline.operators)
        place = {name: position for position, name in enumerate(names)}
        pairs = [(place[stream.sender], place[stream.receiver]) for stream in pipeline.streams]
        kind = {name: operator.kind for name, operator in pipeline.operators.items()}
        joined = [
            (place[stream.sender], place[stream.receiver])
            for stream in pipeline.streams
            if (kind[stream.sender] is Kind.SOURCE and len(pipeline.outputs(stream.sender)) == 1)
            or (kind[stream.receiver] is Kind.SINK and len(pipeline.inputs(stream.receiver)) == 1)
        ]
        order = [place[name] for name in topological_order(pipeline)]
        return tuple(tuple(names[vertex] for vertex in group) for group in convex_groups(order, pairs, joined))


@dataclass(frozen=True, slots=True)
class Single:
    """Make one segment of each operator: each has slots and threads of its own, each stream is a channel."""

    name: ClassVar[str] = "single"
    needs_costs: ClassVar[bool] = False

    def segments(self, pipeline: Pipeline, costs: Costs | None) -> tuple[Segment, ...]:
        return tuple((name,) for name in topological_order(pipeline))


@dataclass(frozen=True, slots=True)
class Whole:
    """Make one segment of the whole pipeline: no channel, one query."""

    name: ClassVar[str] = "whole"
    needs_costs: ClassVar[bool] = False

    def segments(self, pipeline: Pipeline, costs: Costs | None) -> tuple[Segment, ...]:
        return (topological_order(pipeline),)
