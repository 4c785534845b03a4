"""The operators of a region as one slot runs them: what each reads, by which way, and what it sends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.base.errors import BadInputError
from penstock.dataflow.endpoints import reading_of, writing_of
from penstock.dataflow.formats import COUNT
from penstock.dataflow.logic import Per
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.regions import LOAD_ENTRY, entry_of, is_divided
from penstock.engines.fused.schemas import struct_of
from penstock.runtime.steps import Read, Step, shares
from penstock.spark.internals.plans import arrow_of
from penstock.spark.internals.worker_process import pickled
from penstock.spark.region_function import DUE_COLUMN, ENTRY_COLUMN, EXIT_COLUMN, ID_COLUMN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline, Stream
    from penstock.dataflow.regions import Region


# Code and columns of a region, checked before anything runs.


RESERVED = frozenset({ID_COLUMN, DUE_COLUMN, ENTRY_COLUMN, EXIT_COLUMN})
"""Columns of ours beside the user's: one of the user's by such a name would be taken for ours, and be gone."""


def check_pickled(code: Mapping[str, Logic]) -> None:
    """Code that workers call must come to them; Spark's own operators are called here."""

    for name, logic in code.items():
        if logic.per is Per.DATAFRAME:
            continue
        try:
            pickled(logic)
        except Exception as error:  # whatever the user's objects raise when they are asked to be bytes
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise BadInputError(
                f"operator '{name}': its code cannot be sent to workers: {reason}; make what it needs there, with open="
            ) from error


def check_columns(columns: Iterable[str], who: str) -> None:
    """Spark does not tell small letters from capitals."""
    for column in columns:
        if column.lower() in RESERVED:
            raise BadInputError(f"{who}: column '{column}': Penstock keeps that name for itself; rename it")


@dataclass(frozen=True)
class CodeOptions:
    """How code runs inside a slot. `threads` are those of each operator in ONE slot."""

    run: str
    code: Mapping[str, Logic]
    threads: Mapping[str, int] = field(default_factory=dict)
    audit: bool = False
    keep_dead_letters: bool = False
    """They leave as rows of their own, to be written somewhere."""
    environment: Mapping[str, str] = field(default_factory=dict)
    crumbs: str = ""
    slots: int = 1
    """What several operators read is shuffled once, into so many parts."""
    timezone: str = "UTC"
    """Of the session: its clock is what times without a zone are of."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where tuples come into a region: all that one of its `entries` sends, or one stream of it whose rows Spark chose,
    by its number in the pipeline."""

    entry: str
    stream: int | None = None


def entrances_of(pipeline: Pipeline, region: Region, divided: Collection[str]) -> tuple[Entrance, ...]:
    """In the order of a region's entries. `divided`: senders whose weighted streams Spark divides, so that each comes
    in by an entrance of its own."""
    entrances: dict[Entrance, None] = {}
    for name in region.operators:
        if pipeline.operators[name].kind is Kind.SOURCE:
            entrances[_of_source(pipeline, name)] = None
        for stream in pipeline.inputs(name):
            if stream.sender not in region.operators:
                entrances[_of_stream(pipeline, stream, divided)] = None
    return tuple(sorted(entrances, key=lambda entrance: region.entries.index(entrance.entry)))


def _of_source(pipeline: Pipeline, name: str) -> Entrance:
    return Entrance(LOAD_ENTRY if reading_of(pipeline.operators[name]).is_load else name)


def _of_stream(pipeline: Pipeline, stream: Stream, divided: Collection[str]) -> Entrance:
    number = next(number for number, other in enumerate(pipeline.streams) if other is stream)
    return Entrance(entry_of(pipeline, stream), number if is_divided(stream, divided) else None)


def share_of(pipeline: Pipeline, stream: Stream) -> tuple[float, float]:
    """The part of its sender's output that a stream takes, beside what the sender's other streams take."""
    outputs = pipeline.outputs(stream.sender)
    return shares([other.weight for other in outputs])[outputs.index(stream)]


def steps_of(
    pipeline: Pipeline,
    region: Region,
    divided: Collection[str],
    options: CodeOptions,
    known: dict[str, pa.Schema],
    inferred: Mapping[str, pa.Schema],
    *,
    strict: bool = True,
) -> tuple[Step, ...]:
    """The operators of a region for one slot. `known` has the schemas of entries, and gets those of operators.

    Without `strict` an operator whose schema nobody knows has none: that is how it is found out.
    """
    position = {name: number for number, name in enumerate(region.operators)}
    entrances = entrances_of(pipeline, region, divided)
    numbers = {id(stream): number for number, stream in enumerate(pipeline.streams, start=1)}
    steps: list[Step] = []
    for name in region.operators:
        operator = pipeline.operators[name]
        inputs = pipeline.inputs(name)
        reads: list[Read] = []
        before: list[pa.Schema | None] = []
        if operator.kind is Kind.SOURCE:
            entrance = _of_source(pipeline, name)
            reads.append(Read(-1 - entrances.index(entrance)))
            before.append(known.get(entrance.entry))
        for stream in inputs:
            outputs = pipeline.outputs(stream.sender)
            only_way = len(inputs) == 1 and len(outputs) == 1
            number = 0 if only_way else numbers[id(stream)]
            if stream.sender in position:
                reads.append(Read(position[stream.sender], number, share_of(pipeline, stream)))
                before.append(known.get(stream.sender))
            else:
                entrance = _of_stream(pipeline, stream, divided)
                share = share_of(pipeline, stream) if entrance.stream is None else (0.0, 1.0)
                reads.append(Read(-1 - entrances.index(entrance), number, share))
                before.append(known.get(entrance.entry))
        logic = options.code.get(name)
        only_counts = operator.kind is Kind.SINK and writing_of(operator).format == COUNT
        schema = _schema_of(name, logic, before, inferred, options.timezone, strict=strict, only_counts=only_counts)
        if schema is not None:
            known[name] = schema
        steps.append(
            Step(
                operator=name,
                logic=logic,
                threads=options.threads.get(name, 1),
                reads=tuple(reads),
                schema=schema if logic is not None else None,
                leaves=name in region.exits,
                delivers=operator.kind is Kind.SINK,
                leaves_sight=name in region.exits and operator.kind is not Kind.SINK,
            )
        )
    return tuple(steps)


def _schema_of(
    name: str,
    logic: Logic | None,
    before: Sequence[pa.Schema | None],
    inferred: Mapping[str, pa.Schema],
    timezone: str,
    *,
    strict: bool,
    only_counts: bool,
) -> pa.Schema | None:
    """`only_counts`: a sink that keeps nothing does with the columns that all tuples have."""
    if logic is not None and logic.schema is not None:
        schema = arrow_of(struct_of(logic.schema, f"operator '{name}'"), timezone)
        check_columns(schema.names, f"operator '{name}'")
        return schema
    if logic is not None:
        if strict and name not in inferred:
            raise BadInputError(f"operator '{name}': nothing says what its code sends; give schema='NAME TYPE, ...'")
        return inferred.get(name)
    first = before[0]
    if only_counts and first is not None and (shared := _shared_columns([s for s in before if s is not None])):
        return shared
    for other in before[1:]:
        if first is not None and other is not None and not first.equals(other):
            raise BadInputError(
                f"'{name}' gets tuples of different columns: {_columns(first)} and {_columns(other)}; "
                "send the same from all of them"
            )
    return first


def _shared_columns(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Of the same name and type in all."""
    return pa.schema(
        [
            column
            for column in schemas[0]
            if all(column.name in s.names and s.field(column.name) == column for s in schemas)
        ]
    )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)
