"""Requests that could not be carried out later, refused before anything is stored: whatever a pass, an executor or a
decision about a size would stumble over. Every refusal names its field."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from penstock.control.core.blame import reason_of
from penstock.control.core.records import MOST_UNITS
from penstock.control.core.states import NodeState
from penstock.control.elasticity.options import checked_options
from penstock.control.errors import FieldError
from penstock.dataflow.load import LEAST_RATE, MOST_RATE, parse_load
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.records import NodeRecord, ServiceTarget, Submission, Trigger
    from penstock.control.core.turn import Turn

LONGEST_LOAD = 10_000
"""Characters."""
LOWEST_LEVEL = 1000
MOST_GAIN = 1e12
"""Tuples of an operator for one of a source's."""
MOST_SLOTS = 10_000
"""Max slots of a node."""
MOST_CAPACITY = 1e15
LONGEST_DWELL = 86_400.0
"""Seconds."""


def check_submission(turn: Turn, asked: Submission) -> None:
    check_sizes(turn, asked.minimum, asked.maximum, asked.desired)
    check_target(asked.target)
    check_load(asked.load)
    check_elastic(asked.elastic)
    if asked.priority is not None:
        check_level(asked.priority)
    check_sizing(turn, asked, asked.target)


def check_sizes(turn: Turn, minimum: int, maximum: int | None, desired: int | None) -> None:
    for field, units in (("minimum", minimum), ("maximum", maximum), ("desired", desired)):
        if units is not None and not 1 <= units <= MOST_UNITS:
            raise FieldError(field, f"expected a whole number from 1 to {MOST_UNITS}, found {units}")
    there = sum(
        node.slots // turn.state.unit_slots
        for node in turn.nodes.values()
        if node.state in {NodeState.ALIVE, NodeState.JOINING}
    )
    if minimum > there:
        raise FieldError("minimum", f"{minimum} is above the {there} the cluster has")
    if maximum is not None and maximum < minimum:
        raise FieldError("maximum", f"{maximum} is below the minimum of {minimum}")
    if desired is not None and desired < minimum:
        raise FieldError("desired", f"{desired} is below the minimum of {minimum}")


def check_target(target: ServiceTarget) -> None:
    """Raise if the rate or the latency of the target is out of range."""
    rate, latency = target.rate, target.latency_ms
    if rate is not None and not LEAST_RATE <= rate <= MOST_RATE:
        raise FieldError("target.rate", f"expected {LEAST_RATE:g} to {MOST_RATE:g} tuples/s, found {rate:g}")
    if latency is not None and not 0 < latency < float("inf"):
        raise FieldError("target.latency_ms", f"expected a number above 0, found {latency:g}")


def check_load(load: str | None) -> None:
    if load is None:
        return
    if len(load) > LONGEST_LOAD:
        raise FieldError("load", f"expected at most {LONGEST_LOAD} characters, found {len(load)}")
    if load.startswith("trace:"):
        raise FieldError("load", "a trace is a file of yours; give its spells as steps:SECONDSxRATE,...")
    try:
        parse_load(load)
    except BadInputError as error:
        raise FieldError("load", str(error).removeprefix("load: ")) from error


def check_elastic(elastic: Mapping[str, Any] | None) -> None:
    if elastic:
        checked_options(elastic)


def check_level(priority: int) -> None:
    if not 1 <= priority <= LOWEST_LEVEL:
        raise FieldError("priority", f"expected a level from 1 to {LOWEST_LEVEL}, found {priority}")


def check_sizing(turn: Turn, submission: Submission, target: ServiceTarget) -> None:
    """All that is asked of the models later is asked once now."""
    sizing, rate = turn.sizing, target.rate or 1.0
    try:
        sizing.units_for(submission, rate)
        sizing.rate_on(submission, 1)
        sizing.usage(submission, rate)
        cost, gains = sizing.batch_cost(submission), sizing.gains_of(submission)
    except Exception as error:
        raise FieldError("pipeline", reason_of(error)) from error
    for operator, gain in gains.items():
        if not 0 <= gain <= MOST_GAIN:
            raise FieldError(
                "pipeline",
                f"operator '{operator}' gets {gain:g} tuples for one of a source's; at most {MOST_GAIN:g} can be "
                "counted: lower selectivities or constants before it",
            )
    if not isfinite(cost):
        raise FieldError("pipeline", f"its models say that a batch takes {cost:g} s")


def node_fault(node: NodeRecord, unit_slots: int) -> str | None:
    """Why a node cannot be used; None: it can."""
    if not 1 <= node.slots <= MOST_SLOTS:
        return f"expected 1 to {MOST_SLOTS} slots, found {node.slots}"
    if node.slots % unit_slots:
        return f"{node.slots} is no whole number of units of {unit_slots} slots"
    for resource, amount in node.capacity.items():
        if not 0 <= amount <= MOST_CAPACITY:
            return f"{resource}: expected 0 to {MOST_CAPACITY:g}, found {amount:g}"
    return None


def check_trigger(trigger: Trigger) -> None:
    check_level(trigger.priority)
    for field, value in (("above", trigger.above), ("below", trigger.below), ("share", trigger.share)):
        if value is not None and not isfinite(value):
            raise FieldError(field, f"expected a number, found {value:g}")
    if not 0 <= trigger.for_seconds <= LONGEST_DWELL:
        raise FieldError("for_seconds", f"expected 0 to {LONGEST_DWELL:g} seconds, found {trigger.for_seconds:g}")
