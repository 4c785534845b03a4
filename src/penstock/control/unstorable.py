"""Whose values a store cannot take: numbers beyond its integers, NaN, text that is no Unicode. Asked only
after a step could not be written for another reason than the store itself."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import OperationalError

from penstock.control.core.plain import LARGEST_INTEGER
from penstock.control.store import rows
from penstock.control.store.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.control.core.outcome import StepOutcome
    from penstock.control.core.records import ControllerState


def is_of_the_store(error: Exception) -> bool:
    """Full, locked or gone: no value is to blame."""
    return isinstance(error, StoreError) and isinstance(error.__cause__, OperationalError)


def unstorable(before: ControllerState, made: StepOutcome) -> dict[str, str]:
    """Return the fault of each pipeline whose values this step could not write."""
    faults: dict[str, str] = {}
    for pipeline, value in _written(before, made):
        fault = fault_of(value)
        if fault is not None:
            faults.setdefault(pipeline, f"it cannot be stored: {fault}")
    return faults


def _written(before: ControllerState, made: StepOutcome) -> Iterator[tuple[str, Any]]:
    for name, record in made.state.pipelines.items():
        if before.pipelines.get(name) is not record:
            yield name, rows.pipeline_row(record)
            yield name, rows.submission_row(record)
            yield name, rows.holding_rows(record)
            yield name, [rows.trigger_row(name, trigger) for trigger in record.triggers]
    for decision in made.decisions:
        if decision.pipeline in made.state.pipelines:
            yield decision.pipeline, rows.decision_row(decision)
    for event in made.events:
        if event.subject in made.state.pipelines:
            yield event.subject, rows.event_row(event)


def fault_of(value: Any, where: str = "") -> str | None:
    """Describe the part of a plain value that cannot be stored and read again; None if all can."""
    fault: str | None = f"{where}: {type(value).__name__}"
    match value:
        case bool() | None:
            fault = None
        case int():
            fault = None if abs(value) <= LARGEST_INTEGER else f"{where}: a number of {value.bit_length()} bits"
        case float():
            fault = None if isfinite(value) else f"{where}: {value}"
        case str():
            fault = None if value.isascii() or _is_unicode(value) else f"{where}: text that is no Unicode"
        case dict():
            faults = (fault_of(part, str(name)) or fault_of(name, "a name") for name, part in value.items())
            fault = next(filter(None, faults), None)
        case list() | tuple():
            fault = next(filter(None, (fault_of(part, where) for part in value)), None)
    return fault


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
