"""A backlog, and how long it will last."""

from __future__ import annotations

from math import inf


def catch_up_seconds(backlog: float, rate: float, capacity: float) -> float:
    """backlog / (capacity - rate); for ever where what arrives is all that can be done."""
    if backlog <= 0:
        return 0.0
    return backlog / (capacity - rate) if capacity > rate else inf


def wait_seconds(backlog: float, capacity: float) -> float:
    """How long the newest tuple waits for those before it."""
    if backlog <= 0:
        return 0.0
    return backlog / capacity if capacity > 0 else inf


def wait_after(backlog: float, rate: float, capacity: float, seconds: float) -> float:
    """How long the newest tuple waits after so many more seconds."""
    return wait_seconds(backlog + (rate - capacity) * seconds, capacity)


def rate_to_catch_up(backlog: float, rate: float, seconds: float, change_seconds: float) -> float:
    """What must be done per second so that the backlog is gone in `seconds` after the change, which takes
    `change_seconds` in which at worst nothing is done:  rate + (backlog + rate * change) / seconds"""
    return rate + (backlog + rate * change_seconds) / seconds


def seconds_with_change(backlog: float, rate: float, capacity: float, then: float, change_seconds: float) -> float:
    """How long a backlog lasts where `capacity` becomes `then` after the change, and it is worked on meanwhile:

    change + (backlog + (rate - capacity) * change) / (then - rate)
    """
    at_change = max(0.0, backlog + (rate - capacity) * change_seconds)
    return change_seconds + catch_up_seconds(at_change, rate, then)
