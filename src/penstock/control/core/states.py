"""The lives of pipelines and nodes: named states, and one table each of what moves them.

    submitted ─► starting ─► active ─► draining ─► drained ─► starting (another share) ─► active
         │           │          │                      └─► paused (by a person), waiting (no share; positions kept)
         └─► waiting └──────────┴─► backing-off ─► starting, or failed
    all but killed ─► ending ─► killed

A move that is not in the table is an error of whoever asked for it, never an `if` that lets it pass.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ImpossibleMoveError(PenstockError):
    """Something happened that cannot happen in this state."""


class PipelineState(StrEnum):
    SUBMITTED = "submitted"
    WAITING = "waiting"
    """Wants to run and has no share; its positions are kept."""
    STARTING = "starting"
    ACTIVE = "active"
    DRAINING = "draining"
    """Its sources pull no more; what is in flight is being finished."""
    DRAINED = "drained"
    PAUSED = "paused"
    BACKING_OFF = "backing-off"
    """Its driver died; it starts again after a while that doubles."""
    ENDING = "ending"
    FAILED = "failed"
    KILLED = "killed"


class Happening(StrEnum):
    PLACED = "placed"
    SHORT = "short"
    STARTED = "started"
    DEACTIVATED = "deactivated"
    DRAINED = "drained"
    DIED = "died"
    RETRIED = "retried"
    GAVE_UP = "gave up"
    PAUSED = "paused"
    ACTIVATED = "activated"
    KILLED = "killed"
    ENDED = "ended"
    BROKE = "broke"
    """It cannot be decided upon: steps raise because of it."""


_P, _H = PipelineState, Happening
PIPELINE_MOVES: Mapping[tuple[PipelineState, Happening], PipelineState] = MappingProxyType(
    {
        (_P.SUBMITTED, _H.PLACED): _P.STARTING,
        (_P.SUBMITTED, _H.SHORT): _P.WAITING,
        (_P.SUBMITTED, _H.PAUSED): _P.PAUSED,
        (_P.WAITING, _H.PLACED): _P.STARTING,
        (_P.WAITING, _H.PAUSED): _P.PAUSED,
        (_P.STARTING, _H.STARTED): _P.ACTIVE,
        (_P.STARTING, _H.DEACTIVATED): _P.DRAINING,
        (_P.STARTING, _H.DIED): _P.BACKING_OFF,
        (_P.ACTIVE, _H.DEACTIVATED): _P.DRAINING,
        (_P.ACTIVE, _H.DIED): _P.BACKING_OFF,
        (_P.DRAINING, _H.DRAINED): _P.DRAINED,
        # whatever was in flight is not committed and comes again: a dead driver is as drained as can be
        (_P.DRAINING, _H.DIED): _P.DRAINED,
        (_P.DRAINED, _H.PLACED): _P.STARTING,
        (_P.DRAINED, _H.SHORT): _P.WAITING,
        (_P.DRAINED, _H.PAUSED): _P.PAUSED,
        (_P.BACKING_OFF, _H.RETRIED): _P.WAITING,
        (_P.BACKING_OFF, _H.GAVE_UP): _P.FAILED,
        (_P.BACKING_OFF, _H.PAUSED): _P.PAUSED,
        (_P.PAUSED, _H.ACTIVATED): _P.WAITING,
        (_P.FAILED, _H.ACTIVATED): _P.WAITING,
        **{(state, _H.KILLED): _P.ENDING for state in _P if state not in {_P.ENDING, _P.KILLED}},
        (_P.ENDING, _H.ENDED): _P.KILLED,
        **{(state, _H.BROKE): _P.FAILED for state in _P if state not in {_P.ENDING, _P.KILLED, _P.FAILED}},
    }
)

WANTING = frozenset({_P.SUBMITTED, _P.WAITING, _P.STARTING, _P.ACTIVE, _P.DRAINING, _P.DRAINED, _P.BACKING_OFF})
"""States in which a pipeline takes part when the cluster is shared (unless it is to be paused)."""

RUNNING = frozenset({_P.STARTING, _P.ACTIVE})

DEADLINES: Mapping[PipelineState, float] = MappingProxyType({_P.STARTING: 240.0, _P.DRAINING: 60.0, _P.ENDING: 30.0})
"""Seconds after which a state is no longer waited for: a start counts as a death, draining and ending are forced."""


class NodeState(StrEnum):
    JOINING = "joining"
    ALIVE = "alive"
    LEAVING = "leaving"
    """To be released: nothing new is placed there, and what runs there moves away."""
    LOST = "lost"
    GONE = "gone"


class NodeHappening(StrEnum):
    JOINED = "joined"
    LOST = "lost"
    RELEASED = "released"
    EMPTIED = "emptied"
    GAVE_UP = "gave up"


_N, _E = NodeState, NodeHappening
NODE_MOVES: Mapping[tuple[NodeState, NodeHappening], NodeState] = MappingProxyType(
    {
        (_N.JOINING, _E.JOINED): _N.ALIVE,
        (_N.JOINING, _E.GAVE_UP): _N.GONE,
        (_N.JOINING, _E.RELEASED): _N.GONE,
        (_N.ALIVE, _E.LOST): _N.LOST,
        (_N.ALIVE, _E.RELEASED): _N.LEAVING,
        (_N.LEAVING, _E.EMPTIED): _N.GONE,
        (_N.LEAVING, _E.LOST): _N.GONE,
        (_N.LOST, _E.JOINED): _N.ALIVE,
        (_N.LOST, _E.RELEASED): _N.GONE,
        (_N.GONE, _E.JOINED): _N.ALIVE,
    }
)

JOIN_SECONDS = 120.0
"""A node that has not come by then is given up."""


def pipeline_after(state: PipelineState, happening: Happening) -> PipelineState:
    after = PIPELINE_MOVES.get((state, happening))
    if after is None:
        raise ImpossibleMoveError(f"a pipeline that is {state} cannot have {happening}")
    return after


def node_after(state: NodeState, happening: NodeHappening) -> NodeState:
    after = NODE_MOVES.get((state, happening))
    if after is None:
        raise ImpossibleMoveError(f"a node that is {state} cannot have {happening}")
    return after
