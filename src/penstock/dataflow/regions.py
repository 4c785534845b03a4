"""Regions: the operators of a pipeline that one function in a slot runs, between Spark's own operators.

Code (per row, pandas, Arrow) can be called one operator after the other inside a task; an operator that is Spark's own
(`per="dataframe"`, an aggregation) is part of the query itself. A region is a set of code operators that are joined by
streams with nothing of Spark's between them. No path leaves a region and comes back:

    level(n) = max over its senders s of level(s) + (1 if n or s is Spark's own, or Spark divides the stream, else 0)

rises along every path through an operator of Spark's, and a region has one level.

A sender with weights divides its output among its streams, each row to one of them. All of them must be divided by the
same rule: inside one region code does it, by a tuple's number; if a weighted stream leaves the region, Spark does it
for all of them, by a hash of the row. It does so too if tuples have no numbers and several sinks, or readers of a
region, get them: counted rows would be divided differently when the region is computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.dataflow.formats import reading_of
from penstock.dataflow.pipeline import Kind, topological_order

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from penstock.dataflow.pipeline import Pipeline, Stream

LOAD_ENTRY = "load"
"""Sources that emit what the run asks for all emit the same tuples: they are one entry."""


@dataclass(frozen=True, slots=True)
class Region:
    """`operators` in topological order. `entries` are the senders outside it (or `LOAD_ENTRY`), `exits` the operators
    whose tuples leave it; a sink that reads from this region alone is an operator of it, and an exit."""

    operators: tuple[str, ...]
    entries: tuple[str, ...]
    exits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A pipeline cut into regions (in an order in which they can be built), and Spark's own operators between them."""

    regions: tuple[Region, ...]
    spark_operators: tuple[str, ...]
    divided: frozenset[str] = frozenset()
    """Senders whose weighted streams Spark divides, and not the code of one region."""

    def region_of(self, operator: str) -> Region | None:
        return next((region for region in self.regions if operator in region.operators), None)


def is_sparks_own(pipeline: Pipeline, name: str, dataframe: Collection[str]) -> bool:
    """An aggregation, or one of the operators whose code (`dataframe`) is a function of DataFrames."""
    return pipeline.operators[name].aggregate is not None or name in dataframe


def unaudited_by(pipeline: Pipeline, dataframe: Collection[str]) -> str | None:
    """Return the operator of Spark's own after which tuples of the load cannot be told apart: it reads them as they are
    emitted, and no code gets all of them. None if every tuple can be accounted for."""
    load = {name for name in pipeline.sources if reading_of(pipeline.operators[name]).is_load}
    streams = [stream for stream in pipeline.streams if stream.sender in load]
    own = [stream.receiver for stream in streams if is_sparks_own(pipeline, stream.receiver, dataframe)]
    seen_by_code = any(stream.receiver not in own and stream.weight >= 1 for stream in streams)
    return own[0] if own and not seen_by_code else None


def cut(pipeline: Pipeline, coded: Collection[str], dataframe: Collection[str]) -> Cut:
    """`coded`: the operators that have code; `dataframe`: those of them whose code is Spark's own."""
    made = _cut(pipeline, coded, dataframe, frozenset())
    # what Spark divides is no longer inside a region, which may take others apart
    while more := _to_be_divided(pipeline, made) - made.divided:
        made = _cut(pipeline, coded, dataframe, made.divided | more)
    return made


def _cut(pipeline: Pipeline, coded: Collection[str], dataframe: Collection[str], divided: frozenset[str]) -> Cut:
    order = topological_order(pipeline)
    own = {name for name in order if is_sparks_own(pipeline, name, dataframe)}
    plain_sources = {name for name in pipeline.sources if name not in coded}
    code = [name for name in order if name not in own | plain_sources]
    level: dict[str, int] = {}
    for name in order:
        before = (
            level[stream.sender] + (name in own or stream.sender in own or is_divided(stream, divided))
            for stream in pipeline.inputs(name)
        )
        level[name] = max(before, default=0)
    inner = [name for name in code if pipeline.operators[name].kind is not Kind.SINK]
    joined = [
        (stream.sender, stream.receiver)
        for stream in pipeline.streams
        if stream.sender in inner and stream.receiver in inner and level[stream.sender] == level[stream.receiver]
    ]
    groups = _components(inner, [*joined, *_readers_of_the_load(pipeline, inner, level)])
    for sink in (name for name in code if pipeline.operators[name].kind is Kind.SINK):
        _seat(pipeline, sink, groups, divided, has_code=sink in coded)
    position = {name: number for number, name in enumerate(order)}
    groups.sort(key=lambda group: (min(level[name] for name in group), min(position[name] for name in group)))
    regions = tuple(_region(pipeline, sorted(group, key=position.__getitem__)) for group in groups)
    return Cut(regions, tuple(name for name in order if name in own), divided)


