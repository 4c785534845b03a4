"""The allocation of a whole pipeline: rates first, then operator by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.allocation.contract import Allocation, Allocator, Bundle, JointAllocator, Need, OperatorAllocation
from penstock.cluster.resources import CPU_POINTS_PER_SLOT
from penstock.dataflow.pipeline import Kind, Operator, Pipeline
from penstock.dataflow.rates import gains
from penstock.errors import BadInputError
from penstock.modelling.model import SINK_DEMAND, SOURCE_DEMAND, FixedDemand, Model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.modelling.library import ModelLibrary

MOST_COUNTED = 1e15
"""Threads of an operator up to which counting them in floats is exact."""

_END_DEMANDS = {Kind.SOURCE: SOURCE_DEMAND, Kind.SINK: SINK_DEMAND}


def demands_of(pipeline: Pipeline, library: ModelLibrary) -> Mapping[str, Model | FixedDemand | None]:
    """What is known of every operator: its model, a fixed demand (ends without one), or None (demand declared).

    An operator that names no model uses the one of its own name.
    """
    return {name: _demand_of(operator, library) for name, operator in pipeline.operators.items()}


def _demand_of(operator: Operator, library: ModelLibrary) -> Model | FixedDemand | None:
    if operator.is_declared:
        return None
    if operator.model is None and operator.kind in _END_DEMANDS:
        return library.models.get(operator.name, _END_DEMANDS[operator.kind])
    return library.get(operator.model or operator.name, f"operator '{operator.name}'")


def given_pipeline(
    pipeline: Pipeline, rate: float, demands: Mapping[str, Model | FixedDemand | None], slot_memory_mb: float
) -> list[Need | OperatorAllocation]:
    """What an allocator has to decide on, and what is decided already, at the pipeline's rate, in topological order.

    `slot_memory_mb` turns declared megabytes into shares of a slot.
    """
    operators: list[Need | OperatorAllocation] = []
    for name, gain in gains(pipeline).items():
        operator_rate = gain.at(rate)
        demand = demands[name]
        if isinstance(demand, Model):
            if operator_rate > MOST_COUNTED * demand.rate(1):
                raise BadInputError(f"operator '{name}': {operator_rate:g} tuples/s is too much to count in threads")
            operators.append(Need(name, operator_rate, demand))
        elif isinstance(demand, FixedDemand):
            bundle = Bundle(1, demand.cpu, demand.memory)
            reason = f"a {pipeline.operators[name].kind} without a model: one thread of fixed demand"
            operators.append(OperatorAllocation(name, operator_rate, ((1, bundle),), reason, is_end=True))
        else:
            operators.append(_declared(pipeline.operators[name], operator_rate, slot_memory_mb))
    return operators


def allocate_pipeline(
    pipeline: Pipeline,
    rate: float,
    demands: Mapping[str, Model | FixedDemand | None],
    allocator: Allocator,
    slot_memory_mb: float,
) -> Allocation:
    """Threads of every operator at the pipeline's rate, in topological order."""
    operators = given_pipeline(pipeline, rate, demands, slot_memory_mb)
    if isinstance(allocator, JointAllocator):
        together, patterns = allocator.allocate_together(operators)
        return Allocation(allocator.name, tuple(together), patterns)
    allocated = (
        operator
        if isinstance(operator, OperatorAllocation)
        else allocator.allocate(operator.operator, operator.rate, operator.model)
        for operator in operators
    )
    return Allocation(allocator.name, tuple(allocated))


def _declared(operator: Operator, rate: float, slot_memory_mb: float) -> OperatorAllocation:
    threads, cpu, memory_mb = operator.threads or 1, operator.cpu or 0.0, operator.memory_mb or 0.0
    bundle = Bundle(1, cpu / CPU_POINTS_PER_SLOT, memory_mb / slot_memory_mb)
    return OperatorAllocation(operator.name, rate, ((threads, bundle),), "threads and demand are declared")
