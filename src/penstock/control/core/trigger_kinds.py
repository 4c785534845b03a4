"""The kinds of triggers: when each fires, what it is given, and what it costs.

A kind is a class in the registry `TRIGGER_KINDS`; a package adds one through an entry point of the group
`penstock.triggers`. A trigger names its kind as `name` or `name:option=value,...`: options are the fields of the class.
Besides, all triggers have a dwell time and a priority, and those of a kind that `needs` or `takes` them a threshold, a
lower one for the way back, a share and a field.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from penstock.base.tolerance import covers, exceeds
from penstock.control.metrics import Metric
from penstock.control.registry import TRIGGER_KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.records import Trigger


HYSTERESIS = 0.75
"""A trigger goes off below this part of the value that switches it on, unless `below` says another."""


@dataclass(frozen=True)
class TriggerKind(ABC):
    """A condition over what a pipeline reports. Without state: the same readings give the same answer."""

    fires: ClassVar[str]
    """When it is on, for help and docs."""
    costs: ClassVar[str]
    """What it costs to evaluate, for help and docs."""
    needs: ClassVar[tuple[str, ...]] = ("above",)
    """Fields of the trigger that must be given: above, share, field."""
    takes: ClassVar[tuple[str, ...]] = ("below",)
    """Fields of the trigger that may be given besides."""
    watches_rows: ClassVar[bool] = False
    """The driver evaluates it on the rows of a batch, and reports a signal: the share that meets the condition."""
    runs_code: ClassVar[bool] = False
    """The code of the trigger is asked with each reading, and its answer is the signal."""

    @abstractmethod
    def value(self, trigger: Trigger, values: Mapping[str, float], signals: Mapping[int, float]) -> float | None:
        """Return the value that is compared with the threshold, from the metrics a pipeline reports (`values`) and the
        signals of triggers by their number; None if it is not known."""

    def threshold(self, trigger: Trigger) -> float:
        return trigger.above

    def is_reached(self, value: float, threshold: float) -> bool:
        return exceeds(value, threshold)

    def wants_on(self, trigger: Trigger, values: Mapping[str, float], signals: Mapping[int, float]) -> bool | None:
        """Return whether the trigger should be on; None: between the two thresholds, or not known."""
        value = self.value(trigger, values, signals)
        if value is None or not math.isfinite(value):
            return None
        threshold = self.threshold(trigger)
        if self.is_reached(value, threshold):
            return True
        off_below = HYSTERESIS * threshold if trigger.below is None else trigger.below
        return False if exceeds(off_below, value) else None

    @abstractmethod
    def describe(self, trigger: Trigger) -> str:
        """Return the condition in a few words, for decisions and events."""


class ArrivalRate(TriggerKind):
    fires = "More than `above` rows/s arrive at its sources."
    costs = "Nothing: the rate is reported anyway."

    def value(self, trigger: Trigger, values: Mapping[str, float], signals: Mapping[int, float]) -> float | None:
        return values.get(Metric.OFFERED_RATE)

    def describe(self, trigger: Trigger) -> str:
        return f"arrival rate above {trigger.above:g}/s"


class Lag(TriggerKind):
    fires = "More than `above` messages wait in all topics it reads."
    costs = "Nothing: the lag is reported anyway."

    def value(self, trigger: Trigger, values: Mapping[str, float], signals: Mapping[int, float]) -> float | None:
        return values.get(Metric.LAG)

    def describe(self, trigger: Trigger) -> str:
        return f"more than {trigger.above:g} messages wait"


class BatchShare(TriggerKind):
    fires = "At least the part `share` of a batch has `field` above `above`."
    costs = "One comparison for each row, on the slot that reads it."
    needs = ("above", "field")
    takes = ("below", "share")
    watches_rows = True

    def value(self, trigger: Trigger, values: Mapping[str, float], signals: Mapping[int, float]) -> float | None:
        return signals.get(trigger.id)

    def threshold(self, trigger: Trigger) -> float:
        return trigger.share

    def is_reached(self, value: float, threshold: float) -> bool:
        return covers(value, threshold)

    def describe(self, trigger: Trigger) -> str:
        return f"{100 * trigger.share:g} % of a batch have {trigger.field} above {trigger.above:g}"


class CodeAnswer(TriggerKind):
    fires = "A function of yours (`module:attribute`) returns true for the readings."
    costs = "One call for each reading, in a process of its own with a time limit."
    needs = ()
    takes = ()
    runs_code = True

    def value(self, trigger: Trigger, values: Mapping[str, float], signals: Mapping[int, float]) -> float | None:
        return signals.get(trigger.id)

    def wants_on(self, trigger: Trigger, values: Mapping[str, float], signals: Mapping[int, float]) -> bool | None:
        value = self.value(trigger, values, signals)
        return None if value is None or not math.isfinite(value) else value > 0

    def describe(self, trigger: Trigger) -> str:
        return trigger.code


@lru_cache(maxsize=1024)
def find_kind(asked: str) -> TriggerKind:
    """Return a kind with its options. Raises `BadInputError`."""
    return TRIGGER_KINDS.create(asked)
