"""The table that placed runs are held to, asked of Spark itself."""

from __future__ import annotations

from typing import Any

from message_texts import JSON_ROWS, TEXTS
from penstock.engines.fused.sinks.topic_writer import as_messages


def test_spark_writes_what_the_table_says(session: Any) -> None:
    zone = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        wrong = []
        for kind, value, json_text in JSON_ROWS:
            frame = session.createDataFrame([(value, 1)], f"a {kind}, n int")
            text = bytes(as_messages(frame).collect()[0]["value"]).decode()
            expected = '{"n":1}' if json_text is None else f'{{"a":{json_text},"n":1}}'
            wrong += [(kind, value, text)] if text != expected else []
        for kind, value, expected_text in TEXTS:
            frame = session.createDataFrame([(value, value)], f"key {kind}, value {kind}")
            key = as_messages(frame).collect()[0]["key"]
            wrong += [(kind, value, key)] if (None if key is None else bytes(key)) != expected_text else []
    finally:
        session.conf.set("spark.sql.session.timeZone", zone)
    assert wrong == []
