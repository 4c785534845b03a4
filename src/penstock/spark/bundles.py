"""Bundles: what runs where. A bundle is a segment of a pipeline on one slot; streams between bundles are channels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.dataflow.pipeline import Kind
from penstock.dataflow.rates import topological_order
from penstock.spark.routing import Route, Target
from penstock.spark.segment import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.dataflow.load import Load
    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline

Able = "Callable[[str, int], float]"
"""Tuples/s so many threads of an operator support in one slot."""


@dataclass(frozen=True)
class Bundle:
    """A segment on a slot. Travels to the slot's Python worker with everything it needs there."""

    name: str
    slot: Slot
    steps: tuple[Step, ...]
    routes: tuple[Route, ...]
    senders: tuple[str, ...]
    """Bundles it reads."""
    load: Load | None = None
    """Of a source."""

    @property
    def receivers(self) -> tuple[str, ...]:
        """Bundles that read it."""
        return tuple(dict.fromkeys(target.bundle for route in self.routes for target in route.targets))

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(step.operator for step in self.steps)


def make_bundles(
    pipeline: Pipeline,
    logic: Mapping[str, Logic],
    threads: Mapping[Slot, Mapping[str, int]],
    load: Load,
    able: Callable[[str, int], float],
    generation: int = 0,
) -> list[Bundle]:
    """One bundle for every operator on every slot, in topological order.

    Sources are emitted by one bundle each, on the first of their slots: a load is one sequence of numbers.
    """
    where: dict[str, dict[Slot, int]] = {}
    names: dict[tuple[str, Slot], str] = {}
    order = topological_order(pipeline)
    for position, operator in enumerate(order):
        spread = {slot: row[operator] for slot, row in threads.items() if row.get(operator)}
        if operator in pipeline.sources:
            spread = dict([next(iter(spread.items()))])
        where[operator] = spread
        for index, slot in enumerate(spread):
            names[operator, slot] = _name(generation, position, operator, index)

    numbers = {id(stream): number for number, stream in enumerate(pipeline.streams, start=1)}
    bundles = []
    for operator in order:
        is_end = operator in pipeline.sources or (
            pipeline.operators[operator].kind is Kind.SINK and operator not in logic
        )
        outputs = pipeline.outputs(operator)
        for slot, count in where[operator].items():
            step = Step(operator, None if is_end else logic[operator], count, ((-1, 0),), leaves=bool(outputs))
            routes = []
            for stream in outputs:
                only_way = len(outputs) == 1 and len(pipeline.inputs(stream.receiver)) == 1
                targets = tuple(
                    Target(names[stream.receiver, there], many, able(stream.receiver, many), there == slot)
                    for there, many in where[stream.receiver].items()
                )
                number = 0 if only_way else numbers[id(stream)]
                routes.append(Route(operator, number, stream.grouping, stream.key, targets))
            senders = tuple(
                dict.fromkeys(
                    names[stream.sender, there]
                    for stream in pipeline.inputs(operator)
                    for there in where[stream.sender]
                )
            )
            is_source = operator in pipeline.sources
            bundles.append(
                Bundle(names[operator, slot], slot, (step,), tuple(routes), senders, load if is_source else None)
            )
    return bundles


def _name(generation: int, position: int, operator: str, index: int) -> str:
    """Can be the name of a folder, whatever the operator is called; says what it is; sorts in topological order."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", operator)[:40]
    return f"{generation:03d}-{position:03d}-{plain}-{index}"


def by_slot(bundles: Sequence[Bundle]) -> dict[Slot, list[Bundle]]:
    found: dict[Slot, list[Bundle]] = {}
    for bundle in bundles:
        found.setdefault(bundle.slot, []).append(bundle)
    return found
