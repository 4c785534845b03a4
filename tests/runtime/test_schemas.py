"""Schemas: inferred, and what does not fit them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import BadInputError
from penstock.runtime.schemas import (
    MissingColumnError,
    as_seen,
    columns_to_schema,
    frame_to_schema,
    infer_schema,
    rows_to_columns,
)


class Row(tuple[Any, ...]):
    """As Spark has it: its fields have names, and Arrow would read them by position."""

    names: tuple[str, ...]

    def __new__(cls, **fields: Any) -> Row:
        made = super().__new__(cls, fields.values())
        made.names = tuple(fields)
        return made

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return dict(zip(self.names, self, strict=True))


SCHEMA = pa.schema([pa.field("a", pa.int64()), pa.field("s", pa.string())])


@pytest.mark.parametrize(
    ("samples", "kinds"),
    [
        ([{"x": 1}, {"x": 2}], {"x": pa.int64()}),
        ([{"x": 1}, {"x": 2.5}], {"x": pa.float64()}),
        ([{"x": None}, {"x": True}], {"x": pa.bool_()}),
        ([{"x": 1}, {"y": "t"}], {"x": pa.int64(), "y": pa.string()}),
        ([{"x": {"y": [1, 2]}}], {"x": pa.struct([("y", pa.list_(pa.int64()))])}),
        ([{"x": b"1", "d": dt.date(2020, 1, 1)}], {"x": pa.binary(), "d": pa.date32()}),
    ],
)
def test_inferred(samples: list[dict[str, Any]], kinds: dict[str, pa.DataType]) -> None:
    assert infer_schema(samples, "op") == pa.schema(list(kinds.items()))


@pytest.mark.parametrize(
    ("samples", "error"),
    [
        ([], "operator 'op': no sample"),
        ([{"x": None}], "operator 'op', field 'x': every sample holds None"),
        ([{"x": 1}, {"x": "one"}], "operator 'op', field 'x': its type cannot be inferred"),
        ([{"x": object()}], "operator 'op', field 'x': its type cannot be inferred"),
    ],
)
def test_what_cannot_be_inferred_names_its_field(samples: list[dict[str, Any]], error: str) -> None:
    with pytest.raises(BadInputError, match=error):
        infer_schema(samples, "op")


def test_rows_that_fit_and_rows_that_do_not() -> None:
    rows: list[dict[str, Any]] = [
        {"a": 1, "s": "x"},
        {"a": 2.5, "s": "x"},  # would lose half a unit
        {"a": 2.0, "s": None, "more": 1},
        {"s": 7},
        {"b": 1},
        {"a": 2**70, "s": "x"},
        {"a": 5},
    ]
    made, misfits = rows_to_columns(rows, SCHEMA)
    assert made.to_pylist() == [{"a": 1, "s": "x"}, {"a": 2, "s": None}, {"a": 5, "s": None}]
    assert [(misfit.row, misfit.field) for misfit in sorted(misfits, key=lambda m: m.row)] == [
        (1, "a"),
        (3, "s"),
        (4, "a"),
        (5, "a"),
    ]
    assert next(m.error for m in misfits if m.row == 4) == "the row has none of the fields a, s"


def test_a_field_that_no_sample_had_is_no_less_a_field() -> None:
    """Of a schema that was given it is left out; one that was seen from samples says nothing of it."""
    rows: list[dict[str, Any]] = [
        {"a": 1, "u": {"k": 1}},
        {"a": 2, "u": {"k": 2}, "late": "x"},
        {"a": 3, "u": {"k": 3}, "late": None},
        {"a": 4, "u": {"k": 4, "more": [1]}},
        {"a": 5, "u": {"k": 5, "more": None}},
    ]
    given = pa.schema([("a", pa.int64()), ("u", pa.struct([("k", pa.int64())]))])
    made, misfits = rows_to_columns(rows, given)
    assert (made.column("a").to_pylist(), misfits) == ([1, 2, 3, 4, 5], [])
    made, misfits = rows_to_columns(rows, as_seen(given))
    assert made.column("a").to_pylist() == [1, 3, 5]
    assert [(misfit.row, misfit.field) for misfit in misfits] == [(1, "late"), (3, "u.more")]
    assert misfits[0].error == (
        "field 'late': no sample had it when the schema was found out; give schema='NAME TYPE, ...'"
    )
    assert "'u.more'" in misfits[1].error


def test_fields_inside_of_arrays_and_maps_that_no_sample_had() -> None:
    inner = pa.struct([("k", pa.int64())])
    seen = as_seen(pa.schema([("l", pa.list_(inner)), ("m", pa.map_(pa.string(), inner))]))
    rows: list[dict[str, Any]] = [
        {"l": [{"k": 1}, {"k": 2, "x": 3}], "m": None},
        {"l": None, "m": {"one": {"k": 1, "x": 3}}},
        {"l": [None], "m": {"one": {"k": 1}}},
    ]
    made, misfits = rows_to_columns(rows, seen)
    assert (made.num_rows, [misfit.field for misfit in misfits]) == (1, ["l.element.x", "m.value.x"])


def test_null_where_the_schema_forbids_it() -> None:
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    for made, misfits in (
        rows_to_columns([{"a": 1}, {"a": None}], strict),
        frame_to_schema(pd.DataFrame({"a": [1, None]}), strict),
        columns_to_schema(pa.table({"a": [1, None]}), strict),
    ):
        assert made.to_pylist() == [{"a": 1}]
        assert [(misfit.row, misfit.field) for misfit in misfits] == [(1, "a")]


def test_columns_that_fit_are_not_touched_and_others_are_cast() -> None:
    fitting = pa.RecordBatch.from_pydict({"a": [1, 2], "s": ["x", "y"]}, schema=SCHEMA)
    assert columns_to_schema(fitting, SCHEMA)[0] is fitting
    narrow = pa.table({"s": ["x", "y"], "a": pa.array([1, 2], pa.int8()), "more": [0, 0]})
    assert columns_to_schema(narrow, SCHEMA)[0].equals(fitting)
    text = pa.table({"a": ["1", "two"], "s": ["x", "y"]})
    made, misfits = columns_to_schema(text, SCHEMA)
    assert made.to_pylist() == [{"a": 1, "s": "x"}]
    assert [(misfit.row, misfit.field) for misfit in misfits] == [(1, "a")]


def test_frames_become_columns_as_spark_has_it() -> None:
    frame = pd.DataFrame({"s": ["x", None], "a": [1.0, np.nan]}, index=[7, 7])
    assert frame_to_schema(frame, SCHEMA)[0].to_pylist() == [{"a": 1, "s": "x"}, {"a": None, "s": None}]
    with pytest.raises(MissingColumnError, match="no column 's', only a"):
        frame_to_schema(frame[["a"]], SCHEMA)


def test_an_empty_result_has_its_schema() -> None:
    for made in (
        columns_to_schema(pa.schema(SCHEMA).empty_table(), SCHEMA)[0],
        frame_to_schema(pd.DataFrame({"a": [], "s": []}), SCHEMA)[0],
        rows_to_columns([], SCHEMA)[0],
    ):
        assert made.num_rows == 0
        assert made.schema == SCHEMA


@given(st.lists(st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=3), st.none()), max_size=30))
def test_every_row_either_fits_or_is_named(values: list[Any]) -> None:
    rows = [{"a": value, "s": str(position)} for position, value in enumerate(values)]
    made, misfits = rows_to_columns(rows, SCHEMA)
    kept = {int(position) for position in made.column("s").to_pylist()}
    unfit = {misfit.row for misfit in misfits}
    assert kept.isdisjoint(unfit)
    assert kept | unfit == set(range(len(values)))
    assert len(misfits) == len(unfit), "one letter a row"


STRUCT = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.list_(pa.int32()))])
WITHIN = {
    "a struct": (STRUCT, {"a": 1, "b": [1]}, {"a": 2.9, "b": []}, "f.a"),
    "null in a struct": (STRUCT, {"a": 1, "b": None}, {"a": None, "b": []}, "f.a"),
    "an array": (pa.list_(pa.int32()), [1, 2.0, None], [1, 1.7], "f.element"),
    "an array in a struct": (STRUCT, {"a": 1, "b": [2]}, {"a": 2, "b": [0.5]}, "f.b.element"),
    "null in an array": (pa.list_(pa.field("element", pa.int32(), nullable=False)), [], [1, None], "f.element"),
    "a map": (pa.map_(pa.string(), pa.int64()), {"a": 1}, {"a": 1.5}, "f.value"),
    "null in a map": (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), {}, {"a": None}, "f.value"),
    "a map's key": (pa.map_(pa.int64(), pa.string()), {1: "a"}, {1.5: "a"}, "f.key"),
    "an array of structs": (pa.list_(STRUCT), [{"a": 1, "b": []}], [{"a": 1.5, "b": []}], "f.element.a"),
}


@pytest.mark.parametrize("name", WITHIN)
def test_what_does_not_fit_within_a_field_is_named_by_its_path(name: str) -> None:
    kind, fits, unfit, path = WITHIN[name]
    schema = pa.schema([("f", kind)])
    values = [fits, None, unfit, fits]
    frame = pd.DataFrame({"f": pd.Series(values, dtype=object)})
    for made, misfits in (
        rows_to_columns([{"f": value} for value in values], schema),
        frame_to_schema(frame, schema),
    ):
        assert [(misfit.row, misfit.field) for misfit in misfits] == [(2, path)]
        assert f"field '{path}': " in misfits[0].error
        assert made.equals(pa.RecordBatch.from_arrays([pa.array([fits, None, fits], kind)], schema=schema))


def test_null_within_a_column_of_arrow_is_seen() -> None:
    schema = pa.schema([("f", STRUCT)])
    rows = pa.RecordBatch.from_pylist([{"f": {"a": None}}, {"f": {"a": 1}}, {"f": None}], schema=schema)
    for columns in (rows, rows.slice(1), pa.Table.from_batches([rows])):
        made, misfits = columns_to_schema(columns, schema)
        assert [misfit.field for misfit in misfits] == (["f.a"] if columns.num_rows == 3 else [])
        assert made.num_rows == 2


@pytest.mark.parametrize(
    ("column", "kind"), [([1, 2, 3], pa.string()), ([0.1, 0.2, 0.3], pa.decimal128(10, 2)), (["x"] * 3, pa.int64())]
)
def test_a_column_that_does_not_fit_at_all_names_its_field(column: list[Any], kind: pa.DataType) -> None:
    schema = pa.schema([("f", kind), ("g", pa.int64())])
    made, misfits = frame_to_schema(pd.DataFrame({"f": column, "g": [1, 2, 3]}), schema)
    assert made.num_rows == 0
    assert made.schema == schema
    assert [(misfit.row, misfit.field) for misfit in misfits] == [(0, "f"), (1, "f"), (2, "f")]


TEXTS = pa.list_(pa.string())
TIME = pa.timestamp("us", "UTC")
PERSON = pa.struct([("name", pa.string()), ("born", pa.date32())])
NOON = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)
OTHERWISE = {
    "text for an array": (TEXTS, ["abc"], "abc", "f"),
    "bytes for an array": (pa.list_(pa.int64()), [1], b"abc", "f"),
    "text within an array": (pa.list_(TEXTS), [["abc"]], ["abc"], "f.element"),
    "a number for a time": (TIME, NOON, 1_700_000_000, "f"),
    "a number of numpy for a time": (pa.timestamp("us"), None, np.int64(5), "f"),
    "a float for a time": (TIME, NOON, 1.7e9, "f"),
    "a number for a day": (pa.date32(), NOON.date(), 20_260_701, "f"),
    "a number for a duration": (pa.duration("us"), dt.timedelta(1), 86_400, "f"),
    "a number for a time in an array": (pa.list_(TIME), [NOON], [NOON, 5], "f.element"),
    "numbers of numpy for times in an array": (pa.list_(TIME), [], np.array([5]), "f.element"),
    "a time for a number": (pa.int64(), 7, NOON, "f"),
    "a time of numpy for a number": (pa.int64(), 7, np.datetime64("2026-07-01T12:00", "ns"), "f"),
    "text for a number": (pa.int64(), 7, "12", "f"),
    "text for a number within": (pa.map_(pa.string(), pa.int32()), {"a": 7}, {"a": "12"}, "f.value"),
    "endless": (pa.int64(), 7, Decimal("Infinity"), "f"),
    "names misspelt": (PERSON, {"name": "Ada"}, {"nmae": "Ada", "bron": None}, "f"),
    "no names": (PERSON, {"name": "Ada", "born": None}, {}, "f"),
    "names misspelt within": (pa.list_(PERSON), [{"born": None}], [{"nmae": "Ada"}], "f.element"),
    "a tuple for a struct": (PERSON, ("Ada", NOON.date()), ("Ada", 5), "f.born"),
    "a tuple too long": (PERSON, ("Ada", None), ("Ada", None, None), "f"),
    "beyond 32 bits": (pa.float32(), 3.4028235e38, -1e39, "f"),
    "beyond 32 bits within": (pa.list_(pa.float32()), [float("inf")], [float("inf"), 1e300], "f.element"),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_arrow_would_take_for_something_else_does_not_fit(name: str) -> None:
    kind, fits, unfit, path = OTHERWISE[name]
    schema = pa.schema([("f", kind)])
    values = [fits, None, unfit, fits]
    frame = pd.DataFrame({"f": pd.Series(values, dtype=object)})
    for made, misfits in (rows_to_columns([{"f": value} for value in values], schema), frame_to_schema(frame, schema)):
        assert [(misfit.row, misfit.field) for misfit in misfits] == [(2, path)]
        assert made.equals(pa.RecordBatch.from_arrays([pa.array([fits, None, fits], kind)], schema=schema))


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pd.to_datetime(["2026-07-01"]), pa.int64()),
        (pd.to_timedelta(["1s"]), pa.int64()),
        (np.array([5]), TIME),
        (pd.array([5], "Int64"), TIME),
        (pd.Categorical([5]), TIME),
        (np.array([5]), pa.duration("us")),
        (np.array([1e300]), pa.float32()),
        (pd.array(["5"], "string[pyarrow]"), pa.int64()),
        (np.array([5]), pa.binary()),
    ],
)
def test_a_column_of_a_frame_that_arrow_would_take_for_another_does_not_fit(column: Any, kind: pa.DataType) -> None:
    made, misfits = frame_to_schema(pd.DataFrame({"f": column}), pa.schema([("f", kind)]))
    assert [(misfit.row, misfit.field) for misfit in misfits] == [(0, "f")]
    assert made.num_rows == 0


@pytest.mark.parametrize(
    ("column", "kind", "path"),
    [
        (pa.array([5]), TIME, "f"),
        (pa.array([5], TIME), pa.int64(), "f"),
        (pa.array([5], pa.int32()), pa.date32(), "f"),
        (pa.array([[5]]), pa.list_(TIME), "f.element"),
        (pa.array([1e300]), pa.float32(), "f"),
        (pa.array([[1e300]]), pa.list_(pa.float32()), "f"),
    ],
)
def test_a_column_of_arrow_that_means_something_else_does_not_fit(column: Any, kind: pa.DataType, path: str) -> None:
    made, misfits = columns_to_schema(pa.table({"f": column}), pa.schema([("f", kind)]))
    assert [(misfit.row, misfit.field) for misfit in misfits] == [(0, path)]
    assert made.num_rows == 0


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (TIME, np.datetime64("2026-07-01T12:00:00"), NOON),
        (TIME, np.datetime64("2026-07-01T12:00", "ns"), NOON),
        (TIME, pd.Timestamp(NOON), NOON),
        (TIME, pd.NaT, None),
        (TIME, np.datetime64("NaT"), None),
        (pa.date32(), np.datetime64("2026-07-01"), NOON.date()),
        (pa.date32(), pd.NaT, None),
        (pa.int64(), pd.NA, None),
        (pa.int64(), np.bool_(True), 1),
        (pa.int64(), np.uint8(7), 7),
        (pa.string(), pd.NA, None),
        (pa.duration("us"), np.timedelta64(1, "s"), dt.timedelta(seconds=1)),
        (TEXTS, ["a", pd.NA], ["a", None]),
        (TEXTS, np.array(["a", "b"]), ["a", "b"]),
        (pa.list_(pa.int64()), {3}, [3]),
        (pa.list_(TIME), np.array(["2026-07-01T12:00:00", "NaT"], "datetime64[s]"), [NOON, None]),
        (PERSON, Row(born=None, name="Ada"), {"name": "Ada", "born": None}),
    ],
)
def test_values_and_nulls_of_numpy_and_pandas_are_what_they_are(kind: pa.DataType, given: Any, expected: Any) -> None:
    schema = pa.schema([("f", kind)])
    frame = pd.DataFrame({"f": pd.Series([given, None], dtype=object)})
    for made, misfits in (rows_to_columns([{"f": given}, {"f": None}], schema), frame_to_schema(frame, schema)):
        assert misfits == []
        assert made.to_pylist() == [{"f": expected}, {"f": None}]


@pytest.mark.parametrize("missing", [np.nan, pd.NA, pd.NaT])
@pytest.mark.parametrize(
    "kind", [pa.int32(), TIME, pa.date32(), pa.string(), TEXTS, PERSON, pa.map_(pa.string(), pa.string())], ids=str
)
def test_what_is_missing_in_a_frame_is_null(kind: pa.DataType, missing: Any) -> None:
    frame = pd.DataFrame({"f": pd.Series([missing, None], dtype=object)})
    made, misfits = frame_to_schema(frame, pa.schema([("f", kind)]))
    assert misfits == []
    assert made.column("f").null_count == 2


LARGE = 2**53 + 1
"""The first whole number that no float has."""


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([7.0, float(LARGE), np.nan, -float(LARGE)]),
        pd.Series([7.0, float(LARGE), None, -float(LARGE)], dtype=object),
    ],
    ids=["floats", "objects"],
)
def test_a_float_that_may_stand_for_several_whole_numbers_does_not_fit(column: Any) -> None:
    """What pandas makes of `bigint` with a null among its values."""
    made, misfits = frame_to_schema(pd.DataFrame({"a": column}), pa.schema([("a", pa.int64())]))
    assert made.to_pylist() == [{"a": 7}, {"a": None}]
    assert [(misfit.row, misfit.field) for misfit in misfits] == [(1, "a"), (3, "a")]
    assert misfits[0].error.startswith("field 'a': 9007199254740992 as a float may stand for several whole numbers")


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]", object])
def test_whole_numbers_that_are_no_floats_are_exact(dtype: Any) -> None:
    frame = pd.DataFrame({"a": pd.Series([LARGE, None], dtype=dtype)})
    made, misfits = frame_to_schema(frame, pa.schema([("a", pa.int64())]))
    assert misfits == []
    assert made.to_pylist() == [{"a": LARGE}, {"a": None}]


def test_large_floats_in_an_array_do_not_fit_either() -> None:
    arrays = pa.table({"a": pa.array([[1, None], [LARGE, None], [2]], pa.list_(pa.int64()))})
    made, misfits = frame_to_schema(arrays.to_pandas(), arrays.schema)
    assert made.to_pylist() == [{"a": [1, None]}, {"a": [2]}]
    assert [(misfit.row, misfit.field) for misfit in misfits] == [(1, "a.element")]


def test_a_fraction_among_objects_of_a_frame_does_not_fit() -> None:
    values = [1, Decimal("1999.5"), 2.5, np.float64(3.5), Decimal(4), 5.0, None, np.nan]
    frame = pd.DataFrame({"a": pd.Series(values, dtype=object)})
    made, misfits = frame_to_schema(frame, pa.schema([("a", pa.int64())]))
    assert made.column("a").to_pylist() == [1, 4, 5, None, None]
    assert [(misfit.row, misfit.field) for misfit in misfits] == [(1, "a"), (2, "a"), (3, "a")]
    assert misfits[0].error == "field 'a': 1999.5 is no whole number"
