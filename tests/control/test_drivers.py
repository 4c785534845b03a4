"""Driver processes without Spark: a stand-in that follows the same files, watched, lost, and found again."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from driver_stand_in import A, B, executors_in, order, pid, until
from sqlalchemy import select

from penstock.base.clock import Stopwatch, pause
from penstock.control.controller import Controller
from penstock.control.core.messages import (
    Died,
    Drained,
    DriverEnded,
    FirstTuple,
    Holds,
    OrderKind,
    PartReading,
    Started,
    Submit,
)
from penstock.control.core.records import ControllerState, PipelineState, ServiceTarget, Submission
from penstock.control.core.report_handlers import LONGEST_WAIT
from penstock.control.executors.driver_files import JOB, DriverJob, get
from penstock.control.executors.driver_processes import DriverExecutors, batch_interval_ms, end_drivers, used_by
from penstock.control.executors.simulated import SimulatedNodes
from penstock.control.store import schema
from penstock.control.store.store import Store
from penstock.testing import ManualClock
from penstock.testing.controller import RatePerUnit as PerUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[], DriverExecutors]]:
    yield lambda: executors_in(tmp_path)
    end_drivers(tmp_path / "pipelines")


def test_started_rescaled_drained_and_each_said_once(made: Callable[[], DriverExecutors]) -> None:
    executors = made()
    executors.want([order()], 1)
    seen = until(executors, FirstTuple("p", 1))
    assert seen.count(Started("p", 1)) == 1
    assert seen.count(Holds("p", 1, (A, B))) == 1
    executors.want([order(serial=2, slots=(A,))], 1)
    until(executors, Holds("p", 2, (A,)))
    executors.want([order(serial=3, slots=(), kind=OrderKind.DRAIN)], 1)
    seen = until(executors, Drained("p", 1))
    assert Holds("p", 3, ()) in seen
    executors.want([order(serial=4, incarnation=2)], 1)
    until(executors, Started("p", 2))
    executors.want([order(serial=5, incarnation=2, slots=(), kind=OrderKind.END)], 1)
    until(executors, DriverEnded("p"))
    assert executors.observe(0.0) == []


def test_cpu_and_memory_of_a_pipeline_are_those_of_its_slots() -> None:
    operator = PartReading("parse", A, {"busy": 0.5})
    parts = (operator, PartReading(None, A, {"cpu": 0.5, "memory_mb": 100.0}), PartReading(None, B, {"cpu": 0.25}))
    # a sum of which one part is not known is not known
    assert used_by(parts) == {"cpu": 0.75}
    assert used_by((operator,)) == {}


def test_one_that_dies_says_why(made: Callable[[], DriverExecutors]) -> None:
    executors = made()
    executors.want([order("bad")], 1)
    until(executors, Died("p", 1, "it cannot be run"))
    assert "it cannot be run" in executors.log_of("p")


def test_one_that_dies_again_and_again_has_failed_in_the_end_and_the_other_flows(
    made: Callable[[], DriverExecutors], tmp_path: Path
) -> None:
    clock = ManualClock(1000.0)
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    nodes = SimulatedNodes(2, 1)
    controller = Controller(store, made(), nodes, PerUnit(), clock, ManualClock(0.0), ControllerState())
    controller.look()
    for name in ("good", "bad"):
        controller.ask(Submit(Submission(name, name, desired=1, load="5")))

    def at(name: str) -> PipelineState:
        return controller.state.pipelines[name].state

    watch = Stopwatch()
    while at("good") is not PipelineState.ACTIVE or at("bad") is not PipelineState.FAILED:
        assert watch.seconds() < 60, controller.state.pipelines
        # starts take the machine's time, waits between them the controller's
        clock.time += LONGEST_WAIT if at("bad") is PipelineState.BACKING_OFF else 0.1
        controller.look()
        pause(0.05)
    failed = controller.state.pipelines["bad"]
    assert (failed.deaths, failed.incarnation, failed.held) == (6, 6, ())
    assert controller.state.pipelines["good"].incarnation == 1
    said = [row["why"] for row in store.read(select(schema.decisions)) if row["kind"] == "fail"]
    assert said == ["its driver died 6 times in a row, the last time: it cannot be run"]
    controller.close()


def test_killed_it_is_dead_and_holds_nothing(made: Callable[[], DriverExecutors]) -> None:
    executors = made()
    executors.want([order()], 1)
    until(executors, Started("p", 1))
    os.kill(pid(executors), signal.SIGKILL)
    seen = until(executors, Holds("p", 1, ()))
    seen += executors.observe(0.0)
    assert any(isinstance(one, Died) and one.incarnation == 1 for one in seen)


def test_it_flows_on_while_the_controller_is_gone_and_is_found_again(made: Callable[[], DriverExecutors]) -> None:
    first = made()
    first.want([order()], 1)
    until(first, Started("p", 1))
    before = pid(first)
    first.close()
    second = made()
    second.want([order()], 2)
    until(second, Started("p", 1))
    assert pid(second) == before
    # the first is fenced: its orders are older than the number the driver has heard of
    pause(0.3)
    first.want([order(serial=9, slots=(A,))], 1)
    pause(0.5)
    assert not any(isinstance(one, Holds) and one.serial == 9 for one in first.observe(0.0))
    assert pid(second) == before


def test_one_that_does_not_listen_is_ended_by_force(made: Callable[[], DriverExecutors]) -> None:
    executors = made()
    executors.want([order("deaf")], 1)
    until(executors, Started("p", 1))
    executors.want([order("deaf", serial=2, slots=(), kind=OrderKind.END)], 1)
    pause(0.5)
    assert DriverEnded("p") not in executors.observe(0.0)
    executors.want([order("deaf", serial=3, slots=(), kind=OrderKind.END, forced=True)], 1)
    until(executors, DriverEnded("p"))


def test_a_new_incarnation_ends_an_old_driver_first(made: Callable[[], DriverExecutors]) -> None:
    executors = made()
    executors.want([order()], 1)
    until(executors, Started("p", 1))
    before = pid(executors)
    executors.want([order(serial=2, incarnation=2)], 1)
    until(executors, Started("p", 2))
    assert pid(executors) != before
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


def test_what_never_ran_has_ended(made: Callable[[], DriverExecutors]) -> None:
    executors = made()
    executors.want([order(slots=(), kind=OrderKind.END)], 1)
    assert executors.observe(0.0) == [Holds("p", 1, ()), DriverEnded("p")]


def test_batches_are_as_seldom_as_the_latency_allows(made: Callable[[], DriverExecutors]) -> None:
    assert [batch_interval_ms(latency) for latency in (None, 100.0, 800.0, 60_000.0)] == [500, 100, 200, 500]
    executors = made()
    submission = Submission("p", "good", target=ServiceTarget(rate=5.0, latency_ms=1000.0))
    executors.want([order(submission=submission)], fence=1)
    job = get(DriverJob, executors._base / "p", JOB)
    assert job is not None
    assert job.config.batch_interval_ms == 250
    # a driver that has not said yet who it is would be left behind
    until(executors, Started("p", 1))
