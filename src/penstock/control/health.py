"""Health of a controller: whether its loop still decides, since when it has not, and which culprits were set aside."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.clock import Stopwatch
from penstock.control.core.messages import Event
from penstock.control.core.records import NodePhase, PipelineState
from penstock.control.core.turn import Blamable, Culprit, reason_of
from penstock.control.store.lease import LostLeaseError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.control.core.records import ControllerState
    from penstock.control.core.step import SetAside

log = logging.getLogger("penstock.control")

LATE_PERIODS = 3
"""Periods without a completed step after which the loop is in trouble."""
LEAST_PERIOD_SECONDS = 1.0
"""A period is the time between two looks, and at least this: a step of a large cluster takes a second."""


MOST_UNSAID = 20
SAY_SECONDS = 5.0
MOST_QUARANTINED = 200
"""Max entries; the newest are kept."""


@dataclass(frozen=True, slots=True)
class ControllerHealth:
    ok: bool
    trouble: str | None
    """One line; None while everything is decided upon."""
    last_step_seconds: float
    """Seconds since the last completed step, or since the start if there was none."""
    quarantined: tuple[tuple[str, str], ...] = ()
    """Subject (a pipeline, trigger or node) and reason of everything that was set aside since the start."""
    loop_alive: bool = True
    hangs: bool = False
    """Whether the only trouble is that no step completes: the loop itself reports none."""


def late_after(look_seconds: float) -> float:
    """Seconds without a completed step that are too many."""
    return LATE_PERIODS * max(look_seconds, LEAST_PERIOD_SECONDS)


class Troubles:
    """Present trouble by part of the controller. Each trouble is logged when it begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: dict[str, str] = {}
        self._unsaid: list[str] = []
        """Trouble that began since the last report; "" for an end of all trouble."""
        self._since_said: Stopwatch | None = None

    @property
    def line(self) -> str | None:
        with self._lock:
            return "; ".join(self._now.values()) or None

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Record an exception raised inside as trouble of that part. Only the loss of the lease is raised further."""
        try:
            yield
        except LostLeaseError:
            raise
        except (Exception, SystemExit) as error:
            self.begin(part, f"{part}: {reason_of(error)}", error)
        else:
            self.end(part)

    def begin(self, part: str, why: str, error: BaseException | None = None) -> None:
        with self._lock:
            if self._now.get(part) == why:
                return
            if part not in self._now:
                self._unsaid = [*self._unsaid[-MOST_UNSAID:], why]
            self._now[part] = why
        log.error("%s", why, exc_info=error)

    def end(self, part: str) -> None:
        with self._lock:
            if self._now.pop(part, None) is not None and not self._now:
                self._unsaid.append("")

    def to_say(self) -> list[str]:
        """Return messages at intervals: trouble that flaps must not drive all other events out of the store."""
        with self._lock:
            early = self._since_said is not None and self._since_said.seconds() < SAY_SECONDS
            return [] if early else list(dict.fromkeys(self._unsaid))

    def was_said(self) -> None:
        with self._lock:
            self._unsaid.clear()
            self._since_said = Stopwatch()


class Quarantined:
    """Culprits that were set aside since the start, with reasons."""

    def __init__(self) -> None:
        self._reasons: dict[Culprit, str] = {}

    def after(self, aside: Sequence[SetAside], now: float) -> list[Event]:
        """Record culprits that were set aside. Return one event for each that no other event reports."""
        events = []
        for new in aside:
            culprit = new.culprit
            if culprit.kind is Blamable.EVENT:
                culprit = Culprit(culprit.kind, culprit.name)
            if self._reasons.get(culprit) == new.why:
                continue
            if len(self._reasons) >= MOST_QUARANTINED:
                del self._reasons[next(iter(self._reasons))]
            self._reasons[culprit] = new.why
            log.error("%s is set aside: %s", culprit, new.why, exc_info=new.error)
            if culprit.kind in {Blamable.EVENT, Blamable.POLICY}:
                subject = culprit.name if culprit.kind is Blamable.EVENT else "controller"
                events.append(Event(now, subject, "set aside", None, None, f"{culprit}: {new.why}"))
        return events

    def present(self, state: ControllerState) -> tuple[tuple[str, str], ...]:
        """Those who have not been put right, killed or removed meanwhile."""
        return tuple((str(culprit), why) for culprit, why in list(self._reasons.items()) if _is_aside(culprit, state))


def _is_aside(culprit: Culprit, state: ControllerState) -> bool:
    record, node = state.pipelines.get(culprit.name), state.nodes.get(culprit.name)
    if culprit.kind is Blamable.PIPELINE:
        return record is not None and record.state is PipelineState.FAILED
    if culprit.kind is Blamable.TRIGGER:
        triggers = () if record is None else record.triggers
        return any(trigger.id == culprit.number and not trigger.enabled for trigger in triggers)
    if culprit.kind is Blamable.NODE:
        return node is not None and node.state is NodePhase.LOST
    if culprit.kind is Blamable.POLICY:
        return state.policy.sharing == culprit.name
    return record is not None and record.state is not PipelineState.KILLED
