"""What code makes of a few tuples, one operator after the other: to find out which columns it sends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from penstock.dataflow.logic import Per
from penstock.runtime.batch import Marks
from penstock.runtime.code_calls import RowCall, Rows
from penstock.runtime.dead_letters import INTERRUPTIONS, error_line
from penstock.runtime.frame_calls import to_frame
from penstock.runtime.nested_values import inner_fields, with_innermost
from penstock.runtime.row_values import readable_rows
from penstock.runtime.schemas import (
    as_seen,
    columns_to_schema,
    frame_to_schema,
    infer_schema,
    refuse_unknown_types,
    rows_to_columns,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from penstock.dataflow.logic import Logic
    from penstock.runtime.schemas import Misfit
    from penstock.runtime.steps import Step


MOST_DIGITS = 38
"""Of a decimal in Spark."""


@dataclass(slots=True)
class Sampled:
    """By operator: what it sent (with the schema it has, or seems to have), and the first error of its code."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def sample_steps(steps: tuple[Step, ...], entering: Mapping[int, pa.Table]) -> Sampled:
    """`entering` is what comes in at every entrance (-1, -2, ...). A step none of whose tuples came through has no
    table."""
    sampled = Sampled()
    for step in steps:
        parts = [
            entering[read.position] if read.position < 0 else sampled.tables.get(steps[read.position].operator)
            for read in step.reads
        ]
        inputs = [part for part in parts if part is not None and part.num_rows]
        made = [table for part in inputs if (table := _sent(step, part, sampled.errors)) is not None]
        if made:
            joined = pa.concat_tables(made, promote_options="permissive")
            given = pa.schema([column for part in inputs for column in part.schema])
            sampled.tables[step.operator] = joined.cast(_to_be_sent(step, joined.schema, given))
    return sampled


def _to_be_sent(step: Step, sent: pa.Schema, given: pa.Schema) -> pa.Schema:
    """Code that says its types, as Arrow does, means them."""
    if step.logic is None or step.schema is not None:
        return sent
    return as_seen(sent if step.logic.per is Per.ARROW else with_wide_decimals(sent, given))


def _sent(step: Step, table: pa.Table, errors: dict[str, str]) -> pa.Table | None:
    """What fits the schema that the step has, as in a run; all that came where it has none."""
    logic = step.logic
    if logic is None:
        return table
    opened = () if logic.open is None else (logic.open(),)
    try:
        if logic.per is Per.ROW:
            return _rows_sent(step, logic, table, opened, errors)
        made = _made(logic, table, opened)
        if step.schema is not None:
            to_schema = columns_to_schema if logic.per is Per.ARROW else frame_to_schema
            return _fitting(step, *to_schema(made, step.schema), errors)
        sent = made if logic.per is Per.ARROW else _inferred(made, table)
        if sent.num_rows:
            refuse_unknown_types(sent.schema, step.operator)
        return sent
    except INTERRUPTIONS:
        raise
    except BaseException as error:
        errors.setdefault(step.operator, error_line(error))
        return None
    finally:
        if logic.close is not None and opened:
            logic.close(*opened)


def _rows_sent(
    step: Step, logic: Logic, table: pa.Table, opened: tuple[Any, ...], errors: dict[str, str]
) -> pa.Table | None:
    given: list[dict[str, Any]] = []
    for batch in table.to_batches():
        readable, unreadable = readable_rows(batch)
        given += readable
        if unreadable:
            errors.setdefault(step.operator, unreadable[0].error)
    call = RowCall(step.operator, logic, Rows(given, Marks(), table.schema), table.schema)
    call.run(logic.function, opened)
    outcome = call.outcome()
    if outcome.dead_letters:
        errors.setdefault(step.operator, outcome.dead_letters[0].error)
    rows = cast("Rows", outcome.made).dicts
    if not rows:
        return None
    schema = step.schema or infer_schema(rows, step.operator)
    return _fitting(step, *rows_to_columns(rows, schema), errors)


