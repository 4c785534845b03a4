"""The states a placed run can be in, the moves between them, and how long it waits before it makes one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FlowState(StrEnum):
    GATHERING = "gathering"
    """Processes are awaited."""
    LINKING = "linking"
    """A generation was formed; its links are awaited."""
    FLOWING = "flowing"
    HELD = "held"
    """Sources wait, nothing is in flight, everything is committed."""
    ENDED = "ended"
    FAILED = "failed"
    FENCED = "fenced"
    """Another process conducts the run: this one must not touch it."""


OVER = frozenset({FlowState.ENDED, FlowState.FAILED, FlowState.FENCED})

_ANYWHERE = frozenset({FlowState.FAILED, FlowState.FENCED})
MOVES: dict[FlowState, frozenset[FlowState]] = {
    FlowState.GATHERING: _ANYWHERE | {FlowState.LINKING},
    FlowState.LINKING: _ANYWHERE | {FlowState.FLOWING, FlowState.HELD, FlowState.GATHERING},
    FlowState.FLOWING: _ANYWHERE | {FlowState.HELD, FlowState.GATHERING},
    FlowState.HELD: _ANYWHERE | {FlowState.FLOWING, FlowState.GATHERING, FlowState.ENDED},
    FlowState.ENDED: frozenset(),
    FlowState.FAILED: frozenset(),
    FlowState.FENCED: frozenset(),
}
"""Every move there is; another one is an error of this module."""


class ImpossibleError(RuntimeError):
    """Something that cannot happen did."""


class WantedState(StrEnum):
    """What the owner of the run wants of it."""

    FLOW = "flow"
    HOLD = "hold"
    END = "end"


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds after which the conductor stops waiting, and rates of failure it bears."""

    epoch: float = 1.0
    """From one commit to the opening of the next epoch."""
    first_start: float = 90.0
    """For the processes of a run to say hello for the first time: executors are started, on a busy machine."""
    start: float = 20.0
    """For a process to say hello, later on."""
    link: float = 10.0
    change: float = 30.0
    """For another plan to flow; then the old one goes on."""
    silence: float = 5.0
    """Without a beat a process is taken for dead."""
    settle: float = 0.2
    """After a link broke: whoever died is noticed meanwhile."""
    write: float = 60.0
    """For a checkpoint that cannot be written."""
    publish: float = 300.0
    """For a sink that does not take what is committed: a broker or a database that is away."""
    retry: float = 1.0
    window: float = 60.0
    most_failures: int = 8
    """Of one bundle within the window."""
    careful_after: int = 2
    """Failures within the window after which a bundle looks for the tuple that kills it."""
