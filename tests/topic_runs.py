"""A fused pipeline from a topic into a topic, for tests that count what the topics hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

import penstock
from penstock.connectors.log_contract import TopicLog
from penstock.connectors.topic_address import LogAddress


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": str(2 * int(row["value"])).encode()}


def doubling(address: LogAddress, prefix: str = "", **options: str) -> penstock.Pipeline:
    """in -> double -> out, topics by that name behind `prefix`; what is no number is a dead letter."""
    built = penstock.pipeline("doubling")
    built.source("in", format=address.format, options={**address.options, "subscribe": f"{prefix}in", **options})
    built.then("double", logic=double, schema="value binary")
    built.sink("out", format=address.format, options={**address.options, "topic": f"{prefix}out"})
    return built.build()


def fill(log: TopicLog, first: int, end: int, partitions: int = 3, prefix: str = "") -> None:
    log.create(f"{prefix}in", partitions)
    log.create(f"{prefix}out", 2)
    producer = log.producer()
    producer.send(f"{prefix}in", [str(number).encode() for number in range(first, end)])
    producer.close()


def lost_and_doubled(log: TopicLog, messages: int, prefix: str = "") -> tuple[int, int]:
    """By what a reader of committed messages finds in the topic."""
    counts: Counter[int] = Counter()
    for partition, span in log.spans(f"{prefix}out").items():
        for batch in log.read(f"{prefix}out", partition, span.first, span.end):
            counts.update(int(value) for value in batch["value"].to_pylist())
    missing = sum(counts[2 * number] == 0 for number in range(messages))
    return missing, counts.total() - len(counts)