def _fitting(step: Step, rows: pa.RecordBatch, misfits: list[Misfit], errors: dict[str, str]) -> pa.Table | None:
    if misfits:
        errors.setdefault(step.operator, misfits[0].error)
    return pa.Table.from_batches([rows]) if rows.num_rows else None


def _made(logic: Logic, table: pa.Table, opened: tuple[Any, ...]) -> Any:
    """A table of code over Arrow, a frame of code over pandas."""
    if logic.per is Per.ARROW:
        made = logic.function(table, *opened)
        return made if isinstance(made, pa.Table) else pa.Table.from_batches([made])
    import pandas as pd  # noqa: PLC0415 - only where code wants it

    frame = to_frame(table)
    if logic.per is Per.PANDAS:
        return logic.function(frame, *opened)
    frames = list(logic.function(iter([frame]), *opened))
    return pd.concat(frames) if frames else frame.iloc[:0]


def _inferred(frame: pd.DataFrame, given: pa.Table) -> pa.Table:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return table.cast(with_moments(with_whole_numbers(table, given), given.schema), safe=False)


def with_whole_numbers(made: pa.Table, given: pa.Table) -> pa.Schema:
    """What frames hold, with whole numbers where pandas made floats of them, because a null was among those that were
    given: a column that keeps its name and has whole ones only keeps its type, if that has room for them."""

    def type_of(field: pa.Field) -> pa.DataType:
        if not pa.types.is_floating(field.type) or field.name not in given.column_names:
            return field.type
        before = given[field.name]
        if not pa.types.is_integer(before.type) or not before.null_count:
            return field.type
        try:
            made[field.name].cast(before.type)
        except pa.ArrowInvalid:
            return field.type
        return before.type

    return pa.schema([field.with_type(type_of(field)) for field in made.schema])


def with_moments(made: pa.Schema, given: pa.Schema) -> pa.Schema:
    """What frames hold, as Spark has it: in frames no time has a zone, so that one without is a moment where a moment
    was given by that name, or by any where no time was given by it; and Spark knows no nanoseconds."""
    given_by_name = {field.name: _zones(field.type) for field in given}
    zones = [zone for by_name in given_by_name.values() for zone in by_name if zone is not None]

    def type_of(field: pa.Field) -> pa.DataType:
        likely = given_by_name.get(field.name) or zones
        zone = next((zone for zone in likely if zone is not None), None)

        def as_moment(kind: pa.DataType) -> pa.DataType:
            return pa.timestamp("us", tz=kind.tz or zone) if pa.types.is_timestamp(kind) else kind

        return with_innermost(field.type, as_moment)

    return pa.schema([field.with_type(type_of(field)) for field in made])


def _zones(kind: pa.DataType) -> list[str | None]:
    """Of every time in it; None for one that has none."""
    if pa.types.is_timestamp(kind):
        return [kind.tz]
    return [zone for _, inner in inner_fields(kind) for zone in _zones(inner.type)]


def with_wide_decimals(made: pa.Schema, given: pa.Schema) -> pa.Schema:
    """What samples hold, with room for more digits than they show. A decimal that keeps its name keeps its type where
    that has room for what was seen. Another has all digits that Spark has, as many of them behind the point as were
    seen, or as any decimal that was given has, where what was seen leaves so many."""
    decimals = {field.name: field.type for field in given if pa.types.is_decimal128(field.type)}
    scale = max((kind.scale for kind in decimals.values()), default=0)

    def wide(kind: pa.DataType) -> pa.DataType:
        if not pa.types.is_decimal128(kind):
            return kind
        room = MOST_DIGITS - (kind.precision - kind.scale)
        return pa.decimal128(MOST_DIGITS, max(kind.scale, min(scale, room)))

    def type_of(field: pa.Field) -> pa.DataType:
        before = decimals.get(field.name)
        if before is not None and pa.types.is_decimal128(field.type) and _has_room(before, field.type):
            return before
        return with_innermost(field.type, wide)

    return pa.schema([field.with_type(type_of(field)) for field in made])


def _has_room(kind: pa.DataType, seen: pa.DataType) -> bool:
    return bool(kind.scale >= seen.scale and kind.precision - kind.scale >= seen.precision - seen.scale)