def is_divided(stream: Stream, divided: Collection[str]) -> bool:
    """Whether Spark chooses the rows of a stream."""
    return stream.weight < 1 and stream.sender in divided


def _to_be_divided(pipeline: Pipeline, cut: Cut) -> frozenset[str]:
    """Senders whose weighted streams do not all stay in one region that can divide them."""
    divided = set()
    for sender in pipeline.operators:
        homes = {cut.region_of(stream.receiver) for stream in pipeline.outputs(sender) if stream.weight < 1}
        if not homes:
            continue
        home, *others = homes
        own = cut.region_of(sender)
        if home is None or others or own not in {None, home} or not _divides_the_same(pipeline, home):
            divided.add(sender)
    return frozenset(divided)


def _divides_the_same(pipeline: Pipeline, region: Region) -> bool:
    """Return whether every pass divides the rows in the same way. Tuples of the load have numbers. Others are counted,
    which holds for one pass only: Spark computes a region again for each reader, and a batch that is run again because
    one of several sinks already has it must give the others the rows of the first pass."""
    if region.entries == (LOAD_ENTRY,):
        return True
    sinks = {name for name, operator in pipeline.operators.items() if operator.kind is Kind.SINK}
    readers = sum(stream.receiver not in region.operators for n in region.exits for stream in pipeline.outputs(n))
    return len(sinks) == 1 and readers + len(sinks & set(region.exits)) <= 1


def _components(names: Iterable[str], pairs: Iterable[tuple[str, str]]) -> list[set[str]]:
    """Names that are joined by pairs, directly or by way of others."""
    group_of = {name: {name} for name in names}
    for first, second in pairs:
        if group_of[first] is not group_of[second]:
            group_of[first] |= group_of[second]
            for name in group_of[second]:
                group_of[name] = group_of[first]
    return list({id(group): group for group in group_of.values()}.values())


def _readers_of_the_load(pipeline: Pipeline, inner: Iterable[str], level: dict[str, int]) -> Iterable[tuple[str, str]]:
    """Operators that read the load directly belong together: it is emitted once, however many there are."""
    load = {name for name in pipeline.sources if reading_of(pipeline.operators[name]).is_load}
    readers = [name for name in inner if name in load or any(s.sender in load for s in pipeline.inputs(name))]
    return pairwise(name for name in readers if level[name] == 0)


def _seat(pipeline: Pipeline, sink: str, groups: list[set[str]], divided: Collection[str], *, has_code: bool) -> None:
    """A sink joins the region it reads from alone; with code of its own and several senders it is one by itself."""
    inputs = pipeline.inputs(sink)
    senders = {stream.sender for stream in inputs}
    by_spark = any(is_divided(stream, divided) for stream in inputs)
    home = None if by_spark else next((group for group in groups if senders <= group), None)
    if home is not None:
        home.add(sink)
    elif has_code:
        groups.append({sink})


def _region(pipeline: Pipeline, operators: list[str]) -> Region:
    inside = set(operators)
    entries: dict[str, None] = {}
    for name in operators:
        operator = pipeline.operators[name]
        if operator.kind is Kind.SOURCE:
            entries[LOAD_ENTRY if reading_of(operator).is_load else name] = None
        for stream in pipeline.inputs(name):
            if stream.sender not in inside:
                entries[entry_of(pipeline, stream)] = None
    exits = [
        name
        for name in operators
        if pipeline.operators[name].kind is Kind.SINK
        or any(stream.receiver not in inside for stream in pipeline.outputs(name))
    ]
    return Region(tuple(operators), tuple(entries), tuple(exits))


def entry_of(pipeline: Pipeline, stream: Stream) -> str:
    """The entry through which a stream from outside comes into a region."""
    sender = pipeline.operators[stream.sender]
    is_load = sender.kind is Kind.SOURCE and reading_of(sender).is_load
    return LOAD_ENTRY if is_load and sender.run is None and sender.logic is None else stream.sender
