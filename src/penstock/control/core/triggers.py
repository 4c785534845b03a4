"""When a trigger goes on and off: a condition, a dwell time, and a lower threshold for the way back.

    on   once the condition has held for `for_seconds`
    off  once the value has been below `below` for `for_seconds`

Between the two thresholds nothing changes, and a value that is not reported changes nothing either.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control.core.records import TriggerKind
from penstock.control.metrics import Metric
from penstock.dataflow.tolerance import covers, exceeds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.records import Trigger

MEASURED = {TriggerKind.ARRIVAL_RATE: Metric.OFFERED_RATE, TriggerKind.LAG: Metric.LAG}
"""Kinds that go by what a pipeline measures."""
HYSTERESIS = 0.75
"""Off below this part of what switches it on, unless said."""


def leaning(trigger: Trigger, values: Mapping[str, float], signals: Mapping[int, float]) -> bool | None:
    """True: it should be on; False: off; None: neither, or not known."""
    metric = MEASURED.get(trigger.kind)
    if metric is not None:
        value, on_at = values.get(metric), trigger.above
    else:
        # code says 1 or 0; a batch's share is of its tuples whose field is above
        value, on_at = signals.get(trigger.id), trigger.share
    if value is None or not math.isfinite(value):
        return None
    if trigger.kind is TriggerKind.CODE:
        return value > 0
    off_at = HYSTERESIS * on_at if trigger.below is None else trigger.below
    reached = covers(value, on_at) if metric is None else exceeds(value, on_at)
    return True if reached else False if exceeds(off_at, value) else None


def evaluated(trigger: Trigger, values: Mapping[str, float], signals: Mapping[int, float], now: float) -> Trigger:
    """The trigger after these readings."""
    if not trigger.enabled or trigger.by_hand:
        return trigger
    leans = leaning(trigger, values, signals)
    if leans is None or leans == trigger.on:
        return replace(trigger, leaning_since=None)
    since = now if trigger.leaning_since is None else min(trigger.leaning_since, now)
    if now - since < trigger.for_seconds:
        return replace(trigger, leaning_since=since)
    return switched(trigger, on=leans, now=now)


def switched(trigger: Trigger, *, on: bool, now: float, by_hand: bool = False) -> Trigger:
    return replace(trigger, on=on, on_since=now if on else None, leaning_since=None, by_hand=by_hand and on)


def described(trigger: Trigger) -> str:
    if trigger.kind is TriggerKind.ARRIVAL_RATE:
        return f"trigger {trigger.id}: arrival rate above {trigger.above:g}/s"
    if trigger.kind is TriggerKind.LAG:
        return f"trigger {trigger.id}: more than {trigger.above:g} messages wait"
    if trigger.kind is TriggerKind.BATCH_SHARE:
        return (
            f"trigger {trigger.id}: {100 * trigger.share:g} % of a batch have {trigger.field} above {trigger.above:g}"
        )
    return f"trigger {trigger.id}: {trigger.code}"
