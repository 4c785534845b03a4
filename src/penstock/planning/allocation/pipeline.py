"""The allocation of a whole pipeline: rates first, then operator by operator."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.topology import CPU_POINTS_PER_SLOT
from penstock.dataflow.code import has_code, is_sparks_own
from penstock.dataflow.pipeline import Kind, Operator, Pipeline
from penstock.dataflow.rates import flows, gains
from penstock.modelling.model import AGGREGATE_DEMAND, SINK_DEMAND, SOURCE_DEMAND, FixedDemand, Model
from penstock.modelling.task_profile import handled_per_tuple, model_of, profile_of, traffic_of
from penstock.planning.allocation.contract import (
    Allocation,
    Allocator,
    JointAllocator,
    Need,
    OperatorAllocation,
    ProfileAllocator,
    ThreadBundle,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.modelling.library import ModelLibrary
    from penstock.modelling.task_profile import TaskProfile

MOST_COUNTED = 1e15
"""Threads of an operator up to which counting them in floats is exact."""

_END_DEMANDS = {Kind.SOURCE: SOURCE_DEMAND, Kind.SINK: SINK_DEMAND}


def demands_of(
    pipeline: Pipeline, library: ModelLibrary, slot_memory_mb: float = DEFAULT_SLOT_MEMORY_MB
) -> Mapping[str, Model | FixedDemand | None]:
    """What is known of every operator: its model, a fixed demand (ends without one), or None (demand declared).

    An operator that names no model uses its own (`ModelLibrary.name_for`). Where there is only a profile of that name,
    it is the model of a slot with `slot_memory_mb` that the profile describes.
    """
    return {
        name: _demand_of(pipeline, operator, library, slot_memory_mb) for name, operator in pipeline.operators.items()
    }


def _demand_of(
    pipeline: Pipeline, operator: Operator, library: ModelLibrary, slot_memory_mb: float
) -> Model | FixedDemand | None:
    if operator.is_declared:
        return None
    name = library.name_for(pipeline.name, operator.name, operator.model)
    if name not in library.models and name in library.profiles:
        return model_of(library.profiles[name], slot_memory_mb, handled_per_tuple(pipeline, operator.name))
    if operator.model is None and operator.kind in _END_DEMANDS:
        return library.models.get(name, _END_DEMANDS[operator.kind])
    if operator.model is None and is_sparks_own(operator):
        return library.models.get(name, AGGREGATE_DEMAND)
    if operator.model is None and name not in library.models and has_code(operator):
        raise BadInputError(
            f"operator '{operator.name}' was not measured: penstock profile PIPELINE -o models.json measures it, then "
            "--models models.json"
        )
    return library.get(name, f"operator '{operator.name}'")


def profiles_of(pipeline: Pipeline, library: ModelLibrary) -> Mapping[str, TaskProfile]:
    """The task profile of every operator that has one and does not declare its demand."""
    named = {
        name: library.name_for(pipeline.name, name, operator.model)
        for name, operator in pipeline.operators.items()
        if not operator.is_declared
    }
    return {name: library.profiles[model] for name, model in named.items() if model in library.profiles}


def given_pipeline(
    pipeline: Pipeline, rate: float, demands: Mapping[str, Model | FixedDemand | None], slot_memory_mb: float
) -> list[Need | OperatorAllocation]:
    """What an allocator has to decide on, and what is decided already, at the pipeline's rate, in topological order.

    `slot_memory_mb` turns declared megabytes into shares of a slot.
    """
    operators: list[Need | OperatorAllocation] = []
    for name, gain in gains(pipeline).items():
        operator_rate = gain.at(rate)
        if not math.isfinite(operator_rate):
            raise BadInputError(f"operator '{name}': its rate is too large to compute")
        demand = demands[name]
        if isinstance(demand, Model):
            if operator_rate > MOST_COUNTED * demand.rate(1):
                raise BadInputError(f"operator '{name}': {operator_rate:g} tuples/s is too much to count in threads")
            operators.append(Need(name, operator_rate, demand))
        elif isinstance(demand, FixedDemand):
            bundle = ThreadBundle(1, demand.cpu, demand.memory)
            operator = pipeline.operators[name]
            is_end = operator.kind is not Kind.OPERATOR
            what = f"a {operator.kind}" if is_end else "an aggregate" if operator.aggregate else "Spark's own operator"
            reason = f"{what} without a model: one thread of fixed demand"
            operators.append(OperatorAllocation(name, operator_rate, ((1, bundle),), reason, is_end=is_end))
        else:
            operators.append(_declared(pipeline.operators[name], operator_rate, slot_memory_mb))
    return operators


def allocate_pipeline(
    pipeline: Pipeline,
    rate: float,
    demands: Mapping[str, Model | FixedDemand | None],
    allocator: Allocator,
    slot_memory_mb: float,
    profiles: Mapping[str, TaskProfile] = MappingProxyType({}),
) -> Allocation:
    """Threads of every operator at the pipeline's rate, in topological order."""
    operators = given_pipeline(pipeline, rate, demands, slot_memory_mb)
    if isinstance(allocator, JointAllocator):
        together, patterns = allocator.allocate_together(operators)
        return Allocation(allocator.name, tuple(together), patterns=patterns)
    if isinstance(allocator, ProfileAllocator):
        return _allocate_profiled(pipeline, rate, operators, allocator, slot_memory_mb, profiles)
    allocated = (
        operator
        if isinstance(operator, OperatorAllocation)
        else allocator.allocate(operator.operator, operator.rate, operator.model)
        for operator in operators
    )
    return Allocation(allocator.name, tuple(allocated))


