"""One segment for every operator: each can have slots and threads of its own, every stream is a channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.dataflow.rates import topological_order

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Pipeline
    from penstock.segmentation.contract import Costs, Segment


@dataclass(frozen=True, slots=True)
class Single:
    name: ClassVar[str] = "single"
    needs_costs: ClassVar[bool] = False

    def segments(self, pipeline: Pipeline, costs: Costs | None) -> tuple[Segment, ...]:
        return tuple((name,) for name in topological_order(pipeline))
