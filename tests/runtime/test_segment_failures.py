"""Code that hangs, raises, kills its process or answers what does not fit, inside a segment."""

from __future__ import annotations

import asyncio
import os
import threading
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import pytest
from segment_builders import NUMBERS, by_row, collected, numbers, values, waits

from penstock.base.clock import Stopwatch, pause
from penstock.dataflow.logic import Logic, OnError, Per
from penstock.runtime.batch import Batch
from penstock.runtime.breadcrumbs import Breadcrumbs, Crumb, digest, read_crumb
from penstock.runtime.dead_letters import DEAD_LETTERS, DeadLetter, StoppedError
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.runtime.steps import Read, Step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd


class Hang:
    """Hangs on one number for as long as it is not let go."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.go = threading.Event()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == self.number:
            self.go.wait()
        return row

    def on_frames(self, frame: pd.DataFrame) -> pd.DataFrame:
        if (frame.n == self.number).any():
            self.go.wait()
        return frame


@pytest.mark.parametrize("per", [Per.ROW, Per.PANDAS])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_call_that_hangs_is_given_up_and_the_rest_goes_on(per: Per, threads: int) -> None:
    hang = Hang(37)
    logic = Logic(hang if per is Per.ROW else hang.on_frames, per, timeout_seconds=0.05)
    steps = [Step("hangs", logic, threads), Step("sink", reads=(Read(0),), leaves=True)]
    segment = Segment(steps, SegmentOptions(audit=True))
    found = collected(segment, [numbers(0, 60), numbers(60, 100)])
    account = segment.take_account()
    hang.go.set()
    segment.close()
    assert sorted(values(found["sink"])) == [n for n in range(100) if n != 37]
    assert account.errors == [("hangs", 37, "TimeoutError: took longer than 0.05 s")]
    assert account.ids is not None
    assert set(account.ids.dead) == {37}


def test_a_loop_without_end_does_not_keep_its_thread() -> None:
    def endless(row: dict[str, Any]) -> dict[str, Any]:
        while row["n"] == 3:
            pass
        return row

    before = set(threading.enumerate())
    steps = [Step("endless", Logic(endless, timeout_seconds=0.05), leaves=True)]
    segment = Segment(steps)
    assert sorted(values(collected(segment, [numbers(0, 10)])["endless"])) == [n for n in range(10) if n != 3]
    segment.close()
    watch = Stopwatch()
    while not before.issuperset(threading.enumerate()) and watch.seconds() < 20:
        pause(0.01)
    assert before.issuperset(threading.enumerate())


def test_too_many_threads_that_hang_stop_the_run() -> None:
    go = threading.Event()

    def hangs(row: dict[str, Any]) -> dict[str, Any]:
        go.wait()
        return row

    segment = Segment([Step("stuck", Logic(hangs, timeout_seconds=0.01), 2)], SegmentOptions(max_hung=5))
    with pytest.raises(StoppedError, match="operator 'stuck': 6 calls"):
        collected(segment, [numbers(0, 100)])
    go.set()
    segment.close()


def test_each_operator_may_have_as_many_calls_hang_as_it_has_threads_twice() -> None:
    """Or three where it has fewer: eight of the first hang here, and three of the second; one more is too many."""
    go = threading.Event()

    def hangs_from(first: int, last: int) -> Logic:
        def code(row: dict[str, Any]) -> dict[str, Any]:
            if first <= row["n"] <= last:
                go.wait()
            return row

        return Logic(code, timeout_seconds=0.05)

    steps = [
        Step("wide", hangs_from(0, 8), 4, leaves=True),
        Step("narrow", hangs_from(9, 11), reads=(Read(0),), leaves=True),
    ]
    segment = Segment(steps, SegmentOptions(max_hung=3))
    out = collected(segment, [numbers(0, 8), numbers(9, 15)])
    assert sorted(values(out["wide"])) == list(range(9, 15))
    assert sorted(values(out["narrow"])) == [12, 13, 14]
    with pytest.raises(StoppedError, match="operator 'wide': 9 calls"):
        collected(segment, [numbers(8, 9)])
    go.set()
    segment.close()


class PanicError(BaseException):
    """As libraries in other languages raise it."""


RAISED: list[type[BaseException]] = [SystemExit, asyncio.CancelledError, PanicError]


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("per", [Per.ROW, Per.PANDAS, Per.MAP_IN_PANDAS])
@pytest.mark.parametrize("threads", [1, 2])
def test_whatever_code_raises_costs_the_row_and_not_the_run(error: type[BaseException], per: Per, threads: int) -> None:
    def on_row(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 3:
            raise error("three")
        return row

    def on_frame(frame: pd.DataFrame) -> pd.DataFrame:
        frame.n.map(lambda n: on_row({"n": n}))
        return frame

    code = {Per.ROW: on_row, Per.PANDAS: on_frame, Per.MAP_IN_PANDAS: lambda frames: map(on_frame, frames)}
    segment = Segment([Step("op", Logic(code[per], per), threads, schema=NUMBERS, leaves=True)])
    out = collected(segment, [numbers(0, 6)])
    account = segment.take_account()
    segment.close()
    assert sorted(values(out["op"])) == [0, 1, 2, 4, 5]
    assert account.errors == [("op", 3, f"{error.__name__}: three")]


@pytest.mark.parametrize("per", [Per.ROW, Per.MAP_IN_PANDAS])
def test_an_interrupt_ends_the_run(per: Per) -> None:
    def interrupted(_given: object) -> Any:
        raise KeyboardInterrupt

    segment = Segment([Step("op", Logic(interrupted, per), leaves=True)])
    with pytest.raises(KeyboardInterrupt):
        collected(segment, [numbers(0, 2)])
    segment.close()


@pytest.mark.parametrize("error", RAISED)
def test_whatever_open_raises_names_its_operator(error: type[BaseException]) -> None:
    def refuses() -> None:
        raise error("no")

    segment = Segment([Step("db", Logic(lambda row, _: row, open=refuses))])
    with pytest.raises(StoppedError, match=f"operator 'db': its open raised {error.__name__}: no"):
        collected(segment, [numbers(0, 3)])
    segment.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_an_operator_may_stop_the_run(threads: int) -> None:
    logic = Logic(by_row, on_error=OnError.STOP)
    segment = Segment([Step("strict", logic, threads, schema=NUMBERS, leaves=True)])
    with pytest.raises(StoppedError, match="operator 'strict', tuple 5: FiveError: 5 is a multiple of 5"):
        collected(segment, [numbers(1, 9)])
    segment.close()


def test_open_that_raises_names_its_operator() -> None:
    def refuses() -> None:
        raise OSError("no such host")

    segment = Segment([Step("db", Logic(lambda row, _: row, open=refuses), 2)])
    with pytest.raises(StoppedError, match="operator 'db': its open raised OSError: no such host"):
        collected(segment, [numbers(0, 3)])
    segment.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_opened_is_closed_once_per_thread(threads: int) -> None:
    opened: list[object] = []
    closed: list[object] = []

    def make() -> object:
        opened.append(object())
        return opened[-1]

    def use(row: dict[str, Any], _handle: object) -> dict[str, Any]:
        pause(0.001)
        return row

    logic = Logic(use, open=make, close=closed.append)
    segment = Segment([Step("db", logic, threads, leaves=True)])
    for _ in range(3):
        collected(segment, [numbers(0, 30)])
    segment.close()
    assert 1 <= len(opened) <= threads
    assert set(map(id, opened)) == set(map(id, closed))
    assert len(closed) == len(opened)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_cannot_be_closed_is_heard(threads: int) -> None:
    def refuses(_handle: object) -> None:
        raise OSError("connection reset")

    segment = Segment([Step("db", Logic(lambda row, _: row, open=object, close=refuses), threads, leaves=True)])
    collected(segment, [numbers(0, 5)])
    with pytest.raises(OSError, match="connection reset"):
        segment.close()


def test_given_up_half_way_it_begins_anew() -> None:
    steps = [Step("a", Logic(waits), 4), Step("sink", reads=(Read(0),), leaves=True)]
    segment = Segment(steps)
    going = segment.process(numbers(low, low + 20) for low in range(0, 10_000, 20))
    next(going)
    going.close()  # type: ignore[attr-defined] # a generator
    assert sorted(values(collected(segment, [numbers(0, 20)])["sink"])) == list(range(20))
    assert segment.take_account().rows_in == 20
    segment.close()


def test_an_input_that_raises_is_heard() -> None:
    def broken() -> Iterator[Batch]:
        yield numbers(0, 5)
        raise OSError("cut off")

    segment = Segment([Step("a", Logic(waits), 2, leaves=True)])
    with pytest.raises(OSError, match="cut off"):
        collected(segment, broken())
    segment.close()


def poisonous(row: dict[str, Any]) -> dict[str, Any]:
    if row["n"] == 13:
        os._exit(9)
    return row


def poisonous_frame(frame: pd.DataFrame) -> pd.DataFrame:
    if (frame.n == 13).any():
        os._exit(9)
    return frame


def careful_attempt(steps: list[Step], file: Path, tracked: bool) -> None:
    collected(Segment(steps, SegmentOptions(crumbs=Breadcrumbs(file))), [numbers(0, 20, tracked=tracked)])


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("logic", [Logic(poisonous), Logic(poisonous_frame, Per.PANDAS)], ids=["row", "pandas"])
def test_a_row_that_kills_its_worker_is_found_and_put_aside(tmp_path: Path, logic: Logic, tracked: bool) -> None:
    file = tmp_path / "crumb"
    steps = [Step("fine", Logic(waits)), Step("poison", logic, 4, (Read(0),), leaves=True)]

    attempt = get_context("spawn").Process(target=careful_attempt, args=(steps, file, tracked))
    attempt.start()
    attempt.join()
    assert attempt.exitcode == 9
    crumb = read_crumb(file)
    assert crumb == (Crumb("poison", 13, 0) if tracked else Crumb("poison", None, 0, 13, digest({"n": 13})))

    segment = Segment(steps, SegmentOptions(crumbs=Breadcrumbs(file, frozenset({crumb}))))
    found = collected(segment, [numbers(0, 20, tracked=tracked)])
    account = segment.take_account()
    segment.close()
    assert values(found["poison"]) == [n for n in range(20) if n != 13]
    assert account.errors == [("poison", 13 if tracked else None, "killed its worker")]
    assert read_crumb(file) is None


def test_rows_that_do_not_fit_are_put_aside_with_their_field() -> None:
    def sometimes_text(row: dict[str, Any]) -> dict[str, Any]:
        return {"n": row["n"] if row["n"] % 10 else "ten"}

    def sometimes_text_frame(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(n=frame.n.map(lambda n: n if n % 10 else "ten"))

    for logic in (Logic(sometimes_text), Logic(sometimes_text_frame, Per.PANDAS)):
        segment = Segment([Step("x", logic, schema=NUMBERS, leaves=True)], SegmentOptions(emit_dead_letters=True))
        found = collected(segment, [numbers(0, 40)])
        segment.close()
        assert values(found["x"]) == [n for n in range(40) if n % 10]
        letters = Batch.concat(found[DEAD_LETTERS]).rows.to_pylist()
        assert [(letter["id"], letter["field"], letter["row"]) for letter in letters] == [
            (n, "n", '{"n": "ten"}') for n in (0, 10, 20, 30)
        ]


def test_code_that_loses_its_index_has_no_wrong_ids() -> None:
    def even(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame.n % 2 == 0].reset_index(drop=True)

    segment = Segment([Step("even", Logic(even, Per.PANDAS), leaves=True, delivers=True)], SegmentOptions(audit=True))
    (batch,) = collected(segment, [numbers(0, 10)])["even"]
    account = segment.take_account()
    segment.close()
    assert batch.ids is not None
    assert batch.ids.tolist() == [-1] * 5
    assert account.operators["even"].untraced == 10
    assert account.ids is not None
    assert set(account.ids.untraced) == set(range(10))
    assert account.ids.duplicated == 0


class Unspeakable:
    def __str__(self) -> str:
        raise OSError("no words")


@pytest.mark.parametrize(
    ("row", "error", "told"),
    [
        (None, "ValueError: half a character: \\ud800", '{"n": 0}'),
        ({"n": Unspeakable()}, "field 'n': ", '{"not told": "OSError: no words"}'),
    ],
)
def test_a_dead_letter_can_be_written_whatever_it_says(row: dict[str, Any] | None, error: str, told: str) -> None:
    def bad(_row: dict[str, Any]) -> dict[str, Any]:
        if row is None:
            raise ValueError("half a character: \ud800")
        return row

    segment = Segment(
        [Step("x", Logic(bad), schema=NUMBERS, leaves=True)], SegmentOptions(audit=True, emit_dead_letters=True)
    )
    (letters,) = collected(segment, [numbers(0, 1)])[DEAD_LETTERS]
    segment.take_account().to_bytes()
    segment.close()
    (letter,) = letters.rows.to_pylist()
    assert letter["error"].startswith(error)
    assert letter["row"] == told


def test_a_row_that_holds_itself_can_be_told() -> None:
    row: dict[str, Any] = {}
    row["n"] = row
    assert DeadLetter("x", None, row, "").row_as_json() == '{"not told": "ValueError: Circular reference detected"}'
