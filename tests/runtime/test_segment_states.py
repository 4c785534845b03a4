"""The segment's state machine, event by event: no threads run here."""

from __future__ import annotations

from typing import Any

import pytest
from segment_builders import numbers

from penstock.base.errors import ImpossibleMoveError
from penstock.dataflow.logic import Logic, Per
from penstock.runtime import segment_states as st
from penstock.runtime.code_calls import SharedRows
from penstock.runtime.dead_letters import StoppedError
from penstock.runtime.steps import OVERDUE_SECONDS, Read, Step, plan_pools


def same(given: Any) -> Any:
    return given


class Driver:
    """Plays the owner and the threads of a segment, at times of its own."""

    def __init__(self, *steps: Step, queue_rows: int = 10, max_hung: int = 1) -> None:
        self.steps = steps
        self.machine = st.SegmentMachine(
            steps, plan_pools(steps), queue_rows=queue_rows, queue_bytes=1 << 20, max_hung=max_hung
        )
        self.now = 100.0
        self.woken: list[st.Wake] = []
        self.started: list[st.StartThread] = []
        self.interrupted: list[int] = []
        self.tell(st.OwnerEvent.START)

    def tell(self, event: st.Event, seconds: float = 0.0) -> Any:
        """Bring an event after `seconds`; return its answer. `woken` and `started` are what it led to."""
        self.now += seconds
        self.woken, self.started, answers = [], [], []
        for instruction in self.machine.handle(event, self.now):
            match instruction:
                case st.Wake():
                    self.woken.append(instruction)
                case st.StartThread():
                    self.started.append(instruction)
                case st.InterruptCall(thread):
                    self.interrupted.append(thread)
                case _:
                    answers.append(instruction)
        assert len(answers) <= 1
        return answers[0] if answers else None

    def feed(self, rows: int, position: int = 0) -> None:
        assert self.tell(st.FeedAsked(-1)) is st.Reply.PROCEED
        assert self.tell(st.Sent(position, numbers(0, rows), st.OWNER)) is st.Reply.PROCEED

    def begin(self, thread: int) -> st.WorkItem:
        begin = self.tell(st.WorkAsked(thread))
        assert isinstance(begin, st.Begin)
        return begin.item

    def share(self, thread: int) -> SharedRows:
        """A thread begins shared rows, or joins them."""
        shared = self.begin(thread).shared
        assert shared is not None
        return shared

    def state(self, thread: int) -> st.ThreadState:
        return self.machine.threads[thread].state


def one(threads: int = 1, timeout: float | None = None) -> Step:
    return Step("op", Logic(same, Per.ARROW, timeout_seconds=timeout), threads)


def per_row(threads: int) -> Step:
    return Step("op", Logic(same), threads)


def frames(position: int = -1) -> Step:
    return Step("frames", Logic(same, Per.MAP_IN_PANDAS, timeout_seconds=1.0), 1, (Read(position),))


def wait(place: st.Place, pool: int = 0) -> st.Wait:
    return st.Wait(place, pool)


def test_every_thread_of_every_pool_is_started() -> None:
    driver = Driver(one(2), Step("next", Logic(same, Per.ARROW), 1, (Read(0),)))
    assert [thread.pool.number for thread in driver.machine.threads.values()] == [0, 0, 1]
    assert {thread.state for thread in driver.machine.threads.values()} == {st.ThreadState.WAITING}


def test_a_piece_goes_from_the_queue_to_a_thread_and_the_pool_is_idle_again() -> None:
    driver = Driver(one(2))
    assert driver.tell(st.WorkAsked(1)) == wait(st.Place.WORK)
    driver.feed(4)
    # two threads may share four rows
    assert driver.woken == [st.Wake(st.Place.WORK, 0, 2)]
    assert driver.tell(st.OwnerEvent.FLUSH) == wait(st.Place.OWNER)
    # pieces begin with one row; it has waited for 2 s
    begin = driver.tell(st.WorkAsked(1), seconds=2.0)
    assert (begin.item.rows, begin.waited) == (1, 2.0)
    # a row in no time: the next piece has two, of which half of an even part for each thread is one
    assert driver.tell(st.WorkAsked(1, rows=1, seconds=0.0)).item.rows == 1
    assert driver.tell(st.WorkAsked(2)).item.rows == 1
    assert driver.tell(st.WorkAsked(1, rows=1)).item.rows == 1
    assert driver.tell(st.WorkAsked(1, rows=1)) == wait(st.Place.WORK)
    assert driver.woken == [], "thread 2 still works"
    assert driver.tell(st.WorkAsked(2, rows=1)) == wait(st.Place.WORK)
    assert driver.woken == [st.Wake(st.Place.OWNER)]
    assert driver.tell(st.OwnerEvent.FLUSH) is st.Reply.PROCEED
    assert driver.machine.state is st.SegmentState.RUNNING


