"""Which segments a worker keeps when runs take turns in it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.dataflow.logic import Logic
from penstock.runtime.segment import Segment
from penstock.runtime.steps import Step
from penstock.spark.region_function import KeptSegments

if TYPE_CHECKING:
    import pytest


class Worker:
    """Builds segments of runs, and notes what it builds and closes."""

    def __init__(self, most_runs: int) -> None:
        self.kept = KeptSegments(most_runs)
        self.log: list[str] = []

    def use(self, run: str, region: int = 0) -> Segment:
        return self.kept.get(run, region, lambda: _NotedSegment(f"{run}{region}", self.log))


class _NotedSegment(Segment):
    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__([Step("op", Logic(lambda row: row))])
        self._name = name
        self._log = log
        log.append(f"build {name}")

    def close(self) -> None:
        super().close()
        self._log.append(f"close {self._name}")
        if self._name.startswith("bad"):
            raise OSError("connection reset")


def test_runs_that_take_turns_are_built_once() -> None:
    worker = Worker(2)
    for _ in range(3):
        assert worker.use("a") is worker.use("a")
        worker.use("a", 1)
        worker.use("b")
    assert worker.log == ["build a0", "build a1", "build b0"]


def test_of_more_runs_those_used_last_stay() -> None:
    worker = Worker(2)
    for run in "abac":
        worker.use(run)
    assert worker.log == ["build a0", "build b0", "close b0", "build c0"]
    worker.kept.close()
    assert worker.log[-2:] == ["close a0", "close c0"]
    worker.kept.close()
    assert len(worker.log) == 6, "each once"


def test_what_failed_is_built_anew() -> None:
    worker = Worker(2)
    worker.use("a")
    worker.kept.drop("a", 0)
    worker.kept.drop("a", 0)
    worker.use("a")
    assert worker.log == ["build a0", "close a0", "build a0"]


def test_another_run_does_not_fail_for_what_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(1)
    worker.use("bad")
    with caplog.at_level(logging.WARNING):
        worker.use("b")
    assert caplog.messages == ["run bad: what its code opened cannot be closed: OSError: connection reset"]
    assert worker.log[-1] == "build b0"
