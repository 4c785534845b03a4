"""Triggers whose condition is code: a function over a pipeline's readings, asked with every reading in a process of its
own. Its answer counts from the next reading on. One that fails is disabled, with an event; no other trigger notices."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control import user_code
from penstock.control.core.messages import DisableTrigger, Readings
from penstock.control.core.trigger_kinds import find_kind
from penstock.control.user_code import USER_CODE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.control.core.messages import Incoming, Observation
    from penstock.control.core.records import ControllerState, Trigger
    from penstock.control.elasticity.memory import SizeVerdict
    from penstock.control.user_code import UserCode


log = logging.getLogger("penstock.control")


class CodeSignals:
    """Adds the last answers of a pipeline's trigger code to its readings."""

    def __init__(self, code: UserCode = USER_CODE) -> None:
        self._code = code
        self._own = object()
        """Answers to another controller of this process are not for this one."""

    def __call__(self, state: ControllerState, observations: Sequence[Observation]) -> list[Incoming]:
        return [incoming for observation in observations for incoming in self._with_signals(state, observation)]

    def _with_signals(self, state: ControllerState, observation: Observation) -> Iterator[Incoming]:
        record = state.pipelines.get(observation.pipeline) if isinstance(observation, Readings) else None
        if not isinstance(observation, Readings) or record is None:
            yield observation
            return
        signals = dict(observation.signals)
        for trigger in record.triggers:
            if not find_kind(trigger.kind).runs_code or not trigger.enabled:
                continue
            key = (self._own, record.name, record.number, trigger.id)
            answer = self._code.answer(key)
            if answer is not None and answer.error is not None:
                self._code.forget(key)
                yield _disabled(record.name, trigger, answer.error)
                continue
            if answer is not None:
                signals[trigger.id] = answer.value
            self._code.ask(key, trigger.code, observation.values, truth=True)
        yield replace(observation, signals=signals) if signals != observation.signals else observation


def _disabled(pipeline: str, trigger: Trigger, why: str) -> DisableTrigger:
    log.warning("trigger %s of '%s' is disabled: %s: %s", trigger.id, pipeline, trigger.code, why)
    return DisableTrigger(pipeline, trigger.id, f"{trigger.code}: {why}")


# A user's hook that may veto a change: `module:attribute`, called with the verdict as plain values in a separate
# process. It returns None (allow) or a reason. No decision is made while the call is pending. A hook that fails vetoes
# nothing; the failure is reported.


FRESH_SECONDS = 10.0
"""An answer to an earlier question says nothing of this one."""


class StillAskedError(Exception):
    """The answer is not there yet: the decision is made again with the next look."""


class Veto:
    """The hook of one pipeline, for one decision."""

    def __init__(self, code: str, pipeline: str) -> None:
        self.code = code
        self._pipeline = pipeline
        self.failed: str | None = None
        """Why it could not be asked."""

    def __call__(self, verdict: SizeVerdict) -> str | None:
        """Why this may not be; None: it may."""
        asked = user_code.USER_CODE
        key = (self.code, self._pipeline, verdict.kind, verdict.units)
        answer = asked.answer(key, FRESH_SECONDS)
        if answer is None:
            plain = {"units": verdict.units, "why": verdict.why, "expected": dict(verdict.expected)}
            asked.ask(key, self.code, {"kind": str(verdict.kind), **plain})
            raise StillAskedError
        asked.forget(key)
        self.failed = answer.error
        return None if answer.error is not None else answer.value


def veto_of(code: str, pipeline: str) -> Veto | None:
    """None where none is named."""
    return Veto(code, pipeline) if code else None