def test_who_sends_waits_for_room_and_the_last_piece_may_exceed_it() -> None:
    driver = Driver(one(2), Step("next", Logic(same, Per.ARROW), 1, (Read(0),)), queue_rows=10)
    driver.feed(25)
    assert driver.tell(st.FeedAsked(-1)) == wait(st.Place.OWNER)
    driver.begin(1)
    assert driver.tell(st.Sent(1, numbers(0, 12), 1)) is st.Reply.PROCEED, "9 rows have room, 12 may come"
    assert driver.tell(st.Sent(1, numbers(0, 1), 1)) == wait(st.Place.ROOM, 1)
    # the second pool takes its 12 rows one by one: with the third there is room again
    for rows, woken in ((0, []), (1, []), (1, [st.Wake(st.Place.ROOM, 1), st.Wake(st.Place.OWNER)])):
        driver.tell(st.WorkAsked(3, rows=rows, seconds=0.025))
        assert driver.woken == woken
    assert driver.tell(st.Sent(1, numbers(0, 1), 1)) is st.Reply.PROCEED


def test_output_is_bounded_for_threads() -> None:
    driver = Driver(one(2))
    driver.feed(2)
    driver.begin(1)
    assert driver.tell(st.Left("op", numbers(0, 10), 1)) is st.Reply.PROCEED
    assert driver.woken == [], "not worth taking"
    driver.tell(st.Left("op", numbers(0, st.MAX_OUTPUT_ROWS), 1))
    assert driver.woken == [st.Wake(st.Place.OWNER)]
    assert driver.tell(st.Left("op", numbers(0, 1), 1)) == wait(st.Place.OUTPUT)
    taken, wake = driver.machine.take_output()
    assert [len(batch) for batch in taken["op"]] == [10, st.MAX_OUTPUT_ROWS]
    assert wake == st.Wake(st.Place.OUTPUT)
    assert driver.tell(st.Left("op", numbers(0, 1), 1)) is st.Reply.PROCEED


# Rows that threads share.


def test_a_piece_is_shared_until_no_row_is_left_to_begin() -> None:
    driver = Driver(per_row(3))
    driver.feed(9)
    # a row for each of three threads
    shared = driver.share(1)
    assert len(shared.to_begin) == 3
    assert driver.share(2) is shared
    assert shared.threads == 2
    shared.to_begin.clear()
    assert driver.share(3) is not shared, "the next piece"


def test_the_last_part_settles_shared_rows() -> None:
    driver = Driver(per_row(2))
    driver.feed(2)
    shared = driver.share(1)
    driver.begin(2)
    shared.to_begin.clear()
    assert driver.tell(st.PartEnded(1, shared)) is st.Reply.PROCEED
    assert driver.tell(st.PartEnded(2, shared)) is st.Reply.SETTLE_ALL
    assert driver.machine.pools[0].shared == []


def test_finished_rows_do_not_wait_long_for_a_slow_one() -> None:
    driver = Driver(per_row(2))
    driver.feed(2)
    shared = driver.share(1)
    driver.begin(2)
    assert driver.tell(st.OwnerEvent.TICK) == st.Wait(st.Place.TIMER), "rows are left to begin"
    shared.to_begin.clear()
    driver.tell(st.PartEnded(1, shared))
    assert driver.woken == [st.Wake(st.Place.TIMER)]
    assert driver.tell(st.WorkAsked(1)) == wait(st.Place.WORK)
    assert driver.tell(st.OwnerEvent.TICK).seconds == pytest.approx(OVERDUE_SECONDS)
    assert driver.woken == []
    driver.tell(st.OwnerEvent.TICK, seconds=0.03)
    assert driver.woken == [st.Wake(st.Place.WORK, 0, 1)]
    assert driver.begin(1).shared is shared
    assert driver.tell(st.PartEnded(1, shared)) is st.Reply.SETTLE
    assert driver.tell(st.WorkAsked(1)) == wait(st.Place.WORK), "overdue again only after another while"
    assert driver.tell(st.PartEnded(2, shared)) is st.Reply.SETTLE_ALL


# Time limits.


def test_a_call_that_takes_too_long_is_continued_by_another_thread() -> None:
    driver = Driver(one(timeout=0.5))
    driver.feed(1)
    item = driver.begin(1)
    driver.machine.call_started(1, 0.5, driver.now)
    assert driver.tell(st.OwnerEvent.TICK, seconds=0.4) == st.Wait(st.Place.TIMER, 0, 0.05)
    driver.tell(st.OwnerEvent.TICK, seconds=0.2)
    assert driver.interrupted == [1]
    assert driver.started == [st.StartThread(2, 0, replaces=1, item=item, limit=0.5)]
    assert (driver.state(1), driver.state(2)) == (st.ThreadState.ABANDONED, st.ThreadState.WORKING)
    assert item.lost_seconds == 0.5
    assert not driver.machine.call_ended(1)
    driver.tell(st.OwnerEvent.TICK, seconds=9.0)
    assert driver.started == [], "once"
    assert driver.tell(st.OwnerEvent.FLUSH) == wait(st.Place.OWNER), "its item is not done"
    driver.tell(st.WorkAsked(2, rows=1))
    assert driver.tell(st.OwnerEvent.FLUSH) is st.Reply.PROCEED
    driver.tell(st.ThreadEnded(1))
    assert list(driver.machine.threads) == [2]


