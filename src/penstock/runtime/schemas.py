"""Schemas of what travels: inferred from samples, and what does not fit them found by row and field."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import BadInputError
from penstock.runtime.nested_values import (
    UNSEEN,
    NestedMisfitError,
    are_infinite,
    refuse_forbidden_nulls,
    refuse_inexact,
    refuse_new_infinities,
    refuse_other_meanings,
    refuse_unseen_fields,
)
from penstock.runtime.python_values import UTC, are_plain, fitted, may_mislead, moments_on_clock, zone_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What Arrow raises at a value that does not fit a type."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A row that does not fit its schema: where it stands, which field, and why."""

    row: int
    field: str
    error: str


class MissingColumnError(TypeError):
    """Vectorised code left out a column that its schema has: no row can fit."""

    def __init__(self, field: str, columns: Sequence[str]) -> None:
        super().__init__(f"the result has no column '{field}', only {', '.join(map(str, columns)) or 'none'}")
        self.field = field


_SEEN = {b"penstock": b"seen from samples"}


def as_seen(schema: pa.Schema) -> pa.Schema:
    """The same, with a note that nobody gave it: it may lack a field that no sample had."""
    return schema.with_metadata(_SEEN)


def is_seen(schema: pa.Schema) -> bool:
    return bool(schema.metadata == _SEEN)


def infer_schema(samples: Iterable[dict[str, Any]], operator: str) -> pa.Schema:
    """What `samples` of an operator's output hold, by Arrow's own inference: whole numbers beside others widen, None
    fits everything. Fields come in the order in which they were first seen."""
    rows = list(samples)
    if not rows:
        raise BadInputError(f"operator '{operator}': no sample to infer a schema from; give schema=")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.schema([_infer_field(name, [row.get(name) for row in rows], operator) for name in names])


def _infer_field(name: str, values: list[Any], operator: str) -> pa.Field:
    try:
        kind = pa.array(values).type
    except MISFITS as error:
        raise BadInputError(
            f"operator '{operator}', field '{name}': its type cannot be inferred ({first_line(error)}); give schema="
        ) from error
    refuse_unknown_types(pa.schema([(name, kind)]), operator)
    return pa.field(name, kind)


def refuse_unknown_types(sampled: pa.Schema, operator: str) -> None:
    """A field that holds None in every sample may hold anything in the run."""
    for field in sampled:
        if pa.types.is_null(field.type):
            raise BadInputError(f"operator '{operator}', field '{field.name}': every sample holds None; give schema=")


def rows_to_columns(rows: list[dict[str, Any]], schema: pa.Schema) -> tuple[pa.RecordBatch, list[Misfit]]:
    """Columns of the rows that fit, and those that do not. Other fields than the schema's are left out, missing ones
    are null; a row with none of them has probably misspelt them, and does not fit. Nor does one with another field if
    the schema was seen from samples: nobody has said that it is not wanted."""
    misfits: list[Misfit] = []
    parts = _fitting_parts(rows, 0, schema, misfits)
    if len(parts) == 1:
        return parts[0], misfits
    return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=schema), misfits


def _fitting_parts(
    rows: list[dict[str, Any]], first: int, schema: pa.Schema, misfits: list[Misfit]
) -> list[pa.RecordBatch]:
    """Halves are tried until the rows that do not fit stand alone; `first` is the position of the first row."""
    try:
        return [_columns(rows, schema)]
    except _FieldError as error:
        if len(rows) == 1:
            misfits.append(Misfit(first, error.field, str(error)))
            return []
    middle = len(rows) // 2
    return [
        *_fitting_parts(rows[:middle], first, schema, misfits),
        *_fitting_parts(rows[middle:], first + middle, schema, misfits),
    ]


class _FieldError(ValueError):
    def __init__(self, field: str, line: str) -> None:
        super().__init__(line)
        self.field = field


