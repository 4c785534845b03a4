"""How many rows go into an Arrow batch, where that says how many bytes it has."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.engines.fused.query import BATCH_BYTES, MOST_BYTES, MOST_ROWS, NO_LOOK, bounded_by_rows, row_bytes


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (pa.int64(), 1 + 8),
        (pa.bool_(), 1 + 1),
        (pa.date32(), 1 + 4),
        (pa.timestamp("us", "UTC"), 1 + 8),
        (pa.decimal128(10, 2), 1 + 16),
        (pa.null(), 1),
        (pa.struct({"a": pa.int32(), "b": pa.struct({"c": pa.float64()})}), 1 + (1 + 4) + (1 + (1 + 8))),
        (pa.string(), None),
        (pa.binary(), None),
        (pa.list_(pa.int64()), None),
        (pa.map_(pa.int64(), pa.int64()), None),
        (pa.dictionary(pa.int32(), pa.int64()), None),
        (pa.struct({"a": pa.int32(), "b": pa.string()}), None),
    ],
)
def test_bytes_of_a_value(kind: pa.DataType, size: int | None) -> None:
    assert row_bytes(kind) == size


def test_rows_of_fixed_width_are_counted_instead_of_bytes() -> None:
    # a row: 1 + 9 + 9 = 19 bytes; 64 MiB hold 3,532,045 of them
    two = pa.schema({"value": pa.int64(), "at": pa.timestamp("us", "UTC")})
    assert bounded_by_rows([two], 1_000_000) == {MOST_ROWS: "1000000", MOST_BYTES: NO_LOOK}
    assert bounded_by_rows([two], 0) == {MOST_ROWS: str(BATCH_BYTES // 19), MOST_BYTES: NO_LOOK}
    # 1 + 1,000 * 9 = 9,001 bytes: 7,455 rows
    wide = pa.schema({f"c{n}": pa.float64() for n in range(1000)})
    assert bounded_by_rows([two, wide], 1_000_000)[MOST_ROWS] == str(BATCH_BYTES // 9_001)


def test_rows_with_text_are_looked_at_by_spark() -> None:
    text = pa.schema({"word": pa.string()})
    assert bounded_by_rows([text], 1_000_000) == {}
    assert bounded_by_rows([pa.schema({"value": pa.int64()}), text], 1_000_000) == {}
    assert bounded_by_rows([], 1_000_000) == {}
