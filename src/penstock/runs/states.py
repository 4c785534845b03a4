"""The states of a run, the moves between them, and the requests each state permits. The same for every engine.

starting ──► running ──► draining ──► paused ──► starting (resume)
    │           │            └──────► stopped ─► starting (resume)
    └───────────┴──► failed, lost ─────────────► starting (resume)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from penstock.base.clock import now, time_of_day
from penstock.base.errors import BadInputError, ImpossibleMoveError


class RunState(StrEnum):
    """State of a run."""

    STARTING = "starting"
    RUNNING = "running"
    """Rows flow, or will again once lost processes are replaced."""
    DRAINING = "draining"
    """Sources are stopped; batches in flight are finished and committed."""
    PAUSED = "paused"
    """Everything in flight is committed. A living process keeps the position and waits for `resume`."""
    STOPPED = "stopped"
    """Its input or time ended, or it was stopped or killed. `resume` continues from the last commit."""
    FAILED = "failed"
    LOST = "lost"
    """Its process died or does not answer."""


MOVES: dict[RunState, frozenset[RunState]] = {
    RunState.STARTING: frozenset({RunState.RUNNING, RunState.DRAINING, RunState.STOPPED, RunState.FAILED}),
    RunState.RUNNING: frozenset({RunState.DRAINING, RunState.STOPPED, RunState.FAILED}),
    RunState.DRAINING: frozenset({RunState.RUNNING, RunState.PAUSED, RunState.STOPPED, RunState.FAILED}),
    RunState.PAUSED: frozenset(
        {RunState.STARTING, RunState.RUNNING, RunState.DRAINING, RunState.STOPPED, RunState.FAILED}
    ),
    RunState.STOPPED: frozenset({RunState.STARTING}),
    RunState.FAILED: frozenset({RunState.STARTING}),
    RunState.LOST: frozenset({RunState.STARTING}),
}
"""Every move of a run. No run becomes `lost` by itself: others conclude it from a lease without a living holder."""

LIVING = frozenset({RunState.STARTING, RunState.RUNNING, RunState.DRAINING, RunState.PAUSED})
"""States in which a process conducts the run."""
OVER = frozenset(RunState) - LIVING

FORMER_STATES = {"ended": RunState.STOPPED, "held": RunState.PAUSED}
"""Words of version 0.1 in files that are still read."""


@dataclass
class StateHistory:
    """The state of one run and the moves that led to it. `move` is the only function that changes it."""

    moves: list[tuple[RunState, float]] = field(default_factory=lambda: [(RunState.STARTING, now())])

    @property
    def state(self) -> RunState:
        return self.moves[-1][0]

    def __str__(self) -> str:
        return ", ".join(f"{state} at {time_of_day(at)}" for state, at in self.moves)


MAX_HISTORY = 50
"""Moves that are remembered."""


def move(history: StateHistory, to: RunState) -> None:
    """Change the state of a run. Raise ImpossibleMoveError with the history if the table does not have the move."""
    if to not in MOVES[history.state]:
        raise ImpossibleMoveError(f"a run that is {history.state} cannot become {to}; history: {history}")
    history.moves = [*history.moves[1 - MAX_HISTORY :], (to, now())]


class RunRequest(StrEnum):
    """A request to a run, by the word used in Python, on the command line and over HTTP."""

    STOP = "stop"
    """Commit the rows in flight, then end."""
    PAUSE = "pause"
    """Commit the rows in flight, then wait for `resume`."""
    RESUME = "resume"
    """Continue from the last commit, with another plan if one is given."""
    RESCALE = "rescale"
    """Change slots or plan while it runs."""
    KILL = "kill"
    """End at once; rows that were not committed are processed again on resume."""


PERMITTED: dict[RunRequest, frozenset[RunState]] = {
    RunRequest.STOP: LIVING,
    RunRequest.PAUSE: frozenset({RunState.STARTING, RunState.RUNNING}),
    RunRequest.RESUME: OVER | {RunState.PAUSED},
    RunRequest.RESCALE: frozenset({RunState.STARTING, RunState.RUNNING}),
    RunRequest.KILL: LIVING,
}

_REMEDIES = {
    RunState.STARTING: "wait until it runs",
    RunState.RUNNING: "pause or stop it first, or rescale it as it runs",
    RunState.DRAINING: "wait until it is paused or stopped",
    RunState.PAUSED: "resume it first",
    RunState.STOPPED: "resume it first",
    RunState.FAILED: "see its log, then resume it",
    RunState.LOST: "its process is gone; resume it first",
}


class ForbiddenRequestError(BadInputError):
    """A request that the state of the run forbids."""


def check_permitted(request: RunRequest, state: RunState, run: str) -> None:
    """Raise ForbiddenRequestError, with the state and the remedy, if a run in `state` cannot do `request`."""
    if state not in PERMITTED[request]:
        raise ForbiddenRequestError(f"run '{run}' is {state}: cannot {request} it; {_REMEDIES[state]}")