def _columns(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """All fields at once, which Arrow does fastest; one after the other where something may not fit, or where Arrow
    would take a value for another."""
    if is_seen(schema):
        _refuse_unseen(rows, schema)
    made = None
    if all(are_plain([row.get(name) for row in rows], kind) for name, kind in _misleading(schema)):
        with suppress(*MISFITS):
            made = pa.RecordBatch.from_struct_array(pa.array(rows, pa.struct(schema)))
    if made is None or _nulls_where_forbidden(made) or any(map(are_infinite, made.columns)):
        made = _field_by_field(rows, schema)
    if schema.names and all(made.column(at).null_count for at in range(made.num_columns)):
        names = schema.names
        if any(row.keys().isdisjoint(names) for row in rows):
            misfit = nameless(0, names)
            raise _FieldError(misfit.field, misfit.error)
    return made


def _refuse_unseen(rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    """Raises at the first value of a field that the schema does not have."""
    names = set(schema.names)
    if not names.issuperset(set().union(*rows)):
        for row in rows:
            if (misfit := unseen(0, row, names)) is not None:
                raise _FieldError(misfit.field, misfit.error)
    for field in schema:
        try:
            refuse_unseen_fields((row.get(field.name) for row in rows), field)
        except NestedMisfitError as error:
            raise _FieldError(error.field, f"field '{error.field}': {error}") from error


def unseen(row: int, values: dict[str, Any], names: Collection[str]) -> Misfit | None:
    """A row that has a value in another field than `names`, which samples had; with None there nothing is lost."""
    for name, value in values.items():
        if name not in names and value is not None:
            return Misfit(row, str(name), f"field '{name}': {UNSEEN}")
    return None


def nameless(row: int, names: Sequence[str]) -> Misfit:
    return Misfit(row, names[0], f"the row has none of the fields {', '.join(names)}")


def _field_by_field(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        name = field.name
        try:
            columns.append(_from_values([row.get(name) for row in rows], field))
        except MISFITS as error:
            path = _path_to(error, name)
            raise _FieldError(path, f"field '{path}': {first_line(error)}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _misleading(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema if may_mislead(field.type)]


def moments(column: Any, kind: pa.DataType) -> Any:
    """The values of a pandas column that is to be of a type. Times without a zone, which Arrow takes for UTC, are of
    that of the type: of an hour that comes twice the second, as in Spark's own Python, and one that is left out ends
    when it begins. Spark knows no nanoseconds. Times of Python's stay, for `fitted`."""
    values = column.values
    if not pa.types.is_timestamp(kind):
        return values
    is_local = column.dtype.kind == "M" and getattr(column.dtype, "tz", None) is None
    if is_local and (zone := zone_of(kind)) is not None:
        local = column.dt.tz_localize(zone, ambiguous=False, nonexistent="shift_forward")
        values = local.dt.tz_convert(UTC).dt.tz_localize(None).values
    is_of_numpy = isinstance(values, np.ndarray) and values.dtype.kind == "M"
    return values.astype("datetime64[us]") if is_of_numpy else values


def _from_values(values: Sequence[Any], field: pa.Field, *, in_frame: bool = False) -> pa.Array:
    """Values are looked at one by one only where their types, or what Arrow makes of them, are a reason to."""
    made = None
    if are_plain(values, field.type):
        with suppress(*MISFITS):
            made = pa.array(values, field.type, from_pandas=in_frame)
    if made is None or are_infinite(made):
        looked_at = [fitted(value, field.type, field.name, in_frame=in_frame) for value in values]
        made = pa.array(looked_at, field.type, from_pandas=in_frame)
    return _without_forbidden_nulls(made, field)


def columns_to_schema(made: pa.RecordBatch | pa.Table, schema: pa.Schema) -> tuple[pa.RecordBatch, list[Misfit]]:
    """What Arrow code returned, with the columns of `schema`: as it is where it fits, cast where it can be."""
    rows = _one_batch(made)
    if rows.schema.equals(schema) and not _nulls_where_forbidden(rows):
        return rows, []
    return _cast(schema, rows.schema.names, rows.num_rows, rows.column, _cast_column)


def frame_to_schema(frame: Any, schema: pa.Schema) -> tuple[pa.RecordBatch, list[Misfit]]:
    """What pandas code returned, as columns of `schema`. NaN and None are null, as Spark has it, and a time without a
    zone is what the session's clock showed."""

    def values_of(name: str) -> Any:
        return moments(frame[name], schema.field(name).type)

    return _cast(schema, list(frame.columns), len(frame), values_of, _from_pandas)


def _cast(
    schema: pa.Schema,
    names: Sequence[str],
    rows: int,
    column: Callable[[str], Any],
    convert: Callable[[Any, pa.Field], pa.Array],
) -> tuple[pa.RecordBatch, list[Misfit]]:
    present = set(names)
    for field in schema:
        if field.name not in present:
            raise MissingColumnError(field.name, names)
    columns, misfits = [], []
    for field in schema:
        values = column(field.name)
        try:
            columns.append(convert(values, field))
        except MISFITS as error:
            misfits += _misfits_of_column(values, field, convert, rows, error)
    if not misfits:
        return pa.RecordBatch.from_arrays(columns, schema=schema), []
    misfits = list({misfit.row: misfit for misfit in reversed(misfits)}.values())
    unfit = {misfit.row for misfit in misfits}
    if len(unfit) == rows:  # perhaps not even none of its values can be converted
        return pa.RecordBatch.from_pylist([], schema=schema), sorted(misfits, key=lambda misfit: misfit.row)
    fitting = pa.array([position for position in range(rows) if position not in unfit], pa.int64())
    kept = [convert(_pick(column(field.name), fitting), field) for field in schema]
    return pa.RecordBatch.from_arrays(kept, schema=schema), sorted(misfits, key=lambda misfit: misfit.row)


def _misfits_of_column(
    values: Any, field: pa.Field, convert: Callable[[Any, pa.Field], pa.Array], rows: int, error: Exception
) -> list[Misfit]:
    """All rows at once where the kind of column does not fit, whatever is in it: whole numbers to be text."""
    try:
        convert(values[:0], field)
    except MISFITS:
        return [_misfit(row, field, error) for row in range(rows)]
    return _find_misfits(values, field, convert, 0, rows, error)


def _misfit(row: int, field: pa.Field, error: Exception) -> Misfit:
    path = _path_to(error, field.name)
    return Misfit(row, path, f"field '{path}': {first_line(error)}")


def _path_to(error: Exception, name: str) -> str:
    """The field that does not fit: one inside of the field `name`, where the error says so."""
    return error.field if isinstance(error, NestedMisfitError) else name


def _find_misfits(
    values: Any, field: pa.Field, convert: Callable[[Any, pa.Field], pa.Array], start: int, stop: int, error: Exception
) -> list[Misfit]:
    """Halves are tried until the values that do not fit stand alone."""
    if stop - start == 1:
        return [_misfit(start, field, error)]
    middle = (start + stop) // 2
    misfits = []
    for low, high in ((start, middle), (middle, stop)):
        try:
            convert(values[low:high], field)
        except MISFITS as raised:
            misfits += _find_misfits(values, field, convert, low, high, raised)
    return misfits


def _pick(values: Any, positions: pa.Array) -> Any:
    return values.take(positions) if isinstance(values, pa.Array) else values.take(positions.to_numpy())


def _cast_column(values: pa.Array, field: pa.Field) -> pa.Array:
    made = values
    if not values.type.equals(field.type):
        refuse_other_meanings(values.type, field)
        made = moments_on_clock(values, field.type).cast(field.type)
        refuse_new_infinities(values, made)
    return _without_forbidden_nulls(made, field)


def _from_pandas(values: Any, field: pa.Field) -> pa.Array:
    is_of_numpy = isinstance(values, np.ndarray)
    if is_of_numpy and values.dtype.kind == "O":
        return _from_values(values, field, in_frame=True)
    _refuse_other_kind(pa.array(values[:0], from_pandas=True).type, field)
    if is_of_numpy and values.dtype.kind == "f" and pa.types.is_integer(field.type):
        refuse_inexact(values)
    made = pa.array(values, type=field.type, from_pandas=True)
    if are_infinite(made):
        refuse_new_infinities(pa.array(values, from_pandas=True), made)
    return _without_forbidden_nulls(made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made, field)


def _refuse_other_kind(given: pa.DataType, field: pa.Field) -> None:
    """Of a column of a frame that holds no objects. Arrow takes the memory of numbers for text, and reads text that
    pandas keeps in Arrow as numbers."""
    kind = field.type
    refuse_other_meanings(given.value_type if pa.types.is_dictionary(given) else given, field)
    is_text = pa.types.is_string(given) or pa.types.is_large_string(given)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if (is_text and is_number) or (pa.types.is_primitive(given) and pa.types.is_binary(kind)):
        raise TypeError(f"a column of {given} is not {kind}")


def _without_forbidden_nulls(values: pa.Array, field: pa.Field) -> pa.Array:
    if not field.nullable and values.null_count:
        raise ValueError("null where the schema forbids it")
    if pa.types.is_nested(field.type):
        refuse_forbidden_nulls(values, field)
    return values


def _nulls_where_forbidden(rows: pa.RecordBatch) -> bool:
    try:
        for at, field in enumerate(rows.schema):
            if not field.nullable or pa.types.is_nested(field.type):
                _without_forbidden_nulls(rows.column(at), field)
    except ValueError:
        return True
    return False


def _one_batch(made: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    if isinstance(made, pa.RecordBatch):
        return made
    batches = made.to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=made.schema)


def first_line(error: BaseException) -> str:
    """Fit to be written: half a character (a lone surrogate, as `surrogateescape` makes) is told by its number."""
    line = (str(error).splitlines() or [""])[0]
    return line.encode("utf-8", "backslashreplace").decode("utf-8")
