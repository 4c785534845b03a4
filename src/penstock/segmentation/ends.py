"""Sources and sinks with the operators beside them: a micro-batch for each would buy nothing, as they do no work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.dataflow.convex import convex_groups
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.rates import topological_order

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Pipeline
    from penstock.segmentation.contract import Costs, Segment


@dataclass(frozen=True, slots=True)
class EndsApart:
    """A source joins the operator it feeds, a sink the one that feeds it, where that is only one."""

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
