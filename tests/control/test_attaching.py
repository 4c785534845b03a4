"""Executors that follow: up at once, down late, within limits; the application stands still for nobody."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.api.applications import _wanted
from penstock.cluster.topology import Slot
from penstock.control.attached.advice import SizingGoal
from penstock.control.attached.attachment import Admitted, Attachment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FIXED_MS, ROW_MS = 200.0, 2.0
"""What a batch of the fake application costs at all, and a row on one slot."""


class FakeApplication:
    """Executors of one core that come at once, up to what the cluster has."""

    def __init__(self, executors: int = 1, cluster: int = 100) -> None:
        self.cores = 1
        self.why_fixed: str | None = None
        self.executors, self.cluster = executors, cluster
        self.nodes: dict[str, int] | None = None
        """Set where the controller says on which nodes."""
        self.changes: list[int] = []
        self.number = 0

    def listen(self, heard: Callable[[dict[str, Any]], None]) -> None:
        self.heard = heard

    def close(self) -> None:
        self.heard = lambda _: None

    @property
    def slots(self) -> int:
        return self.executors

    def change_to(self, executors: int, seconds: float, places: Sequence[Slot] = ()) -> int:
        self.changes.append(executors)
        self.executors = min(executors, self.cluster)
        if self.nodes is not None:
            self.nodes = dict(Counter(slot.node for slot in places))
        return self.executors

    def batch(self, rows: int, rate: float) -> None:
        self.number += 1
        duration = FIXED_MS + rows * ROW_MS / self.executors
        self.heard(
            {
                "timestamp": f"2026-11-16T10:{self.number // 60:02}:{self.number % 60:02}.000Z",
                "numInputRows": rows,
                "inputRowsPerSecond": rate,
                "durationMs": {"triggerExecution": duration, "queryPlanning": FIXED_MS},
            }
        )


def attached(application: FakeApplication, **more: Any) -> Attachment:
    return Attachment("orders", application, SizingGoal(latency_ms=2000, **more))


def feed(attachment: Attachment, application: FakeApplication, rate: float, batches: int, at: float) -> float:
    for number in range(batches):
        application.batch(int(rate * (0.6 + 0.2 * (number % 3))), rate)
        attachment.look(at)
        at += 1.0
    return at


def test_executors_follow_a_step_of_load() -> None:
    """Batches of 1 s, 0.8 of them useful, 2 ms a row at 0.7: 100/s need 1 slot, 1,000/s need 3.57."""
    application = FakeApplication()
    attachment = attached(application)
    at = feed(attachment, application, 100, 5, 0.0)
    assert application.changes == []
    feed(attachment, application, 1000, 5, at)
    assert application.executors == 4
    assert "1,000 rows/s arrive" in attachment.decisions[-1].why


def test_executors_follow_though_the_driver_takes_longer_than_the_latency() -> None:
    """Batches may last 0.1 s and cost 0.2 s before their first row: no number of executors meets that, but 1,000/s at
    2 ms need 2 slots all the time, 0.4 s of 0.2 useful twice as many, and at 0.7 six."""
    application = FakeApplication()
    attachment = Attachment("orders", application, SizingGoal(latency_ms=200))
    feed(attachment, application, 1000, 5, 0.0)
    assert application.executors == 6
    assert attachment.advice is not None
    assert attachment.advice.limit == "driver"


def test_fewer_only_when_fewer_were_enough_for_long() -> None:
    """From 10: not for 900 s, then by at most 40 % a step."""
    application = FakeApplication(10)
    attachment = attached(application)
    at = feed(attachment, application, 100, 10, 0.0)
    assert application.changes == []
    assert "would do" in attachment.decisions[-1].why
    feed(attachment, application, 100, 3, at + 900)
    assert application.changes == [6]


def test_limits_hold() -> None:
    application = FakeApplication(2)
    attachment = attached(application, minimum=2, maximum=3)
    at = feed(attachment, application, 5000, 6, 0.0)
    assert application.executors == 3
    feed(attachment, application, 10, 6, at + 2000)
    feed(attachment, application, 10, 6, at + 4000)
    assert application.executors == 2


class FakeController:
    """Admits what it is told to."""

    def __init__(self, *admitted: Slot) -> None:
        self.reports: list[dict[str, Any]] = []
        self.serial, self.slots = 0, admitted
        self.away = self.closed = False

    def admit(self, *slots: Slot) -> None:
        self.serial, self.slots = self.serial + 1, slots

    def report(self, report: dict[str, Any]) -> Admitted | None:
        self.reports.append(report)
        return None if self.away else Admitted(self.serial, len(self.slots), self.slots)

    def close(self) -> None:
        self.closed = True


def slots(*names: str) -> tuple[Slot, ...]:
    return tuple(Slot(name, 0) for name in names)


def controlled(application: FakeApplication, controller: FakeController, **more: Any) -> Attachment:
    return Attachment("orders", application, SizingGoal(latency_ms=2000, **more), link=controller)


def test_a_controller_may_admit_less() -> None:
    """min(target, admitted): 4 would be right, 2 are admitted; then 3."""
    application, controller = FakeApplication(), FakeController(*slots("a", "b"))
    attachment = controlled(application, controller)
    feed(attachment, application, 100, 4, 0.0)
    at = feed(attachment, application, 1000, 4, 10.0)
    assert application.executors == 2
    assert "2 are admitted" in attachment.decisions[-1].why
    assert controller.reports[-1]["wanted"] == 4
    assert controller.reports[-1]["advice"]["limit"] == "executors"
    controller.admit(*slots("a", "b", "c"))
    # no batch comes, and it follows all the same
    attachment.look(at + 5)
    attachment.look(at + 10)
    assert application.executors == 3
    assert controller.reports[-1]["serial"] == 1, "it says on which answer it has acted"


def test_a_controller_that_is_away_takes_nothing() -> None:
    application, controller = FakeApplication(), FakeController(*slots("a", "b"))
    attachment = controlled(application, controller)
    feed(attachment, application, 1000, 4, 0.0)
    assert application.executors == 2
    controller.away = True
    feed(attachment, application, 1000, 4, 10.0)
    assert application.executors == 2
    attachment.detach()
    assert controller.closed


def test_never_below_the_minimum() -> None:
    application, controller = FakeApplication(2), FakeController()
    attachment = controlled(application, controller, minimum=2)
    feed(attachment, application, 1000, 4, 0.0)
    assert application.executors == 2


def test_on_nodes_of_the_controller_executors_are_where_it_says() -> None:
    """It starts with none, gets the first before anything was learned, and moves where a node was lost."""
    application, controller = FakeApplication(0), FakeController(*slots("a"))
    application.nodes = {}
    attachment = controlled(application, controller)
    attachment.look(1.0)
    assert application.nodes == {"a": 1}
    controller.admit(*slots("b"))
    attachment.look(4.0)
    assert application.nodes == {"b": 1}
    controller.admit()
    attachment.look(7.0)
    assert application.executors == 1, "queries go on, whatever is admitted"


def test_what_a_quota_does_not_give_is_not_asked_for_again_at_once() -> None:
    """4 would be right, the cluster has 2: asked once, and again after a minute."""
    application = FakeApplication(cluster=2)
    attachment = attached(application)
    at = feed(attachment, application, 1000, 8, 0.0)
    assert application.executors == 2
    assert application.changes == [4]
    assert "2 are given" in attachment.decisions[-1].why
    application.cluster = 10
    feed(attachment, application, 1000, 2, at + 60)
    assert application.executors == 4


def test_advice_only_where_executors_cannot_change() -> None:
    application = FakeApplication()
    application.why_fixed = "dynamic allocation is off"
    attachment = attached(application)
    feed(attachment, application, 1000, 5, 0.0)
    assert application.changes == []
    assert attachment.why_not == "dynamic allocation is off"
    assert attachment.advice is not None
    assert attachment.advice.needed_slots == 4


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ({"speed": 3}, "unknown 'speed'"),
        (-1, "expected a number above 0"),
        ({"rate": "3"}, "expected a number above 0"),
    ],
)
def test_targets_nobody_can_mean(target: Any, complaint: str) -> None:
    with pytest.raises(penstock.BadInputError, match=complaint):
        _wanted(target, 1, None, 900.0)


def test_limits_nobody_can_mean() -> None:
    with pytest.raises(penstock.BadInputError, match="below the minimum"):
        SizingGoal(minimum=3, maximum=2)
