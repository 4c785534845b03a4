"""One segment that holds everything: no channel, one query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.dataflow.rates import topological_order

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Pipeline
    from penstock.segmentation.contract import Costs, Segment


@dataclass(frozen=True, slots=True)
class Whole:
    name: ClassVar[str] = "whole"
    needs_costs: ClassVar[bool] = False

    def segments(self, pipeline: Pipeline, costs: Costs | None) -> tuple[Segment, ...]:
        return (topological_order(pipeline),)
