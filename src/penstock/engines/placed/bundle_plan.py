"""A plan as bundles: which segment runs on which slot with which code, and how streams are dealt between them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.pipeline import Grouping, Kind, topological_order
from penstock.engines.placed.bundle.keyed_segment import KeyedCode, sample_groups
from penstock.engines.placed.flow.layout import KEY_GROUPS, Bundle, Channel, Groups, Layout, ranges
from penstock.engines.placed.flow.routing import ReceivingBundle, Route
from penstock.runtime.steps import Read, Step, shares

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from penstock.cluster.topology import Slot
    from penstock.connectors.staged_sinks import SinkFiles
    from penstock.connectors.topic_feed import TopicShare
    from penstock.dataflow.pipeline import Pipeline, Stream


@dataclass(frozen=True)
class BundleCode:
    """The part of a pipeline a bundle runs; it travels with the task, as all code of Spark's does."""

    name: str
    steps: tuple[Step, ...]
    """Threads are those of the generation."""
    entrances: Mapping[int, int]
    """By number of a stream that comes from outside: where it enters the segment."""
    sources: Mapping[str, int]
    """By source: where its tuples enter."""
    sinks: Mapping[str, SinkFiles]
    shown: tuple[str, ...] = ()
    """Sinks of which a few rows are shown on the console."""
    keyed: KeyedCode | None = None
    """Instead of steps: a keyed aggregation."""
    environment: Mapping[str, str] = field(default_factory=dict)
    audit: bool = True
    topics: Mapping[str, TopicShare] = field(default_factory=dict)
    """Sources that are topics, and which of their partitions are read here."""
    sample_every: int | None = None
    """Measure the processing of one row in so many; None: of none."""

    def receivers(self, entrance: int) -> tuple[str, ...]:
        """Return the operators that read what enters there."""
        if self.keyed is not None:
            return (self.keyed.operator,)
        return tuple(step.operator for step in self.steps if any(read.position == entrance for read in step.reads))


@dataclass(frozen=True)
class Code:
    """What runs, whichever plan it runs by."""

    pipeline: Pipeline
    logic: Mapping[str, Logic]
    schemas: Mapping[str, pa.Schema]
    """What operators send, where it is not what they get."""
    sinks: Mapping[str, SinkFiles]
    """Where rows and dead letters are written."""
    shown: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    audit: bool = True
    topics: Mapping[str, TopicShare] = field(default_factory=dict)
    """Sources that are topics."""
    sample_every: int | None = None
    """Measure the processing of one row in so many; None: of none."""


@dataclass(frozen=True)
class LaidOut:
    """A plan ready to run: the layout for the conductor, code and routes for the bundles."""

    layout: Layout
    codes: Mapping[str, BundleCode]
    routes: Mapping[str, tuple[Route, ...]]


def lay_out(
    code: Code,
    segments: Sequence[tuple[str, ...]],
    threads: Mapping[Slot, Mapping[str, int]],
    capacity: Callable[[str, int], float],
    plan: str,
    memory_mb: Mapping[Slot, int | None] | None = None,
) -> LaidOut:
    """One bundle for every segment on every slot that hosts it. A source is emitted on the first of its slots: a load
    is one sequence of numbers. `memory_mb`: memory of the executor on each slot, if it is ordered."""
    pipeline = code.pipeline
    where = {segment: _slots(pipeline, segment, threads, code.topics) for segment in segments}
    segment_of = {name: segment for segment in segments for name in segment}
    numbers = {id(stream): number for number, stream in enumerate(pipeline.streams)}
    bundles: list[Bundle] = []
    channels: list[Channel] = []
    codes: dict[str, BundleCode] = {}
    routes: dict[str, tuple[Route, ...]] = {}
    for segment, slots in where.items():
        keyed = pipeline.operators[segment[0]].aggregate is not None
        edges = ranges([threads[slot][segment[0]] for slot in slots]) if keyed else [(0, KEY_GROUPS)] * len(slots)
        template = _bundle_code(code, segment, numbers)
        for sharer, (slot, (first, end)) in enumerate(zip(slots, edges, strict=True)):
            name = bundle_name(segment, slot)
            bundles.append(
                Bundle(
                    name,
                    slot,
                    segment,
                    tuple(threads[slot].get(operator, 1) for operator in segment),
                    tuple(operator for operator in segment if operator in pipeline.sources),
                    (Groups(segment[0], first, end),) if keyed else (),
                    (memory_mb or {}).get(slot),
                )
            )
            codes[name] = BundleCode(
                name,
                template.steps,
                template.entrances,
                template.sources,
                template.sinks,
                template.shown,
                template.keyed,
                dict(code.environment),
                code.audit,
                {
                    source: replace(code.topics[source], sharer=sharer, sharers=len(slots))
                    for source in template.sources
                    if source in code.topics
                },
                code.sample_every,
            )
            leaving = []
            for stream, share in _leaving(pipeline, segment):
                receivers = where[segment_of[stream.receiver]]
                targets = tuple(
                    ReceivingBundle(
                        bundle_name(segment_of[stream.receiver], there),
                        threads[there][stream.receiver],
                        capacity(stream.receiver, threads[there][stream.receiver]),
                        there == slot,
                    )
                    for there in receivers
                )
                number = numbers[id(stream)]
                grouping, key = _grouping(pipeline, stream)
                leaving.append(Route(number, stream.sender, path_of(pipeline, stream), share, grouping, key, targets))
                channels += [Channel(number, name, target.bundle) for target in targets]
            routes[name] = tuple(leaving)
    return LaidOut(Layout(plan, tuple(bundles), tuple(channels)), codes, routes)


