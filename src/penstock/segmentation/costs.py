"""What a second of the stream costs, from models, declared demands and the sizes of tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.allocation.pipeline import demands_of
from penstock.cluster.resources import CPU_POINTS_PER_SLOT
from penstock.dataflow.rates import flows
from penstock.modelling.model import Model
from penstock.segmentation.contract import Costs

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Operator, Pipeline
    from penstock.modelling.library import ModelLibrary


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
