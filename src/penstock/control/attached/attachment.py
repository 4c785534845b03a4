"""An application that is attached: its batches are heard, its model learned, its executors follow."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from penstock import clock
from penstock.control.attached.batches import batch_of
from penstock.control.attached.following import Calm, Sized, follow
from penstock.control.attached.learning import MOST_BATCHES, learn

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.control.attached.advice import Advice
    from penstock.control.attached.batches import BatchSeen
    from penstock.control.attached.following import SizingGoal
    from penstock.control.attached.learning import LearnedModel

log = logging.getLogger("penstock.attach")

LOOK_SECONDS = 1.0
CHANGE_SECONDS = 20.0
MOST_DECISIONS = 200


class AttachedApplication(Protocol):
    """The driver we are in."""

    cores: int
    why_fixed: str | None

    def listen(self, on_progress: Callable[[dict[str, Any]], None]) -> None: ...

    def close(self) -> None: ...

    @property
    def executors(self) -> int: ...

    @property
    def slots(self) -> int: ...

    def change_to(self, executors: int, seconds: float) -> int: ...


class Attachment:
    """Made by `penstock.attach`. It has a thread of its own; nothing of the application waits for it, and what goes
    wrong in it is logged and stays in it."""

    def __init__(
        self,
        name: str,
        application: AttachedApplication,
        wanted: SizingGoal,
        *,
        act: bool = True,
        report: Callable[[dict[str, Any]], int | None] | None = None,
    ) -> None:
        """`report` tells a controller, and comes back with how many executors it admits at the most."""
        self.name = name
        self.wanted = wanted
        self.decisions: deque[Sized] = deque(maxlen=MOST_DECISIONS)
        """The newest last; what was done, and why."""
        self.model: LearnedModel | None = None
        self.advice: Advice | None = None
        self._application = application
        self._act = act and application.why_fixed is None
        self._report = report
        self._admitted: int | None = None
        self._calm = Calm()
        self._heard: deque[dict[str, Any]] = deque(maxlen=MOST_BATCHES)
        self._batches: deque[BatchSeen] = deque(maxlen=MOST_BATCHES)
        self._slots = max(1, application.slots)
        self._stop = threading.Event()
        application.listen(self._heard.append)
        self._thread = threading.Thread(target=self._loop, name=f"penstock-attach-{name}", daemon=True)

    def start(self) -> Attachment:
        self._thread.start()
        return self

    @property
    def acts(self) -> bool:
        """Whether executors follow; else there is advice only."""
        return self._act

    @property
    def why_not(self) -> str | None:
        return None if self._act else (self._application.why_fixed or "it was asked only to advise")

    @property
    def batches(self) -> list[BatchSeen]:
        return list(self._batches)

    def detach(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CHANGE_SECONDS + LOOK_SECONDS)
        self._application.close()

    def _loop(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                self.look(clock.now())
            except Exception:  # the application must not suffer from us, whatever Spark's gateway raises
                log.exception("attached application '%s'", self.name)

    def look(self, now: float) -> Sized | None:
        """1. what was heard  2. the model  3. how many executors  4. so many."""
        fresh = 0
        while self._heard:
            batch = batch_of(self._heard.popleft(), self._slots)
            if batch is not None:
                self._batches.append(batch)
                fresh += 1
        self._slots = max(1, self._application.slots)
        if not fresh:
            return None
        self.model = learn(self.batches) or self.model
        if self.model is None:
            return None
        executors = self._application.executors
        sized, self._calm = follow(
            self.model, self.batches, self.wanted, executors, self._application.cores, self._calm, now
        )
        self.advice = sized.advice
        sized = self._within_admitted(sized)
        if not self.decisions or sized.to != sized.before or sized.to != self.decisions[-1].to:
            self.decisions.append(sized)
        if self._act and sized.to != sized.before:
            self._slots = self._application.change_to(sized.to, CHANGE_SECONDS) * self._application.cores
        self._tell(sized)
        return sized

    def _within_admitted(self, sized: Sized) -> Sized:
        """min(target, admitted)"""
        if self._admitted is None or sized.to <= self._admitted:
            return sized
        to = max(self.wanted.minimum, self._admitted)
        return Sized(sized.at, sized.before, to, f"{sized.why}; {self._admitted} are admitted", sized.advice)

    def _tell(self, sized: Sized) -> None:
        if self._report is None:
            return
        last = self._batches[-1]
        self._admitted = self._report(
            {
                "executors": sized.before,
                "needed": sized.to,
                "rate": last.rows / last.seconds,
                "offered_rate": last.arrived_rate,
                "backlog": last.backlog,
                "latency_ms": 2000 * last.seconds,
                "why": sized.why,
                "limit": None if sized.advice is None else str(sized.advice.limit),
            }
        )
