"""A driver's loop with a run that is not Spark's: what it reports while a change is under way, and how busy it is."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from penstock.base.clock import Stopwatch, now, pause
from penstock.base.errors import ClusterError
from penstock.cluster.topology import Slot
from penstock.control.core.messages import OrderKind
from penstock.control.executors.driver import Driver, batch_cost, busiest, part_of_possible, parts_of
from penstock.control.executors.driver_files import (
    ORDER,
    REPORT,
    DriverJob,
    DriverOrder,
    DriverReport,
    DriverState,
    PartReport,
    get,
    put,
)
from penstock.report.figures import Figures, OperatorFlow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.control.executors.spark_runs import DrivenRun

A, B = Slot("n1", 0), Slot("n2", 0)


class Run:
    """Its changes take until they are let go on."""

    is_running = True
    last_batch = 0.0
    shares: dict[int, float] = {}  # noqa: RUF012
    most_work = 2.0
    idle_seconds = 0.0
    is_source_away = False
    pause_seconds = 0.7

    def __init__(self) -> None:
        self.come = threading.Event()
        self.changes: list[DriverOrder] = []
        self.fails = 0
        self.drained = False
        self.backlog = 0

    @property
    def figures(self) -> Figures:
        self.backlog += 1
        flow = OperatorFlow(100.0, 100.0, 1.5)
        return Figures(
            1.0, None, 100.0, 90.0, self.backlog, {"p95": 5.0}, {"work": 1.5}, {"n1/0": (0.5, 10.0)}, recent=95.0,
            operators={"work": flow}, on_slots={("work", "n1/0"): flow, ("work", "n2/0"): flow},
            batch_seconds=1.0, batches_per_second=0.9, lag={"t/0": 40, "t/1": 2},
        )  # fmt: skip

    def threads_on(self, operator: str, slot: str) -> int:
        return 1

    def nodes(self) -> dict[str, int]:
        return {"n1": 1}

    def change_to(self, order: DriverOrder) -> None:
        self.changes.append(order)
        assert self.come.wait(20)
        if self.fails:
            self.fails -= 1
            raise ClusterError("slots that did not come")

    def watch(self, fields: object) -> None: ...

    def stop(self) -> None:
        self.drained = True

    def kill(self) -> None: ...

    def has_ended(self, timeout: float) -> bool:
        pause(0.01)
        return False


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[tuple[Run, Callable[..., None], Callable[[], DriverReport]]]:
    run, job = Run(), DriverJob(name="p", pipeline="linear", incarnation=1)

    def tell(serial: int, slots: Sequence[Slot], kind: OrderKind = OrderKind.RUN) -> None:
        places = tuple((slot.node, slot.number) for slot in slots)
        put(tmp_path, ORDER, DriverOrder(kind=kind, serial=serial, incarnation=1, fence=1, slots=places))

    def said() -> DriverReport:
        report = get(DriverReport, tmp_path, REPORT)
        assert report is not None
        return report

    tell(1, [A])
    driver = Driver(tmp_path, job)
    first = get(DriverOrder, tmp_path, ORDER)
    assert first is not None
    driver._begin_with(first)
    ended: list[DriverState] = []
    thread = threading.Thread(target=lambda: ended.append(driver._conduct(cast("DrivenRun", run))))
    thread.start()
    until(lambda: get(DriverReport, tmp_path, REPORT))
    yield run, tell, said
    run.come.set()
    tell(99, [], OrderKind.DRAIN)
    thread.join(20)
    assert ended == [DriverState.DRAINED]
    assert run.drained


def until(true: Callable[[], object]) -> None:
    watch = Stopwatch()
    while not true():
        assert watch.seconds() < 20
        pause(0.02)


Driven = tuple[Run, "Callable[..., None]", "Callable[[], DriverReport]"]


def test_a_stream_that_stopped_arrives_at_no_rate(driven: Driven) -> None:
    run, _, said = driven
    until(lambda: said().readings["offered_rate"] == 100.0)
    assert (said().readings["lag"], partitions(said())) == (42.0, {"t/0": 40.0, "t/1": 2.0})
    run.idle_seconds = 3.0
    until(lambda: said().readings["offered_rate"] == 0.0)
    assert (said().readings["rate"], said().readings["backlog"], said().readings["lag"]) == (0.0, 0.0, 0.0)
    assert partitions(said()) == {"t/0": 0.0, "t/1": 0.0}


def test_a_broker_that_is_away_is_no_stream_that_stopped(driven: Driven) -> None:
    run, _, said = driven
    run.idle_seconds = 3.0
    run.is_source_away = True
    until(lambda: not said().readings)
    assert not said().parts
    # it is back; until there is a batch, that none was there says nothing
    run.is_source_away = False
    pause(1.2)
    assert not said().readings
    run.last_batch, run.idle_seconds = now(), 0.0
    until(lambda: said().readings["offered_rate"] == 100.0 if said().readings else False)


def partitions(report: DriverReport) -> dict[str, float]:
    return {part.partition: part.values["lag"] for part in report.parts if part.partition is not None}


def test_while_executors_are_on_their_way_it_goes_on_reporting(driven: Driven) -> None:
    run, tell, said = driven
    tell(2, [A, B])
    until(lambda: run.changes)
    before = said().readings["backlog"]
    until(lambda: said().readings["backlog"] > before + 1)
    assert said().serial == 1
    run.come.set()
    until(lambda: said().serial == 2)
    assert [order.places for order in run.changes] == [(A, B)]


def test_what_did_not_come_is_asked_for_again(driven: Driven, capfd: pytest.CaptureFixture[str]) -> None:
    run, tell, said = driven
    run.fails = 1
    run.come.set()
    tell(2, [A, B])
    until(lambda: said().why)
    assert (said().why, said().serial, said().state) == ("slots that did not come", 1, DriverState.RUNNING)
    until(lambda: said().serial == 2)
    assert said().why == ""
    assert [order.places for order in run.changes] == [(A, B), (A, B)]
    assert "did not come; it is tried again" in capfd.readouterr().err


def test_what_a_change_cost_is_reported(driven: Driven) -> None:
    run, tell, said = driven
    run.come.set()
    tell(2, [B])
    until(lambda: said().serial == 2)
    assert (said().moved_threads, said().pause_seconds) == (1, 0.7)
    # the same executors by another order: nothing is done
    tell(3, [B])
    until(lambda: said().serial == 3)
    assert (said().moved_threads, said().pause_seconds) == (0, 0.0)
    assert len(run.changes) == 1


def test_how_busy_it_is_counts_all_its_threads() -> None:
    # 1.5 busy seconds a second on two slots with a thread each
    parts = parts_of(Run().figures, Run().threads_on)
    assert busiest(parts) == pytest.approx(0.75)


def test_what_a_batch_costs_besides_its_work_is_no_room_for_more() -> None:
    figures = Run().figures
    # 0.9 batches a second of 1 s each are at work for 0.75 s in all
    cost = batch_cost(figures, 0.75)
    assert cost == pytest.approx(1 - 0.75 / 0.9)
    # with batches of 2 s of work it can be at work for 2 / 2.167 of the time
    assert part_of_possible(0.75, 0.2, 2.0) == pytest.approx(0.75 * 2.2 / 2.0)
    assert part_of_possible(0.99, 0.2, 2.0) == 1.0
    assert batch_cost(replace(figures, batch_seconds=None), 0.75) is None


def test_the_report_has_both(driven: Driven) -> None:
    _, _, said = driven
    readings = said().readings
    assert readings["batch_cost_s"] == pytest.approx(1 - 0.75 / 0.9)
    assert readings["busy"] == pytest.approx(0.75 * (2 + readings["batch_cost_s"]) / 2)


def test_more_than_all_of_unknown_threads_is_no_share() -> None:
    assert busiest((PartReport(operator="work", values={"busy": 1.5}),)) is None
    assert busiest((PartReport(operator="frame", values={"busy": 0.5}),)) == 0.5
