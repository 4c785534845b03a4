"""The core: what is known, what happened, and the time go in; what is known then and why comes out.

No Spark, no network, no sleep, no clock of its own: it runs the same way on a cluster, in simulated time, and in tests.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.control.core import applications, incoming, people, remedies, reports
from penstock.control.core.blame import Blamable, Blaming
from penstock.control.core.passes import make_pass
from penstock.control.core.settle import settle
from penstock.control.core.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.control.core.incoming import Incoming
    from penstock.control.core.outcome import StepOutcome
    from penstock.control.core.records import ControllerState
    from penstock.control.core.sizing import Sizing

HANDLERS: Mapping[type, Callable[[Turn, Any], None]] = MappingProxyType(
    {
        incoming.Submit: people.submit,
        incoming.Kill: people.kill,
        incoming.Amend: people.amend,
        incoming.AddTrigger: people.add_trigger,
        incoming.EditTrigger: people.edit_trigger,
        incoming.RemoveTrigger: people.remove_trigger,
        incoming.SwitchTrigger: people.switch_trigger,
        incoming.SetPolicy: people.set_policy,
        incoming.ExpectNode: people.expect_node,
        incoming.ReleaseNode: people.release_node,
        incoming.NodesRefused: people.nodes_refused,
        incoming.Started: reports.started,
        incoming.Holds: reports.holds,
        incoming.FirstTuple: reports.first_tuple,
        incoming.Drained: reports.drained,
        incoming.Died: reports.died,
        incoming.DriverEnded: reports.ended,
        incoming.Asks: applications.asks,
        incoming.Gone: applications.gone,
        incoming.Readings: reports.readings,
        incoming.NodeJoined: reports.node_joined,
        incoming.NodeLost: reports.node_lost,
        incoming.TimePassed: reports.tick,
        incoming.Quarantine: remedies.quarantine,
        incoming.DisableTrigger: remedies.disable_trigger,
    }
)


def step(
    state: ControllerState, happened: Sequence[Incoming], now: float, sizing: Sizing, *, divides: bool = True
) -> StepOutcome:
    """1. what happened  2. a pass, if one is due  3. who starts and drains for it, and what is asked of executors.

    Without `divides` no pass is made: everybody keeps what it has."""
    turn = Turn(state, now, sizing, divides=divides)
    for position, event in enumerate(happened):
        if isinstance(event, incoming.Request):
            HANDLERS[type(event)](turn, event)
            continue
        with Blaming(Blamable.EVENT, _subject(event), position):
            HANDLERS[type(event)](turn, event)
    make_pass(turn)
    settle(turn)
    return turn.finish()


def _subject(event: Incoming) -> str:
    """The pipeline or the node it is about."""
    node = getattr(event, "node", None)
    return str(getattr(event, "pipeline", "") or getattr(node or event, "name", ""))
