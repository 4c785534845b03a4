"""Code over frames that keeps what it is given: whatever happens to it, no row vanishes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from segment_builders import NUMBERS, collected, numbers, values

from penstock.base.clock import pause
from penstock.dataflow.logic import Logic, Per
from penstock.runtime.dead_letters import DEAD_LETTERS, StoppedError
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.runtime.steps import Read, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.runtime.account import Account
    from penstock.runtime.batch import Batch


def keeps_all(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Raises at 4, else everything comes in the end."""
    kept = []
    for frame in frames:
        if (frame.n == 4).any():
            raise ValueError("four")
        kept.append(frame)
    yield pd.concat(kept)


def lags(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    last = None
    for frame in frames:
        if (frame.n == 4).any():
            raise ValueError("four")
        if last is not None:
            yield last
        last = frame
    if last is not None:
        yield last


def skips_empty(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """A filter that yields nothing of a frame without rows that it wants."""
    for frame in frames:
        wanted = frame[frame.n >= 4]
        if len(wanted):
            yield wanted


def sums_pairs(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Of two frames one row; raises at 4, when nobody can tell what it holds."""
    for frame in frames:
        if (frame.n == 4).any():
            raise ValueError("four")
        other = next(frames)
        yield pd.DataFrame({"n": [frame.n.sum() + other.n.sum()]})


def run(function: Callable[..., Any], *, timeout: float | None = None) -> tuple[dict[str, list[Batch]], Account]:
    """Four batches of two rows, 0 to 7."""
    logic = Logic(function, Per.MAP_IN_PANDAS, timeout_seconds=timeout)
    segment = Segment(
        [Step("op", logic, schema=NUMBERS, leaves=True, delivers=True)],
        SegmentOptions(audit=True, emit_dead_letters=True),
    )
    left = collected(segment, [numbers(low, low + 2) for low in range(0, 8, 2)])
    account = segment.take_account()
    segment.close()
    return left, account


def hangs_instead(function: Callable[..., Any], go: threading.Event) -> Callable[..., Any]:
    """The same code, but where it raised it does not return."""

    def hangs(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        try:
            yield from function(frames)
        except ValueError:
            go.wait()

    return hangs


@pytest.mark.parametrize(
    ("function", "out", "dead", "filtered", "untraced"),
    [
        (keeps_all, [6, 7], [0, 1, 2, 3, 4, 5], 0, 2),
        (lags, [0, 1, 6, 7], [2, 3, 4, 5], 0, 4),
        (skips_empty, [4, 5, 6, 7], [], 4, 0),
    ],
)
def test_what_was_held_back_is_accounted_for(
    function: Callable[..., Any], out: list[int], dead: list[int], filtered: int, untraced: int
) -> None:
    left, account = run(function)
    count = account.operators["op"]
    assert sorted(values(left["op"])) == out
    assert sorted(number for batch in left.get(DEAD_LETTERS, []) for number in batch.rows["id"].to_pylist()) == dead
    assert (count.rows_in, count.dead, count.filtered, count.untraced) == (8, len(dead), filtered, untraced)
    assert {error for _, _, error in account.errors} == ({"ValueError: four"} if dead else set())
    assert account.ids is not None
    assert set(account.ids.accounted()) == set(range(8))


def test_what_was_kept_and_never_came_was_filtered() -> None:
    def wants_none(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            if frame.n.max() > 100:
                yield frame

    _, account = run(wants_none)
    count = account.operators["op"]
    assert (count.filtered, count.untraced, count.dead) == (8, 0, 0)


@pytest.mark.parametrize("function", [keeps_all, lags])
def test_what_was_held_back_when_the_code_hangs_is_put_aside(function: Callable[..., Any]) -> None:
    """Threads take pieces of any size, so that how many rows are held when it hangs differs from run to run."""
    go = threading.Event()
    left, account = run(hangs_instead(function, go), timeout=0.2)
    go.set()
    dead = [number for batch in left[DEAD_LETTERS] for number in batch.rows["id"].to_pylist()]
    assert 4 in dead
    assert sorted([*dead, *values(left.get("op", []))]) == list(range(8))
    assert {error for _, _, error in account.errors} == {"TimeoutError: took longer than 0.2 s"}
    assert account.operators["op"].filtered == 0


def test_where_nobody_can_tell_what_is_held_back_the_run_stops() -> None:
    with pytest.raises(StoppedError, match="operator 'op': ValueError: four, while it held back rows of earlier"):
        run(sums_pairs)


def slow_at_three(row: dict[str, Any]) -> dict[str, Any]:
    if row["n"] == 3:
        pause(2)
    return row


def test_rows_held_back_until_the_end_may_take_too_long_at_the_next_operator() -> None:
    def holds(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from list(frames)

    steps = [
        Step("hold", Logic(holds, Per.MAP_IN_PANDAS), schema=NUMBERS),
        Step("slow", Logic(slow_at_three, timeout_seconds=0.3), reads=(Read(0),), schema=NUMBERS),
        Step("again", Logic(holds, Per.MAP_IN_PANDAS), reads=(Read(1),), schema=NUMBERS),
        Step("sink", reads=(Read(2),), leaves=True),
    ]
    segment = Segment(steps)
    for _ in range(2):
        left = collected(segment, [numbers(0, 4), numbers(4, 8)])
        assert sorted(values(left["sink"])) == [0, 1, 2, 4, 5, 6, 7]
    assert segment.take_account().dead == 2
    segment.close()


def test_who_is_given_up_leaves_what_others_hold_back_to_its_heir() -> None:
    """`slow` hangs while `hold`, of the same thread, has rows: they are not lost with the thread."""

    def holds_some(frames: Iterator[pd.DataFrame], _handle: object) -> Iterator[pd.DataFrame]:
        kept = []
        for frame in frames:
            kept.append(frame[frame.n % 2 == 0])
            yield frame[frame.n % 2 == 1]
        yield from kept

    closed: list[object] = []
    hold = Logic(holds_some, Per.MAP_IN_PANDAS, open=object, close=closed.append)
    steps = [
        Step("hold", hold, schema=NUMBERS),
        Step("slow", Logic(slow_at_three, timeout_seconds=0.2), reads=(Read(0),), leaves=True, schema=NUMBERS),
    ]
    segment = Segment(steps)
    left = collected(segment, [numbers(low, low + 4) for low in range(0, 12, 4)])
    segment.close()
    assert sorted(values(left["slow"])) == [number for number in range(12) if number != 3]
    assert len(closed) == 1


def test_a_flush_waits_for_what_comes_to_code_over_frames() -> None:
    def waits(row: dict[str, Any]) -> dict[str, Any]:
        pause(0.02)
        return row

    def holds(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from list(frames)

    left: list[Batch] = []
    steps = [
        Step("waits", Logic(waits), 2, schema=NUMBERS),
        Step("hold", Logic(holds, Per.MAP_IN_PANDAS), 1, (Read(0),), NUMBERS, leaves=True),
    ]
    segment = Segment(steps, emit=lambda _operator, batch: left.append(batch))
    segment.feed(numbers(0, 20))
    segment.flush()
    assert sorted(values(left)) == list(range(20))
    segment.close()