def test_a_call_that_ends_in_time_is_not_given_up_later() -> None:
    driver = Driver(one(timeout=0.5))
    driver.feed(1)
    driver.begin(1)
    driver.machine.call_started(1, 0.5, driver.now)
    assert driver.machine.call_ended(1)
    driver.tell(st.OwnerEvent.TICK, seconds=9.0)
    assert driver.started == []


def test_too_many_hanging_calls_fail_the_segment_and_those_that_ended_do_not_count() -> None:
    """Twice as many as the operator has threads may hang: two of one thread. The third is one too many."""
    for ended in (False, True):
        driver = Driver(one(timeout=0.5), max_hung=1)
        driver.feed(1)
        driver.begin(1)
        for thread in (1, 2, 3):
            driver.machine.call_started(thread, 0.5, driver.now)
            driver.tell(st.OwnerEvent.TICK, seconds=1.0)
            if ended and thread == 1:
                driver.tell(st.ThreadEnded(1))
        assert driver.interrupted == [1, 2, 3]
        assert (driver.machine.state is st.SegmentState.FAILED) is not ended
        if not ended:
            assert str(driver.machine.failure) == "operator 'op': 3 calls that took too long still hang"


# Flushing, failing, dropping, closing.


def test_streams_end_pool_after_pool_when_all_is_processed() -> None:
    driver = Driver(frames(), Step("wide", Logic(same, Per.ARROW), 2, (Read(0),)), frames(1))
    driver.feed(1)
    driver.begin(1)
    assert driver.tell(st.OwnerEvent.FLUSH) == wait(st.Place.OWNER)
    assert driver.tell(st.WorkAsked(1, rows=1)) == wait(st.Place.WORK), "not before the owner has seen it"
    for thread, pool in ((1, 0), (4, 2)):
        assert driver.tell(st.OwnerEvent.FLUSH) == wait(st.Place.OWNER)
        assert driver.woken == [st.Wake(st.Place.WORK, pool)]
        item = driver.begin(thread)
        assert item.ends_streams
        driver.tell(st.Sent(1, numbers(0, 1), thread))
        for other in (2, 2):
            assert driver.tell(st.OwnerEvent.FLUSH) == wait(st.Place.OWNER)
            driver.tell(st.WorkAsked(other, rows=1))
        driver.tell(st.WorkAsked(thread))
        assert driver.woken == [st.Wake(st.Place.OWNER)]
    assert driver.tell(st.OwnerEvent.FLUSH) is st.Reply.PROCEED


def test_another_thread_ends_the_streams_of_one_that_was_abandoned() -> None:
    driver = Driver(frames())
    driver.tell(st.OwnerEvent.FLUSH)
    item = driver.begin(1)
    driver.machine.call_started(1, 1.0, driver.now)
    driver.tell(st.OwnerEvent.TICK, seconds=2.0)
    assert [start.item for start in driver.started] == [item]
    assert driver.tell(st.OwnerEvent.FLUSH) == wait(st.Place.OWNER)
    driver.tell(st.WorkAsked(2))
    assert driver.tell(st.OwnerEvent.FLUSH) is st.Reply.PROCEED


def test_without_threads_the_owner_ends_streams_itself() -> None:
    step = frames()
    plans = [type(plan)(plan.positions, 0) for plan in plan_pools([step])]
    machine = st.SegmentMachine([step], plans, queue_rows=1, queue_bytes=1, max_hung=1)
    assert machine.handle(st.OwnerEvent.START, 0.0) == []
    (begin,) = machine.handle(st.OwnerEvent.FLUSH, 0.0)
    assert isinstance(begin, st.Begin)
    assert begin.item.ends_streams
    assert machine.handle(st.OwnerEvent.FLUSH, 0.0) == [st.Reply.PROCEED]