def whole_pipeline(code: Code) -> BundleCode:
    """All operators as one segment, to see what they make of samples."""
    pipeline = code.pipeline
    numbers = {id(stream): number for number, stream in enumerate(pipeline.streams)}
    keyed = {
        name: KeyedCode(name, operator.aggregate)
        for name, operator in pipeline.operators.items()
        if operator.aggregate is not None
    }
    logic = {name: Logic(partial(sample_groups, keyed_code), Per.ARROW) for name, keyed_code in keyed.items()}
    sampled = replace(
        code,
        logic={**code.logic, **logic},
        schemas={**code.schemas, **{name: keyed_code.makes for name, keyed_code in keyed.items()}},
    )
    return _bundle_code(sampled, tuple(topological_order(pipeline)), numbers)


def bundle_name(segment: tuple[str, ...], slot: Slot) -> str:
    return f"{'+'.join(segment)}@{slot}"


def _slots(
    pipeline: Pipeline,
    segment: tuple[str, ...],
    threads: Mapping[Slot, Mapping[str, int]],
    topics: Mapping[str, TopicShare],
) -> list[Slot]:
    """A load is one sequence of numbers and emitted on one slot; the partitions of topics are dealt to all."""
    slots = [slot for slot, row in threads.items() if row.get(segment[0])]
    return slots[:1] if any(name in pipeline.sources and name not in topics for name in segment) else slots


def _grouping(pipeline: Pipeline, stream: Stream) -> tuple[Grouping, tuple[str, ...]]:
    """An aggregation gets its rows by its own key, whatever the stream says: each of its bundles answers for some key
    groups. Without a key one bundle answers for all."""
    aggregate = pipeline.operators[stream.receiver].aggregate
    if aggregate is None:
        return stream.grouping, () if stream.key is None else (stream.key,)
    return (Grouping.FIELDS, aggregate.keys) if aggregate.keys else (Grouping.GLOBAL, ())


def path_of(pipeline: Pipeline, stream: Stream) -> int:
    """Its number from 1 where paths must tell it from another; 0: the only way between the two."""
    number = next(number for number, candidate in enumerate(pipeline.streams) if candidate is stream)
    only = len(pipeline.outputs(stream.sender)) == 1 and len(pipeline.inputs(stream.receiver)) == 1
    return 0 if only else number + 1


def _shares(pipeline: Pipeline, sender: str) -> dict[int, tuple[float, float]]:
    """The part of a sender's output each of its streams takes."""
    streams = pipeline.outputs(sender)
    return {id(s): share for s, share in zip(streams, shares([s.weight for s in streams]), strict=True)}


def _leaving(pipeline: Pipeline, segment: tuple[str, ...]) -> list[tuple[Stream, tuple[float, float]]]:
    inside = set(segment)
    return [
        (stream, _shares(pipeline, name)[id(stream)])
        for name in segment
        for stream in pipeline.outputs(name)
        if stream.receiver not in inside
    ]


def _bundle_code(code: Code, segment: tuple[str, ...], numbers: Mapping[int, int]) -> BundleCode:
    pipeline = code.pipeline
    position = {name: index for index, name in enumerate(segment)}
    entrances: dict[int, int] = {}
    sources: dict[str, int] = {}
    steps: list[Step] = []
    taken = 0
    for name in segment:
        operator = pipeline.operators[name]
        reads = []
        if name in pipeline.sources:
            taken += 1
            sources[name] = -taken
            reads.append(Read(-taken))
        for stream in pipeline.inputs(name):
            number = numbers[id(stream)]
            if stream.sender in position:
                share = _shares(pipeline, stream.sender)[id(stream)]
                reads.append(Read(position[stream.sender], path_of(pipeline, stream), share))
            else:
                taken += 1
                entrances[number] = -taken
                reads.append(Read(-taken))
        is_sink = operator.kind is Kind.SINK
        outside = any(stream.receiver not in position for stream in pipeline.outputs(name))
        steps.append(
            Step(
                name,
                code.logic.get(name),
                1,
                tuple(reads),
                code.schemas.get(name),
                leaves=outside or name in code.sinks or name in code.shown,
                delivers=is_sink,
            )
        )
    aggregate = pipeline.operators[segment[0]].aggregate
    return BundleCode(
        "",
        tuple(steps),
        entrances,
        sources,
        code.sinks,
        tuple(name for name in code.shown if name in position),
        None if aggregate is None else KeyedCode(segment[0], aggregate),
    )
