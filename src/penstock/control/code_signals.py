"""Triggers whose condition is code: a function over a pipeline's readings, called with every reading. One that raises
is disabled, and it is said; nobody else notices."""

from __future__ import annotations

import logging
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.control.core.incoming import EditTrigger, Readings
from penstock.control.core.records import TriggerKind
from penstock.control.errors import FieldError
from penstock.jobs.find import find_code_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.control.core.incoming import Incoming, Observation
    from penstock.control.core.records import ControllerState

log = logging.getLogger("penstock.control")


def find_condition(code: str) -> Callable[[Mapping[str, float]], object]:
    """`module:attribute`; imports the module, from the current folder too (after others): only name code you trust."""
    module, _, attribute = code.partition(":")
    find_code_in(Path.cwd())
    try:
        code_found = getattr(import_module(module), attribute)
    except Exception as error:  # the user's module may raise anything while it is imported
        raise FieldError("kind", f"'{code}': {type(error).__name__}: {error}") from error
    if not callable(code_found):
        raise FieldError("kind", f"'{code}': expected a function, found {type(code_found).__name__}")
    condition: Callable[[Mapping[str, float]], object] = code_found
    return condition


def with_signals(state: ControllerState, observations: Sequence[Observation]) -> list[Incoming]:
    """Readings with what the code of their pipeline's triggers says about them."""
    answer: list[Incoming] = []
    for observation in observations:
        record = state.pipelines.get(observation.pipeline) if isinstance(observation, Readings) else None
        triggers = (
            [] if record is None else [trigger for trigger in record.triggers if trigger.kind is TriggerKind.CODE]
        )
        if not isinstance(observation, Readings) or not any(trigger.enabled for trigger in triggers):
            answer.append(observation)
            continue
        signals = dict(observation.signals)
        for trigger in triggers:
            if trigger.enabled:
                try:
                    signals[trigger.id] = float(bool(find_condition(trigger.code)(observation.values)))
                except Exception as error:
                    log.warning("trigger %s of '%s' is disabled: %s", trigger.id, observation.pipeline, error)
                    answer.append(EditTrigger(observation.pipeline, replace(trigger, enabled=False)))
        answer.append(replace(observation, signals=signals))
    return answer
