"""Which operators of a fused slot share threads.

The engine's rule (`penstock.runtime.steps.plan_crews`), for planning, which knows no engine: neighbours with one thread
each stay in one thread; an operator with several has its own, so that its waiting is another's working time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataflow.pipeline import Kind
from penstock.dataflow.rates import topological_order

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from penstock.dataflow.pipeline import Pipeline

_ENTRANCE = -1

Crews = tuple[tuple[str, ...], ...]


def crews_of(pipeline: Pipeline, threads: Mapping[str, int], sparks_own: Collection[str]) -> Crews:
    """`sparks_own` operators are in none; what they send enters a slot anew."""
    crews: list[tuple[list[str], int]] = []
    crew_of: dict[str, set[int]] = {}
    level: dict[str, int] = {}
    head: dict[int, int] = {}
    """By how many of Spark's own operators came before: the crew with one thread that takes what enters."""
    for name in topological_order(pipeline):
        senders = [stream.sender for stream in pipeline.inputs(name)]
        level[name] = max((level[sender] for sender in senders), default=0) + (name in sparks_own)
        before = set[int]().union(*(crew_of[sender] for sender in senders)) or {_ENTRANCE}
        if name in sparks_own:
            crew_of[name] = {_ENTRANCE}
            continue
        if not _has_code(pipeline, name):
            crew_of[name] = before
            continue
        entered = head.get(level[name], _ENTRANCE)
        count = threads.get(name, 1)
        crew = min(entered if crew_before == _ENTRANCE else crew_before for crew_before in before)
        joins = count == 1 and crew != _ENTRANCE and crews[crew][1] == 1 and before <= {crew, _ENTRANCE}
        if joins and (_ENTRANCE not in before or crew == entered):
            crews[crew][0].append(name)
        else:
            crews.append(([name], count))
            crew = len(crews) - 1
            if count == 1 and before == {_ENTRANCE}:
                head[level[name]] = crew
        crew_of[name] = {crew}
    return tuple(tuple(names) for names, _ in crews)


def _has_code(pipeline: Pipeline, name: str) -> bool:
    operator = pipeline.operators[name]
    return operator.kind is Kind.OPERATOR or operator.run is not None or operator.logic is not None
