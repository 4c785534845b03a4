"""Run the code of a pipeline over given rows in this process, by the same runtime that slots use on Spark.

Schemas, dead letters, time limits and the division of weighted streams are those of a run. There is no Spark session,
so operators that are Spark's own (`per="dataframe"`, aggregates) are refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.base.errors import BadInputError, nearest
from penstock.dataflow.builder import PipelineBuilder
from penstock.dataflow.code import code_of, is_sparks_own
from penstock.dataflow.pipeline import Kind, Pipeline, topological_order
from penstock.engines.fused.region_steps import share_of
from penstock.runtime.batch import Batch
from penstock.runtime.dead_letters import DEAD_LETTERS
from penstock.runtime.schema_inference import sample_steps
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.runtime.steps import Read, Step
from penstock.testing.schema_words import schema_of_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Row = dict[str, Any]


@dataclass(frozen=True)
class DeadRow:
    """A row that an operator did not process, and the error in one line."""

    operator: str
    row: str
    """As JSON."""
    error: str


@dataclass(frozen=True)
class RowsOutput:
    """The rows that reached each sink, and the dead letters of all operators."""

    sinks: dict[str, list[Row]]
    dead: list[DeadRow]


def run_rows(pipeline: Pipeline | PipelineBuilder, rows: Iterable[Row] | Mapping[str, Iterable[Row]]) -> RowsOutput:
    """Return what `pipeline` makes of `rows`: those of its only source, or those of each source by name.

    Raises BadInputError if an operator needs Spark, or if a source or a schema is not known.
    """
    built = pipeline.build() if isinstance(pipeline, PipelineBuilder) else pipeline
    for operator in built.operators.values():
        if is_sparks_own(operator):
            raise BadInputError(f"operator '{operator.name}' needs Spark; use penstock.run(..., until_end=True)")
    sources = [name for name, operator in built.operators.items() if operator.kind is Kind.SOURCE]
    tables = {name: _table(built, name, given) for name, given in _by_source(sources, rows).items()}
    entering = {-1 - number: tables[name] for number, name in enumerate(sources)}
    steps = _with_schemas(_steps(built, sources), entering)
    output = RowsOutput({step.operator: [] for step in steps if step.delivers}, [])
    segment = Segment(steps, SegmentOptions(emit_dead_letters=True))
    try:
        batches = [(entrance, Batch(_one_batch(table))) for entrance, table in entering.items() if table.num_rows]
        for sender, batch in segment.process_entrances(batches):
            made = batch.rows.to_pylist()
            if sender == DEAD_LETTERS:
                output.dead.extend(DeadRow(row["operator"], row["row"], row["error"]) for row in made)
            else:
                output.sinks[sender].extend(made)
    finally:
        segment.close()
    return output


def _by_source(sources: Sequence[str], rows: Iterable[Row] | Mapping[str, Iterable[Row]]) -> dict[str, list[Row]]:
    if not hasattr(rows, "keys"):
        if len(sources) != 1:
            raise BadInputError(f"rows: expected those of each source by name: {', '.join(sources)}")
        return {sources[0]: list(rows)}
    given: Mapping[str, Iterable[Row]] = rows  # type: ignore[assignment] # it has keys
    for name in given:
        if name not in sources:
            raise BadInputError(f"rows: no source named '{name}'; {nearest(name, sources)}")
    return {name: list(given.get(name, ())) for name in sources}


def _table(pipeline: Pipeline, source: str, rows: list[Row]) -> pa.Table:
    words = pipeline.operators[source].schema_
    if words is None:
        return pa.Table.from_pylist(rows)
    try:
        return pa.Table.from_pylist(rows, schema_of_words(words, f"source '{source}'"))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise BadInputError(f"rows of '{source}' do not fit its schema '{words}': {error}") from error


def _steps(pipeline: Pipeline, sources: Sequence[str]) -> tuple[Step, ...]:
    order = topological_order(pipeline)
    position = {name: number for number, name in enumerate(order)}
    numbers = {id(stream): number for number, stream in enumerate(pipeline.streams, start=1)}
    steps = []
    for name in order:
        operator = pipeline.operators[name]
        reads = [Read(-1 - sources.index(name))] if operator.kind is Kind.SOURCE else []
        reads += [
            Read(position[stream.sender], numbers[id(stream)], share_of(pipeline, stream))
            for stream in pipeline.inputs(name)
        ]
        code = code_of(operator)
        words = None if code is None else code.schema
        schema = None if words is None else schema_of_words(words, f"operator '{name}'")
        is_sink = operator.kind is Kind.SINK
        steps.append(Step(name, code, 1, tuple(reads), schema, leaves=is_sink, delivers=is_sink))
    return tuple(steps)


def _with_schemas(steps: tuple[Step, ...], entering: Mapping[int, pa.Table]) -> tuple[Step, ...]:
    """Infer undeclared schemas as a run does: call the code once with these rows before."""
    silent = {step.operator for step in steps if step.logic is not None and step.schema is None}
    if not silent:
        return steps
    sampled = sample_steps(steps, entering)
    for step in steps:
        if step.operator in silent and step.operator not in sampled.tables:
            why = f": {sampled.errors[step.operator]}" if step.operator in sampled.errors else ""
            raise BadInputError(
                f"operator '{step.operator}': no row came through it{why}; give schema='NAME TYPE, ...'"
            )
    return tuple(
        replace(step, schema=sampled.tables[step.operator].schema) if step.operator in silent else step
        for step in steps
    )


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]