def _allocate_profiled(
    pipeline: Pipeline,
    rate: float,
    operators: Iterable[Need | OperatorAllocation],
    allocator: ProfileAllocator,
    slot_memory_mb: float,
    profiles: Mapping[str, TaskProfile],
) -> Allocation:
    traffic = traffic_of(pipeline, flows(pipeline), rate)
    allocated: list[OperatorAllocation] = []
    converted = []
    for operator in operators:
        if isinstance(operator, OperatorAllocation):
            allocated.append(operator)
            continue
        name = operator.operator
        profile = profiles.get(name)
        if profile is None:
            profile = profile_of(operator.model, slot_memory_mb, handled_per_tuple(pipeline, name))
            converted.append(name)
        allocated.append(allocator.allocate_profiled(name, traffic[name], profile, slot_memory_mb))
    return Allocation(allocator.name, tuple(allocated), (_from_slot_models(converted),) if converted else ())


def _from_slot_models(operators: list[str]) -> str:
    return (
        f"no task profile for {', '.join(operators)}: what a tuple costs is taken from one thread of the slot model, "
        "and moving it from node to node costs nothing"
    )


def _declared(operator: Operator, rate: float, slot_memory_mb: float) -> OperatorAllocation:
    threads, cpu, memory_mb = operator.threads or 1, operator.cpu or 0.0, operator.memory_mb or 0.0
    bundle = ThreadBundle(1, cpu / CPU_POINTS_PER_SLOT, memory_mb / slot_memory_mb)
    return OperatorAllocation(operator.name, rate, ((threads, bundle),), "threads and demand are declared")


def demands_to_run(pipeline: Pipeline, library: ModelLibrary) -> Mapping[str, Model | FixedDemand | None]:
    """Return the demands as planning has them; None for an operator without a model, which may still run."""
    unknown = {
        name
        for name, operator in pipeline.operators.items()
        if operator.kind is Kind.OPERATOR
        and operator.model is None
        and not operator.is_declared
        and library.name_for(pipeline.name, name, None) not in library.models
    }
    known = Pipeline.of(
        pipeline.name, [operator for operator in pipeline.operators.values() if operator.name not in unknown], []
    )
    return {**demands_of(known, library), **dict.fromkeys(unknown)}
