"""What a placed run writes into topics must be what Spark's to_json and CAST AS STRING give; no Spark is asked here.

`tests/spark/fused/test_message_text.py` asks it about the same table.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from message_texts import JSON_ROWS, TEXTS, typed
from penstock.connectors.staged_sinks import as_messages


@pytest.mark.parametrize(("kind", "value", "json_text"), JSON_ROWS, ids=str)
def test_a_row_is_json_as_spark_writes_it(kind: str, value: object, json_text: str | None) -> None:
    rows = pa.RecordBatch.from_arrays([typed(kind, value), pa.array([1])], names=["a", "n"])
    (message,) = as_messages(rows)["value"].to_pylist()
    assert message.decode() == ('{"n":1}' if json_text is None else f'{{"a":{json_text},"n":1}}')


@pytest.mark.parametrize(("kind", "value", "text"), TEXTS, ids=str)
def test_keys_and_values_are_cast_to_text(kind: str, value: object, text: bytes | None) -> None:
    column = typed(kind, value)
    messages = as_messages(pa.RecordBatch.from_arrays([column, column], names=["key", "value"]))
    assert messages["key"].to_pylist() == messages["value"].to_pylist() == [text]


def test_a_zone_changes_nothing_and_finer_times_are_cut() -> None:
    times = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", tz="Europe/Berlin"))
    rows = pa.RecordBatch.from_arrays([times], names=["at"])
    assert as_messages(rows)["value"].to_pylist() == [b'{"at":"2023-11-14T22:13:20.123Z"}']