def test_a_failure_is_raised_by_whoever_asks_and_nothing_more_begins() -> None:
    driver = Driver(one(2))
    driver.feed(4)
    driver.begin(1)
    error = OSError("gone")
    driver.tell(st.Failed(error))
    assert driver.woken == [st.Wake(None)]
    driver.tell(st.Failed(OSError("and again")))
    assert driver.tell(st.FeedAsked(-1)) == st.Reject(error)
    assert driver.tell(st.OwnerEvent.FLUSH) == st.Reject(error)
    assert driver.tell(st.WorkAsked(2)) == wait(st.Place.WORK)
    assert driver.tell(st.Sent(0, numbers(0, 1), 1)) is st.Reply.PROCEED, "it goes nowhere"
    assert driver.tell(st.OwnerEvent.DROP) is st.Reply.PROCEED
    assert driver.machine.state is st.SegmentState.FAILED


def test_what_is_dropped_is_forgotten_once_what_is_under_way_has_ended() -> None:
    driver = Driver(one(2))
    driver.feed(4)
    driver.begin(1)
    driver.tell(st.Left("op", numbers(0, 1), 1))
    assert driver.tell(st.OwnerEvent.DROP).place is st.Place.OWNER
    driver.tell(st.Left("op", numbers(0, 1), 1))
    assert driver.tell(st.WorkAsked(1, rows=1)) == wait(st.Place.WORK)
    assert driver.woken == [st.Wake(st.Place.OWNER)]
    assert driver.tell(st.OwnerEvent.DROP) is st.Reply.PROCEED
    assert driver.machine.state is st.SegmentState.RUNNING
    assert driver.machine.take_output()[0] == {}
    assert driver.tell(st.OwnerEvent.FLUSH) is st.Reply.PROCEED


def test_code_that_does_not_end_when_it_is_dropped_fails_the_segment() -> None:
    driver = Driver(one(2))
    driver.feed(1)
    driver.begin(1)
    assert driver.tell(st.OwnerEvent.DROP).seconds == pytest.approx(st.CLOSING_SECONDS)
    assert driver.tell(st.OwnerEvent.DROP, seconds=st.CLOSING_SECONDS + 0.1) is st.Reply.PROCEED
    assert str(driver.machine.failure) == "code still runs that was given up; the segment must be built anew"


def test_streams_that_end_when_all_is_dropped_do_not_keep_the_segment_busy() -> None:
    for begun in (False, True):
        driver = Driver(frames())
        driver.tell(st.OwnerEvent.FLUSH)
        if begun:
            driver.begin(1)
        driver.tell(st.OwnerEvent.DROP)
        if begun:
            driver.tell(st.WorkAsked(1))
            driver.tell(st.OwnerEvent.DROP)
        assert driver.machine.state is st.SegmentState.RUNNING
        assert driver.machine.is_idle


def test_a_closed_segment_stops_its_threads_and_rejects_batches() -> None:
    driver = Driver(one(2, timeout=1.0))
    driver.feed(4)
    driver.begin(1)
    assert driver.tell(st.OwnerEvent.CLOSE) is st.Reply.PROCEED
    assert driver.woken == [st.Wake(None)]
    assert driver.tell(st.OwnerEvent.CLOSE) is st.Reply.PROCEED, "once more does no harm"
    assert driver.tell(st.OwnerEvent.TICK) is st.Reply.STOP
    for thread in (1, 2):
        assert driver.tell(st.WorkAsked(thread)) is st.Reply.STOP
        driver.tell(st.ThreadEnded(thread))
    answer = driver.tell(st.FeedAsked(-1))
    assert isinstance(answer.error, StoppedError)
    error = OSError("cannot be closed")
    driver.tell(st.Failed(error))
    assert driver.machine.failure is error
    assert driver.machine.state is st.SegmentState.CLOSED


# What cannot happen.


def test_an_event_that_cannot_come_raises_with_the_history() -> None:
    driver = Driver(one(2))
    driver.feed(1)
    driver.begin(1)
    driver.tell(st.OwnerEvent.FLUSH)
    with pytest.raises(ImpossibleMoveError) as raised:
        driver.tell(st.FeedAsked(-1))
    assert str(raised.value) == (
        "FeedAsked: the segment is flushing; moves before: thread 1 waiting -> working, segment running -> flushing"
    )


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (st.WorkAsked(7), "no such thread"),
        (st.ThreadEnded(7), "no such thread"),
        (st.PartEnded(2, SharedRows(0, per_row(2), Logic(same), numbers(0, 1))), "thread 2 of pool 0 is waiting"),
    ],
)
def test_a_thread_brings_no_event_that_its_state_does_not_have(event: st.Event, why: str) -> None:
    driver = Driver(per_row(2))
    with pytest.raises(ImpossibleMoveError, match=why):
        driver.tell(event)


def test_every_event_has_a_handler_and_every_state_its_moves() -> None:
    assert set(st.MOVES) == {*st.SegmentState, *st.ThreadState}
    assert {event for event in st.EVENTS if isinstance(event, st.OwnerEvent)} == set(st.OwnerEvent)
    reached = set().union(*st.MOVES.values())
    assert reached == {*st.SegmentState, *st.ThreadState}
