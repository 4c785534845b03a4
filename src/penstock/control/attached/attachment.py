"""An application that is attached: its batches are heard, its model learned, its executors follow."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base import clock
from penstock.control.attached.advice import BATCHES_OF_LATENCY, Calm, Sized, follow
from penstock.control.attached.query_model import MOST_BATCHES, arrivals, batch_of, learn
from penstock.control.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.control.attached.advice import Advice, SizingGoal
    from penstock.control.attached.query_model import BatchSeen, LearnedModel

log = logging.getLogger("penstock.attach")

LOOK_SECONDS = 1.0
REPORT_SECONDS = 2.0
"""A controller hears of us at least so often, batches or not."""
CHANGE_SECONDS = 20.0
ASK_AGAIN_SECONDS = 60.0
"""After a cluster gave fewer executors than it was asked for."""
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

    @property
    def nodes(self) -> Mapping[str, int] | None:
        """Executors by node, where the controller says on which."""

    def change_to(self, executors: int, seconds: float, places: Sequence[Slot] = ()) -> int:
        """How many there are then; on exactly `places` where the controller says on which."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a controller lets an application have: so many executors, and where, on nodes of its own."""

    serial: int
    executors: int
    slots: tuple[Slot, ...] = ()


class AttachedLink(Protocol):
    """To a controller."""

    def report(self, report: dict[str, Any]) -> Admitted | None: ...

    def close(self) -> None: ...


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
        link: AttachedLink | None = None,
    ) -> None:
        """`link` tells a controller, and comes back with what it admits."""
        self.name = name
        self.wanted = wanted
        self.decisions: deque[Sized] = deque(maxlen=MOST_DECISIONS)
        """The newest last; what was done, and why."""
        self.model: LearnedModel | None = None
        self.advice: Advice | None = None
        self.admitted: Admitted | None = None
        """By the controller; None where there is none, or it has not answered yet."""
        self._application = application
        self._act = act and application.why_fixed is None
        self._link = link
        self._reported_at = float("-inf")
        self._target: Sized | None = None
        """What would be right, whatever is admitted."""
        self._noted: tuple[int, int] | None = None
        """What the last decision wanted and took."""
        self._acted_on = -1
        self._refused: tuple[float, int] | None = None
        """When the cluster gave fewer than were asked for, and how many there were then."""
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
        if self._link is not None:
            self._link.close()

    def _loop(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                self.look(clock.now())
            except Exception:  # the application must not suffer from us, whatever Spark's gateway raises
                log.exception("attached application '%s'", self.name)

    def look(self, now: float) -> Sized | None:
        """1. what was heard  2. the model, and from it what would be right  3. what the controller admits
        4. min(target, admitted)."""
        fresh = self._hear()
        self._slots = max(1, self._application.slots)
        executors = self._application.executors
        if fresh:
            self.model = learn(self.batches) or self.model
        if fresh and self.model is not None:
            self._target, self._calm = follow(
                self.model, self.batches, self.wanted, executors, self._application.cores, self._calm, now
            )
            self.advice = self._target.advice
        self._ask(executors, now, fresh=fresh)
        sized = self._within_admitted(executors, now)
        if sized is None:
            return None
        noted = sized.to if self._target is None else self._target.to, sized.to
        if sized.to != sized.before or noted != self._noted:
            self.decisions.append(sized)
            self._noted = noted
        if self._act and (sized.to != sized.before or self._elsewhere()):
            self._change(sized, now)
        if self.admitted is not None:
            self._acted_on = self.admitted.serial
        return sized

    def _hear(self) -> bool:
        fresh = False
        while self._heard:
            batch = batch_of(self._heard.popleft(), self._slots)
            if batch is not None:
                self._batches.append(batch)
                fresh = True
        return fresh

    def _within_admitted(self, executors: int, now: float) -> Sized | None:
        """min(target, admitted), never below the minimum; None where nothing is known to be right yet."""
        target, admitted = self._target, self.admitted
        if admitted is not None and self._application.nodes is not None:
            # on the controller's nodes: take the size it admits, or else keep the present one
            why = "nothing was learned yet" if target is None else target.why
            to = admitted.executors or executors
            why = f"{why}; {admitted.executors} {_are(admitted.executors)} admitted"
            return Sized(now, executors, to, why, None if target is None else target.advice)
        if target is None:
            return None
        to, why = target.to, target.why
        for most, by in ((None if admitted is None else admitted.executors, "admitted"), (self._given(now), "given")):
            if most is not None and to > most:
                to = max(self.wanted.minimum, most)
                why += f"; {most} {_are(most)} {by}"
        return Sized(now, executors, to, why, target.advice)

    def _elsewhere(self) -> bool:
        """Whether its executors are not where the controller wants them."""
        nodes = self._application.nodes
        if nodes is None or self.admitted is None or not self.admitted.slots:
            return False
        return dict(nodes) != dict(Counter(slot.node for slot in self.admitted.slots))

    def _given(self, now: float) -> int | None:
        """What the cluster could not give it is not asked for again at once: a quota does not change by asking."""
        if self._refused is None or now - self._refused[0] >= ASK_AGAIN_SECONDS:
            return None
        return self._refused[1]

    def _change(self, sized: Sized, now: float) -> None:
        places = () if self.admitted is None else self.admitted.slots
        came = self._application.change_to(sized.to, CHANGE_SECONDS, places)
        self._refused = (now, came) if came < sized.to else None
        self._slots = max(1, came * self._application.cores)

    def _ask(self, executors: int, now: float, *, fresh: bool) -> None:
        if self._link is None or not (fresh or now - self._reported_at >= REPORT_SECONDS):
            return
        self._reported_at = now
        # no answer: the last one stays valid; an unreachable controller takes nothing away
        self.admitted = self._link.report(self._report(executors)) or self.admitted

    def _report(self, executors: int) -> dict[str, Any]:
        """In slots. Who does not act holds what it has and wants no other."""
        target, cores = self._target, self._application.cores
        wanted = executors if target is None or not self._act else target.to
        nodes = self._application.nodes
        return {
            "held": executors * cores,
            "wanted": max(self.wanted.minimum, wanted, 1) * cores,
            "why": "nothing was learned yet" if target is None else target.why,
            "serial": self._acted_on,
            "nodes": None if nodes is None else {node: count * cores for node, count in nodes.items()},
            "values": self._readings(),
            "advice": None if self.advice is None else self._advice(self.advice),
        }

    def _readings(self) -> dict[str, float]:
        """Of the last batch with rows, by the names metrics have everywhere."""
        seen = [batch for batch in self._batches if batch.rows]
        if not seen:
            return {}
        batch = seen[-1]
        values = {
            Metric.RATE: batch.rows / batch.seconds,
            Metric.OFFERED_RATE: arrivals(seen[-2:])[-1],
            Metric.BACKLOG: batch.backlog,
            Metric.LATENCY_MS: 1000 * BATCHES_OF_LATENCY * batch.seconds,
        }
        return {str(metric): value for metric, value in values.items() if value is not None}

    def _advice(self, advice: Advice) -> dict[str, Any]:
        document = advice.document()
        names = (
            "limit",
            "what_to_do",
            "evidence",
            "target_rate",
            "most_rate_now",
            "headroom",
            "batch_seconds",
            "max_offsets_per_trigger",
        )
        executors = document["executors"]
        return {
            **{name: document[name] for name in names},
            "needed": executors["needed"],
            "useful": executors["useful"],
            "acts": self._act,
            "why_not": self.why_not,
        }


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
