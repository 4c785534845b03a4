"""`python -P -m penstock.service.what_if_process`: answers what-if questions of its parent, one after the other, and
ends with its standard input."""

from __future__ import annotations

import json
import os
import pickle
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

from penstock.base.errors import BadInputError, PenstockError, Refusal
from penstock.cluster.topology import Cluster, Node
from penstock.control.sizing import ModelSizing
from penstock.control.what_if import as_it_is, node_count, with_change
from penstock.planning.registry import ALLOCATORS, DEFAULT_ALLOCATOR, DEFAULT_PLACER, PLACERS
from penstock.service import documents
from penstock.service.what_if import LENGTH_BYTES, REFUSED

if TYPE_CHECKING:
    from penstock.control.contracts import Sizing
    from penstock.control.core.records import ControllerState
    from penstock.control.what_if import Question, WhatIfOutcome


# The answer to a what-if question: all shares before and after, and the plan of one pipeline.


MOST_POINTS = 300


def answer(state: ControllerState, sizing: Sizing, question: Question, now: float) -> dict[str, Any]:
    changed = with_change(state, sizing, question, now)
    present = as_it_is(state, sizing, question, now)
    return {
        "pipeline": question.pipeline,
        "seconds": question.seconds,
        "nodes": {"before": node_count(state.nodes), "after": node_count(changed.state.nodes if changed.state else {})},
        "series": {"before": _thinned(present), "after": _thinned(changed)},
        "pipelines": [
            {"name": name, "before": present.ends.get(name), "after": end} for name, end in changed.ends.items()
        ],
        "decisions": [documents.decision(decision) for decision in changed.decisions],
        "plan": plan_of(state, sizing, question),
    }


def _thinned(answered: WhatIfOutcome) -> dict[str, list[float | None]]:
    every = max(1, -(-len(answered.series["at"]) // MOST_POINTS))
    return {name: values[::every] for name, values in answered.series.items()}


def _cluster(state: ControllerState, count: int | None) -> Cluster:
    """The nodes that are alive, or as many like the first of them as were asked for."""
    nodes = [Node(node.name, node.rack, node.slots, dict(node.capacity), price=node.price) for node in state.alive()]
    if count is not None and nodes:
        more = [replace(nodes[0], name=f"what-if-{number}") for number in range(count - len(nodes))]
        nodes = [*nodes[:count], *more]
    return Cluster(tuple(nodes))


def plan_of(state: ControllerState, sizing: Sizing, question: Question) -> dict[str, Any] | None:
    """The plan for the rate: threads, slots, latency; None if there are no models."""
    record = state.pipelines[question.pipeline]
    rate = question.rate or record.target.rate
    if rate is None or not isinstance(sizing, ModelSizing) or (planner := sizing.planner(record.submission)) is None:
        return None
    planner = replace(planner, offer=_cluster(state, question.nodes))
    plan = planner.plan(rate, ALLOCATORS.create(DEFAULT_ALLOCATOR), PLACERS.create(DEFAULT_PLACER))
    if isinstance(plan, Refusal):
        allocation = planner.allocate(rate, ALLOCATORS.create(DEFAULT_ALLOCATOR))
        slots = allocation.slots_with_sources_and_sinks
        threads = {operator.name: operator.threads for operator in allocation.operators}
        return {"rate": rate, "slots": slots, "threads": threads, "refused": str(plan), "latency_ms": None}
    document = plan.document()
    return {
        "rate": rate,
        "slots": document["slots"]["allocated_with_ends"],
        "threads": {name: operator["threads"] for name, operator in document["operators"].items()},
        "latency_ms": document["prediction"]["latency_ms"],
        "refused": None,
    }


NICENESS = 10
"""The controller comes first."""


def read(source: BinaryIO) -> Any:
    """The next value of the parent; None at the end."""
    length = source.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    return pickle.loads(source.read(int.from_bytes(length, "big")))  # noqa: S301 - our parent's, over a pipe


def main() -> int:
    os.nice(NICENESS)
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # what user code prints while it is asked must not stand among answers
    os.dup2(2, 1)
    sizing: Sizing = read(source)
    while (asked := read(source)) is not None:
        state, question, now = asked
        try:
            document = answer(state, sizing, question, now)
        except PenstockError as error:
            document = {REFUSED: str(error), "bad_input": isinstance(error, BadInputError)}
        data = json.dumps(document).encode()
        target.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        target.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
