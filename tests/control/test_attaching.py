"""Executors that follow: up at once, down late, within limits; the application stands still for nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.control.attached.attachment import Attachment
from penstock.control.attached.following import SizingGoal
from penstock.verbs.attach import _wanted

if TYPE_CHECKING:
    from collections.abc import Callable

FIXED_MS, ROW_MS = 200.0, 2.0
"""What a batch of the fake application costs at all, and a row on one slot."""


class FakeApplication:
    """Executors of one core that come at once, up to what the cluster has."""

    def __init__(self, executors: int = 1, cluster: int = 100) -> None:
        self.cores = 1
        self.why_fixed: str | None = None
        self.executors, self.cluster = executors, cluster
        self.changes: list[int] = []
        self.number = 0

    def listen(self, heard: Callable[[dict[str, Any]], None]) -> None:
        self.heard = heard

    def close(self) -> None:
        self.heard = lambda _: None

    @property
    def slots(self) -> int:
        return self.executors

    def change_to(self, executors: int, seconds: float) -> int:
        self.changes.append(executors)
        self.executors = min(executors, self.cluster)
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


def test_a_controller_may_admit_less() -> None:
    application = FakeApplication()
    told: list[dict[str, Any]] = []

    def report(values: dict[str, Any]) -> int:
        told.append(values)
        return 2

    attachment = Attachment("orders", application, SizingGoal(latency_ms=2000), report=report)
    feed(attachment, application, 100, 4, 0.0)
    feed(attachment, application, 1000, 4, 10.0)
    assert application.executors == 2
    assert "2 are admitted" in told[-1]["why"]
    assert told[-1]["limit"] == "executors"


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
