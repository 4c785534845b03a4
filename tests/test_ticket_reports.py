"""Reports made of tickets: rates over whole tickets, CPU between readings of one process."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.cluster.topology import Slot
from penstock.report.report import Audit, OperatorObservation
from penstock.report.tickets import TicketObservation, joined, slots_of, summarise_tickets

A, B = Slot("n1", 0), Slot("n2", 0)


def ticket(
    finished: float, ended: int = 0, slot: Slot = A, process: int = 1, cpu: float = 0.0, latency: float = 0.5
) -> TicketObservation:
    seen = {"op": OperatorObservation(received=10, sent=10, filtered=0, dead=0, busy_seconds=0.1)}
    return TicketObservation(finished, slot, process, cpu, 100.0, seen, ended, np.full(ended, latency))


def audit(emitted: int) -> Audit:
    return Audit(emitted=emitted, lost=0, duplicated=0, dead=0, filtered=0)


def test_the_sustained_rate_is_that_of_source_tuples() -> None:
    # every source tuple becomes two: 20 s of 100 a second at the end are 50 a second at the source
    tickets = [ticket(float(second), ended=100) for second in range(1, 31)]
    report = summarise_tickets(tickets, 0.0, 30.0, 10.0, 50.0, audit(1500), 0, 7)
    assert report.seconds == pytest.approx(20.0)
    assert report.sustained_rate == pytest.approx(50.0)
    assert report.stable
    assert report.backlog == 7
    assert report.latency_ms["p95"] == pytest.approx(500.0)


def test_what_comes_after_the_sources_were_held_does_not_count() -> None:
    tickets = [ticket(float(second), ended=100) for second in range(1, 21)] + [ticket(20.1, ended=5000)]
    report = summarise_tickets(tickets, 0.0, 20.0, 5.0, 100.0, audit(7000), 0, 0)
    assert report.sustained_rate == pytest.approx(100.0)


def test_tuples_emitted_before_a_resume_are_not_this_runs() -> None:
    tickets = [ticket(float(second), ended=100) for second in range(1, 21)]
    report = summarise_tickets(tickets, 0.0, 20.0, 5.0, 100.0, audit(12_000), 10_000, 0)
    assert report.sustained_rate == pytest.approx(100.0)


def test_too_little_is_said_to_be_too_little() -> None:
    report = summarise_tickets([ticket(1.0, ended=5)], 0.0, 10.0, 5.0, 100.0, audit(5), 0, 0)
    assert report.sustained_rate == 0.0
    assert not report.stable
    assert "too short" in report.notes[0]


def test_rising_latency_is_not_stable() -> None:
    tickets = [ticket(float(second), ended=50, latency=0.1 * second) for second in range(1, 31)]
    report = summarise_tickets(tickets, 0.0, 30.0, 5.0, 100.0, audit(1500), 0, 0)
    assert report.latency_slope == pytest.approx(0.1)
    assert not report.stable


def test_cpu_is_counted_for_every_process_of_a_slot() -> None:
    tickets = [
        ticket(0.0, cpu=5.0),
        ticket(4.0, cpu=7.0),
        # the slot's process died; another took its place
        ticket(6.0, process=2, cpu=1.0),
        ticket(10.0, process=2, cpu=4.0),
        ticket(10.0, slot=B, cpu=9.0),
    ]
    found = slots_of(tickets)
    assert found[A][0] == pytest.approx((2 + 3) / 10)
    assert found[A][1] == 100.0
    assert found[B] == (0.0, 100.0)


def test_older_tickets_put_together_say_the_same() -> None:
    tickets = [
        ticket(float(second), ended=100, slot=slot, cpu=0.5 * second) for second in range(1, 101) for slot in (A, B)
    ]
    fewer = joined(joined(tickets))
    # 200 tickets: 100 older ones become 50, then the older 75 of 150 become at most half of them and one a slot
    assert len(joined(tickets)) == 150
    assert len(fewer) <= 150 - 75 // 2 + 2
    assert [one.finished for one in fewer] == sorted(one.finished for one in fewer)
    before, after = (summarise_tickets(some, 0.0, 100.0, 0.0, 200.0, audit(20_000), 0, 0) for some in (tickets, fewer))
    assert after.sustained_rate == pytest.approx(before.sustained_rate, rel=0.03)
    assert after.operators["op"].received == before.operators["op"].received == 2000
    assert after.slots[A][0] == pytest.approx(before.slots[A][0])
    assert after.latency_ms == before.latency_ms


def test_tickets_of_processes_that_died_stay_apart() -> None:
    tickets = [ticket(1.0, process=1, cpu=9.0), ticket(2.0, process=2, cpu=0.1), ticket(3.0), ticket(4.0)]
    assert joined(tickets) == tickets
