"""Who shares threads, how large pieces are, and how weighted streams divide."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from segment_builders import NUMBERS, collected, numbers, values

from penstock.dataflow.logic import Logic, Per
from penstock.runtime.batch import Marks
from penstock.runtime.row_values import hash_contents
from penstock.runtime.segment import Segment
from penstock.runtime.steps import (
    MAX_PIECE_ROWS,
    Read,
    Step,
    next_piece_rows,
    on_share,
    places_on_circle,
    plan_pools,
    rows_to_take,
    shares,
)


def same(row: object) -> object:
    return row


def code(threads: int, *reads: int) -> Step:
    return Step("op", Logic(same), threads, tuple(map(Read, reads)))


def bare(*reads: int) -> Step:
    return Step("end", reads=tuple(map(Read, reads)))


@pytest.mark.parametrize(
    ("steps", "crews"),
    [
        # a chain of ones is one crew; source and sink need none
        ([bare(-1), code(1, 0), code(1, 1), bare(2)], [((1, 2), 1)]),
        # several threads are a crew of their own, and so is what follows them
        ([code(1, -1), code(4, 0), code(1, 1), code(1, 2)], [((0,), 1), ((1,), 4), ((2, 3), 1)]),
        # siblings with one thread, and where they meet
        ([code(1, -1), code(1, -1), code(1, 0, 1)], [((0, 1, 2), 1)]),
        # through a step without code
        ([code(1, -1), bare(0), code(1, 1)], [((0, 2), 1)]),
        # a step that reads from two crews has its own
        ([code(2, -1), code(1, -1), code(1, 0, 1)], [((0,), 2), ((1,), 1), ((2,), 1)]),
        # what enters and what the head made meet in the head
        ([code(1, -1), code(1, -1, 0)], [((0, 1), 1)]),
        # what enters and what others made do not
        ([code(2, -1), code(1, 0), code(1, -1, 1)], [((0,), 2), ((1,), 1), ((2,), 1)]),
        # a second entrance
        ([code(1, -1), code(1, -2)], [((0, 1), 1)]),
    ],
)
def test_crews(steps: list[Step], crews: list[tuple[tuple[int, ...], int]]) -> None:
    assert [(plan.positions, plan.threads) for plan in plan_pools(steps)] == crews
    assert [plan.threads for plan in plan_pools(steps, alone=True)] == [1]


def test_pieces_follow_what_a_row_takes() -> None:
    assert next_piece_rows(1, 1, 0.1) == 1
    assert next_piece_rows(20, 20, 0.4, 0.1) == 5, "20 rows in 400 ms: five take 100 ms"
    assert next_piece_rows(20, 20, 0.1) == 5, "20 rows in 100 ms: five take 25 ms"
    assert next_piece_rows(1, 1, 30.0) == 1
    assert next_piece_rows(1, 1, 0.0001) == 2
    assert next_piece_rows(1000, 10, 0.0001) == 1000, "a small piece says nothing about large ones"
    assert next_piece_rows(MAX_PIECE_ROWS, MAX_PIECE_ROWS, 0.001) == MAX_PIECE_ROWS


def test_all_threads_get_some() -> None:
    assert rows_to_take(1000, 4, 10_000) == 2500, "125 each, but a quarter of what takes long enough is 2500"
    assert rows_to_take(1000, 4, 400) == 125
    assert rows_to_take(1000, 4, 10) == 10
    assert rows_to_take(1000, 1, 1000) == 1000, "nobody to share with"
    assert rows_to_take(3, 4, 5) == 1


def test_weights_below_one_lie_end_to_end() -> None:
    assert shares([0.25, 1.0, 0.75]) == [(0.0, 0.25), (0.0, 1.0), (0.25, 1.0)]
    assert shares([0.5, 0.75]) == [(0.0, 0.5), (0.5, 1.25)]


def nothing_known() -> NDArray[np.uint64]:
    raise AssertionError("these can be traced")


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6), st.integers(0, 2**32))
def test_parts_of_a_whole_divide_it(weights: list[float], salt: int) -> None:
    whole = sum(weights)
    places = places_on_circle(Marks(np.arange(200)), 200, 0, salt, nothing_known)
    assert ((places >= 0) & (places < 1)).all()
    edges = [*np.cumsum([0.0, *(weight / whole for weight in weights[:-1])]).tolist(), 1.0]
    taken = sum(on_share(places, (low, high)).astype(int) for low, high in pairwise(edges))
    assert (np.asarray(taken) == 1).all()


def test_what_one_divided_the_next_divides_evenly() -> None:
    """10,000 rows, halves of halves: 2,500 with a standard deviation of sqrt(10000 * 3/16) = 43."""
    marks = Marks(np.arange(10_000))
    first = on_share(places_on_circle(marks, 10_000, 0, 1, nothing_known), (0.0, 0.5))
    second = on_share(places_on_circle(marks, 10_000, 0, 2, nothing_known), (0.0, 0.5))
    assert abs(int((first & second).sum()) - 2500) < 200


@pytest.mark.parametrize(
    "logic",
    [
        Logic(lambda frame: pd.DataFrame({"n": np.concatenate([frame.n, -1 - frame.n])}), Per.PANDAS),
        Logic(
            lambda table: pa.concat_tables([table, table.set_column(0, "n", pc.subtract(-1, table["n"]))]), Per.ARROW
        ),
    ],
    ids=["pandas", "arrow"],
)
@pytest.mark.parametrize("next_threads", [0, 1, 2])
def test_rows_that_cannot_be_traced_are_divided_by_what_they_hold(logic: Logic, next_threads: int) -> None:
    """800 of them in halves, with a standard deviation of 14; at the code itself, or after code per row."""
    divided = []
    for _ in range(2):
        steps = [Step("code", logic, reads=(Read(),), schema=NUMBERS)]
        if next_threads:
            steps.append(Step("same", Logic(same), next_threads, (Read(0),), NUMBERS))
        sender = len(steps) - 1
        steps += [
            Step("left", Logic(same), 1, (Read(sender, 1, (0.0, 0.5)),), NUMBERS, leaves=True),
            Step("right", Logic(same), 1, (Read(sender, 2, (0.5, 1.0)),), NUMBERS, leaves=True),
        ]
        segment = Segment(steps)
        out = collected(segment, [numbers(0, 100), numbers(100, 400)])
        segment.close()
        assert out["left"][0].ids is not None
        assert set(out["left"][0].ids.tolist()) == {-1}
        divided.append({name: sorted(values(out[name])) for name in ("left", "right")})
    assert divided[0] == divided[1], "the same rows whenever they are sent again"
    assert sorted(divided[0]["left"] + divided[0]["right"]) == list(range(-400, 400))
    assert abs(len(divided[0]["left"]) - 400) < 70


def test_rows_have_numbers_by_what_they_hold_and_equal_ones_their_own() -> None:
    kinds = {
        "tags": pa.array([["a"], ["b"], ["a"], None]),
        "tally": pa.array([{"a": 1}] * 4, pa.map_(pa.string(), pa.int64())),
        "day": pa.array([0, 3_000_000, 0, 0], pa.int32()).cast(pa.date32()),  # after the year 9999
        "text": pa.array(["x", None, "x", "x"]),
    }
    for names in (["tags"], ["tally"], ["day"], ["text"], list(kinds)):
        rows = pa.RecordBatch.from_pydict({name: kinds[name] for name in names})
        hashes = hash_contents(rows)
        assert (hashes == hash_contents(rows)).all()
        assert len(set(hashes.tolist())) == 4
    tags = hash_contents(pa.RecordBatch.from_pydict({"tags": kinds["tags"]}))
    assert tags[0] == hash_contents(pa.RecordBatch.from_pydict({"tags": kinds["tags"].slice(2)}))[0]
