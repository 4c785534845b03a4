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
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.dataflow.aggregate import Aggregate
    from penstock.dataflow.load import Load
    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline, Stream


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
    aggregate: Aggregate | None = None
    """Of a bundle that Spark's stateful operators execute."""

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
    segments: Sequence[tuple[str, ...]] | None = None,
) -> list[Bundle]:
    """One bundle for every segment on every slot that hosts it, in topological order; by default every operator is a
    segment of its own.

    A source is emitted by one bundle, on the first of its slots: a load is one sequence of numbers. An aggregation has
    one bundle too, the same over all generations: its state belongs to it.
    """
    order = topological_order(pipeline)
    cut = [(name,) for name in order] if segments is None else segments
    segment_of = {name: segment for segment in cut for name in segment}
    where: dict[tuple[str, ...], list[Slot]] = {}
    names: dict[tuple[tuple[str, ...], Slot], str] = {}
    for position, segment in enumerate(cut):
        slots = [slot for slot, row in threads.items() if row.get(segment[0])]
        is_state = pipeline.operators[segment[0]].aggregate is not None
        if is_state or any(name in pipeline.sources for name in segment):
            slots = slots[:1]
        where[segment] = slots
        for index, slot in enumerate(slots):
            plain = _name(0 if is_state else generation, position, segment[-1], index)
            names[segment, slot] = f"state-{plain}" if is_state else plain

    numbers = {id(stream): number for number, stream in enumerate(pipeline.streams, start=1)}

    def way(stream: Stream) -> int:
        only = len(pipeline.outputs(stream.sender)) == 1 and len(pipeline.inputs(stream.receiver)) == 1
        return 0 if only else numbers[id(stream)]

    bundles = []
    for segment in cut:
        inside = set(segment)
        leaving = [s for name in segment for s in pipeline.outputs(name) if s.receiver not in inside]
        senders = dict.fromkeys(
            names[other, there]
            for name in segment
            for stream in pipeline.inputs(name)
            if (other := segment_of[stream.sender]) != segment
            for there in where[other]
        )
        for slot in where[segment]:
            count = threads[slot]
            routes = tuple(
                Route(
                    stream.sender,
                    way(stream),
                    stream.grouping,
                    stream.key,
                    tuple(
                        Target(
                            names[segment_of[stream.receiver], there],
                            threads[there][stream.receiver],
                            able(stream.receiver, threads[there][stream.receiver]),
                            there == slot,
                        )
                        for there in where[segment_of[stream.receiver]]
                    ),
                )
                for stream in leaving
            )
            has_source = any(name in pipeline.sources for name in segment)
            bundles.append(
                Bundle(
                    names[segment, slot],
                    slot,
                    tuple(_steps(pipeline, segment, logic, count, way)),
                    routes,
                    tuple(senders),
                    load if has_source else None,
                    pipeline.operators[segment[0]].aggregate,
                )
            )
    return bundles


def _steps(
    pipeline: Pipeline,
    segment: tuple[str, ...],
    logic: Mapping[str, Logic],
    threads: Mapping[str, int],
    way: Callable[[Stream], int],
) -> Iterator[Step]:
    """Operators of a segment. What comes through a channel has its path already; what stays inside gets it here."""
    position = {name: index for index, name in enumerate(segment)}
    for name in segment:
        outputs = pipeline.outputs(name)
        reads = [(position[s.sender], way(s)) for s in pipeline.inputs(name) if s.sender in position]
        enters = name in pipeline.sources or any(s.sender not in position for s in pipeline.inputs(name))
        if enters:
            reads.append((-1, 0))
        yield Step(
            name,
            logic.get(name),
            threads.get(name, 1),
            tuple(reads),
            leaves=any(stream.receiver not in position for stream in outputs),
            delivers=pipeline.operators[name].kind is Kind.SINK,
        )


def segments_between_aggregates(pipeline: Pipeline) -> list[tuple[str, ...]]:
    """The fewest segments that leave every aggregation alone: operators are together if as many aggregations lie
    before them on the longest way, in topological order."""
    order = topological_order(pipeline)
    depth: dict[str, int] = {}
    for name in order:
        before = max((depth[stream.sender] for stream in pipeline.inputs(name)), default=0)
        own = pipeline.operators[name].aggregate is not None
        # an aggregation takes an odd level for itself
        depth[name] = before + 1 if own or before % 2 else before
        if own and depth[name] % 2 == 0:
            depth[name] += 1
    found: dict[tuple[int, str], list[str]] = {}
    for name in order:
        alone = name if pipeline.operators[name].aggregate is not None else ""
        found.setdefault((depth[name], alone), []).append(name)
    return [tuple(names) for _, names in sorted(found.items(), key=lambda item: item[0][0])]


def _name(generation: int, position: int, operator: str, index: int) -> str:
    """Can be the name of a folder, whatever the operator is called; says what it is; sorts in topological order."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", operator)[:40]
    return f"{generation:03d}-{position:03d}-{plain}-{index}"


def by_slot(bundles: Sequence[Bundle]) -> dict[Slot, list[Bundle]]:
    found: dict[Slot, list[Bundle]] = {}
    for bundle in bundles:
        found.setdefault(bundle.slot, []).append(bundle)
    return found
