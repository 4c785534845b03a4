"""The core: what is known, what happened, and the time go in; what is known then and why comes out.

No Spark, no network, no sleep, no clock of its own: it runs the same way on a cluster, in simulated time, and in tests.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.base.errors import PenstockError
from penstock.control.core import messages as incoming
from penstock.control.core import report_handlers as applications
from penstock.control.core import report_handlers as reports
from penstock.control.core import request_handlers as people
from penstock.control.core import request_handlers as remedies
from penstock.control.core.messages import DisableTrigger, NodeLost, Quarantine, Readings, Request, SetPolicy, Submit
from penstock.control.core.orders import settle
from penstock.control.core.passes import make_pass
from penstock.control.core.turn import Blamable, BlamedError, Blaming, Turn, reason_of
from penstock.control.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.control.contracts import Sizing
    from penstock.control.core.messages import Incoming, StepOutcome
    from penstock.control.core.records import ControllerState
    from penstock.control.core.turn import Culprit


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


# A step that no input can prevent: a culprit that makes it raise is set aside, and the step is taken again without it.
#
# step ──► done
# │ raises, and the culprit is known (`blame`)
# ▼
# pipeline: failed, with the reason; its driver is ended, and its slots are taken until that is reported
# trigger:  disabled, with the reason
# node:     lost, with the reason
# event:    left out; if it was more than readings, its pipeline has failed
# policy:   no pass is made; every pipeline keeps its slots
# │
# └──► step, without it
#
# A division that raises does not say whose fault that is. It is repeated for a plain pipeline (if that raises, a node
# or the policy is to blame) and then for the first n pipelines, by bisection: the last of the shortest row that
# raises is set aside (`culprits`). A request is never left out: one that raises is refused, and nothing has changed.
# An exception without a culprit, or with the same one twice, is raised: the controller is in trouble, and looks
# again.


log = logging.getLogger("penstock.control")


@dataclass(frozen=True, slots=True)
class SetAside:
    """A culprit that was left out of a step, with the reason."""

    culprit: Culprit
    error: BaseException

    @property
    def why(self) -> str:
        return reason_of(self.error)


@dataclass(frozen=True, slots=True)
class GuardedStep:
    outcome: StepOutcome
    aside: tuple[SetAside, ...] = ()


def guarded_step(
    state: ControllerState, happened: Sequence[Incoming], now: float, sizing: Sizing, *, first: Sequence[Incoming] = ()
) -> GuardedStep:
    """Raises if a request is refused, or no culprit is found. `first`: remedies that are known to be needed."""
    attempt = _Attempt(list(first), list(happened))
    while True:
        try:
            made = step(state, [*attempt.remedies, *attempt.events], now, sizing, divides=attempt.divides)
        except BlamedError as blamed:
            attempt.leave_out(blamed)
        except (PenstockError, KeyboardInterrupt):
            raise
        except BaseException as error:
            if not attempt.has_requests:
                raise
            log.exception("a request is refused")
            raise ConflictError(f"this cannot be done: {reason_of(error)}") from error
        else:
            return GuardedStep(made, tuple(attempt.aside))


class _Attempt:
    """Inputs of the next try."""

    def __init__(self, remedies: list[Incoming], events: list[Incoming]) -> None:
        self.remedies = remedies
        self.events = events
        self.divides = True
        self.aside: list[SetAside] = []
        self._blamed: set[Culprit] = set()
        self._own = {pipeline_of(event) for event in events if isinstance(event, Request)}

    @property
    def has_requests(self) -> bool:
        return any(isinstance(event, Request) for event in self.events)

    def leave_out(self, blamed: BlamedError) -> None:
        culprit, error = blamed.culprit, blamed.error
        if self._is_asked_for(culprit):
            raise error if isinstance(error, PenstockError) else ConflictError(str(blamed)) from error
        if culprit.kind is Blamable.EVENT:
            self._drop(culprit, blamed)
        elif culprit in self._blamed:
            raise blamed
        else:
            self._blamed.add(culprit)
            self._remedy(culprit, reason_of(error))
        self.aside.append(SetAside(culprit, error))

    def _is_asked_for(self, culprit: Culprit) -> bool:
        """Whether it is the request itself that cannot be."""
        if culprit.kind is Blamable.POLICY:
            return any(isinstance(event, SetPolicy) for event in self.events)
        return culprit.kind in {Blamable.PIPELINE, Blamable.TRIGGER} and culprit.name in self._own

    def _drop(self, culprit: Culprit, blamed: BlamedError) -> None:
        position = culprit.number - len(self.remedies)
        event = self.events[position] if position >= 0 else None
        if event is None or not culprit.name:
            # a remedy, or the time itself: without them there is no step
            raise blamed
        del self.events[position]
        if pipeline_of(event) and not isinstance(event, Readings):
            self.remedies.append(Quarantine(culprit.name, reason_of(blamed.error)))

    def _remedy(self, culprit: Culprit, why: str) -> None:
        if culprit.kind is Blamable.POLICY:
            self.divides = False
        elif culprit.kind is Blamable.NODE:
            self.remedies.append(NodeLost(culprit.name, why))
        elif culprit.kind is Blamable.TRIGGER:
            self.remedies.append(DisableTrigger(culprit.name, culprit.number, why))
        else:
            self.remedies.append(Quarantine(culprit.name, why))


def pipeline_of(event: Incoming) -> str:
    """The name of the pipeline it is about; "" if about none."""
    return event.submission.name if isinstance(event, Submit) else getattr(event, "pipeline", "")
