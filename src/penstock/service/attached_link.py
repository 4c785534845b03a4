"""From an attached application to its controller: it registers, reports, and hears what it is admitted to. A controller
that is away or says no is waited for; the application goes on within its own limits meanwhile."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from penstock.base.errors import PenstockError
from penstock.cluster.topology import Slot
from penstock.control.attached.attachment import Admitted
from penstock.service.client import RequestRefusedError

if TYPE_CHECKING:
    from penstock.control.attached.advice import SizingGoal
    from penstock.service.client import Client

log = logging.getLogger("penstock.attach")


class ControllerLink:
    """`cores` are those of an executor: the controller counts slots."""

    def __init__(self, client: Client, name: str, goal: SizingGoal, cores: int, priority: int | None = None) -> None:
        self._client = client
        self._name = name
        self._goal = goal
        self._cores = cores
        self._priority = priority
        self._registered = False
        self.let_go = False
        """True after it was killed on the controller: it continues alone."""
        self.trouble: str | None = None
        """Why the last report did not reach the controller; None if it did."""

    def report(self, report: dict[str, Any]) -> Admitted | None:
        """Send a report and return the admitted size; None without an answer of the controller."""
        if self.let_go:
            return None
        try:
            self._register()
            answer = self._client.report_attached(self._name, report)
        except PenstockError as error:
            if isinstance(error, RequestRefusedError):
                # one that does not know us has another store, or took us for dead: it is asked anew
                self.let_go = self._registered and error.status == 409
                self._registered = self._registered and error.status != 404
            if str(error) != self.trouble:
                log.warning("attached application '%s': %s", self._name, error)
            self.trouble = str(error)
            return None
        self.trouble = None
        slots = tuple(Slot(node, number) for node, number in answer["slots"])
        return Admitted(answer["serial"], answer["admitted"] // self._cores, slots)

    def _register(self) -> None:
        if self._registered:
            return
        goal = self._goal
        self._client.attach(
            self._name,
            rate=goal.rate,
            latency_ms=goal.latency_ms,
            minimum=goal.minimum * self._cores,
            maximum=None if goal.maximum is None else goal.maximum * self._cores,
            priority=self._priority,
        )
        self._registered = True

    def close(self) -> None:
        """It is no longer attached, and the controller need not wait to find that out."""
        try:
            if self._registered and not self.let_go:
                self._client.leave(self._name)
        except PenstockError as error:
            log.warning("attached application '%s' could not say that it leaves: %s", self._name, error)
        finally:
            self._client.close()
