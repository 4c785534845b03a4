"""The rate at which rows arrive at every operator, from the rates of the sources."""

from __future__ import annotations

import math
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.base.tolerance import exceeds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Gain:
    """The input rate of an operator as an affine function of the pipeline's rate: `factor * rate + constant`."""

    factor: float
    constant: float

    def at(self, rate: float) -> float:
        return self.factor * rate + self.constant

    def pipeline_rate_at(self, operator_rate: float) -> float:
        """The pipeline's rate at which the operator receives `operator_rate`; infinite if it does not depend on it.

        0 where the constant part alone is more than that, beyond what rounding adds.
        """
        left = operator_rate - self.constant
        if exceeds(self.constant, operator_rate):
            return 0.0
        return max(0.0, left) / self.factor if self.factor > 0 else math.inf


def topological_order(pipeline: Pipeline) -> tuple[str, ...]:
    """Kahn's order with a first-in-first-out queue; ties in declared order. A cycle is an error that names it."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for name in pipeline.operators:
        sorter.add(name)
    for name in pipeline.operators:
        for stream in pipeline.outputs(name):
            sorter.add(stream.receiver, name)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = " -> ".join(f"'{name}'" for name in error.args[1])
        raise BadInputError(
            f"pipeline '{pipeline.name}': rates need a pipeline without cycles, found {cycle}"
        ) from error
    order: list[str] = []
    while ready := sorter.get_ready():
        for name in ready:
            order.append(name)
            sorter.done(name)
    return tuple(order)


@dataclass(frozen=True, slots=True)
class Flows:
    """How fast tuples flow: into every operator in topological order, and on every stream in declared order."""

    operators: Mapping[str, Gain]
    streams: tuple[Gain, ...]


def gains(pipeline: Pipeline) -> Mapping[str, Gain]:
    """Input rates as functions of the pipeline's rate W, in topological order (`flows`)."""
    return flows(pipeline).operators


def flows(pipeline: Pipeline) -> Flows:
    """Rates of operators and streams as functions of the pipeline's rate W.

    Sources receive `w = W`, others what their streams carry: `w_j = sum over streams (i, j)`. A stream out of i
    carries `weight * (selectivity * w_i + constant)`; where it has `selectivities` a_k for the senders k of i's inputs,
    `weight * (sum over k of a_k * w_ki + constant)`. Every stream out of an operator carries its whole output (times
    its weight); streams into an operator interleave.
    """
    if not pipeline.sources:
        raise BadInputError(f"pipeline '{pipeline.name}': no source; expected at least one operator of kind source")
    table: dict[str, Gain] = {}
    carried: dict[int, Gain] = {}
    for name in topological_order(pipeline):
        inputs = pipeline.inputs(name)
        if name in pipeline.sources:
            table[name] = Gain(1.0, 0.0)
        elif not inputs:
            raise BadInputError(
                f"pipeline '{pipeline.name}': operator '{name}' receives no stream and is not of kind source"
            )
        else:
            table[name] = Gain(
                factor=sum(carried[id(stream)].factor for stream in inputs),
                constant=sum(carried[id(stream)].constant for stream in inputs),
            )
        if not math.isfinite(table[name].factor + table[name].constant):
            raise BadInputError(f"pipeline '{pipeline.name}': operator '{name}': its rate is too large to compute")
        for stream in pipeline.outputs(name):
            parts = [(stream.selectivity, table[name])]
            if stream.selectivities:
                parts = [(stream.selectivities.get(i.sender, stream.selectivity), carried[id(i)]) for i in inputs]
            carried[id(stream)] = Gain(
                factor=stream.weight * sum(selectivity * gain.factor for selectivity, gain in parts),
                constant=stream.weight
                * (sum(selectivity * gain.constant for selectivity, gain in parts) + stream.constant),
            )
    return Flows(table, tuple(carried[id(stream)] for stream in pipeline.streams))


def stream_rates(pipeline: Pipeline, rate: float) -> tuple[float, ...]:
    """Tuples/s on every stream, in declared order, at the pipeline's rate."""
    return tuple(gain.at(rate) for gain in flows(pipeline).streams)


def checked_rate(rate: float, what: str = "rate") -> float:
    if not isinstance(rate, int | float):
        raise BadInputError(f"{what}: expected a number of tuples/s, found {rate!r}")
    if not math.isfinite(rate) or rate <= 0:
        raise BadInputError(f"{what}: expected a finite number of tuples/s above 0, found {rate:g}")
    return float(rate)
