"""A pipeline as a fluid: what arrives, what its slots can do, what is left over. Exact for rates that are constant in
between, whatever the step."""

from __future__ import annotations

from dataclasses import dataclass

BASE_LATENCY_MS = 50.0
"""Of a tuple that waits for nobody."""


@dataclass(frozen=True, slots=True)
class Flow:
    backlog: float = 0.0
    arrived: float = 0.0
    processed: float = 0.0


def after(flow: Flow, arriving: float, seconds: float, capacity: float) -> Flow:
    """`arriving` tuples come evenly over `seconds`; at most `capacity` tuples/s are done.

    processed = min(backlog + arriving, capacity * seconds)
    """
    done = min(flow.backlog + arriving, capacity * seconds)
    return Flow(flow.backlog + arriving - done, flow.arrived + arriving, flow.processed + done)


def latency_ms(flow: Flow, capacity: float) -> float | None:
    """The last tuple waits for all before it; nobody knows how long where nothing is done."""
    if capacity <= 0:
        return None
    return BASE_LATENCY_MS + 1000 * flow.backlog / capacity


def busy(processed: float, seconds: float, capacity: float) -> float:
    return processed / (capacity * seconds) if capacity * seconds > 0 else 0.0
