"""A pipeline in Python, two ways. Plan it with: penstock plan examples.builder:words --rate 20"""

from __future__ import annotations

from typing import Any

import penstock

# A chain of calls that reads like the pipeline.
words = (
    penstock.pipeline("words")
    .source("lines")
    .then("split", model="parse_xml")
    .then("count", model="azure_table", selectivity=8, grouping="fields", key="word")
    .sink("out", selectivity=0.1)
    .build()
)

# Decorators on the functions the operators run; `reads` names what they read from.
clicks = penstock.pipeline("clicks")
clicks.source("events")


@clicks.operator(reads="events", model="parse_xml")
def parse(row: Any) -> Any:
    return row


@clicks.operator(reads="parse", model="azure_table", selectivity=0.5, grouping="fields", key="user")
def enrich(row: Any) -> Any:
    return row


clicks.sink("store", reads=["parse", "enrich"])

if __name__ == "__main__":
    for built in (words, clicks.build()):
        plan = penstock.plan(built, rate=20)
        print(f"{built.name}: {plan.allocation.slots_with_sources_and_sinks} slots, {plan.cluster.price:.3f} per hour")
