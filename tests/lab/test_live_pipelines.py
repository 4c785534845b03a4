"""The detector of the live use cases: what it keeps of a batch from one call to the next, and what it says when."""

from __future__ import annotations

from typing import Any

import pandas as pd

from penstock_lab.experiments.priority_live import _archive, _judge, _parse


class _State:
    """As Spark keeps it for a key."""

    def __init__(self) -> None:
        self.kept: tuple[int, int, bool] | None = None

    @property
    def exists(self) -> bool:
        return self.kept is not None

    @property
    def get(self) -> Any:
        return self.kept

    def update(self, values: tuple[int, int, bool]) -> None:
        self.kept = values

    def remove(self) -> None:
        self.kept = None


def frame(*readings: float) -> pd.DataFrame:
    return pd.DataFrame({"of": 10, "reading": readings})


def marked(state: Any, *frames: pd.DataFrame) -> list[list[bool]]:
    return [made["event"].tolist() for made in _judge(("p", 0), iter(frames), state)]


def test_the_eighth_of_ten_makes_an_event_once() -> None:
    state = _State()
    assert marked(state, frame(90, 90, 10, 90)) == [[False] * 4]
    assert state.kept == (4, 3, False)
    # 3 above are known: with four more there are seven, the next is the eighth; the last says nothing anew
    assert marked(state, frame(90, 90, 90, 90), frame(90, 90)) == [[False] * 4, [True, False]]
    assert state.kept is None, "the batch is whole: nothing of it is kept"


def test_a_batch_with_too_few_above_is_none() -> None:
    state = _State()
    assert not any(any(events) for events in marked(state, frame(*[90] * 7, *[10] * 3)))


def test_all_in_one_frame() -> None:
    assert marked(_State(), frame(*[90] * 10)) == [[False] * 7 + [True] + [False] * 2]


def test_a_tuple_is_archived_with_a_time_and_a_tag() -> None:
    row = _parse({"value": b'{"source": "topic1/0", "batch": 1, "of": 40, "number": 41, "reading": 90.0}'})
    assert row == {"source": "topic1/0", "batch": 1, "of": 40, "number": 41, "reading": 90.0}
    archived = _archive(row)
    assert archived.pop("archived") > 1e9
    assert archived == {**row, "tag": "disk-1"}
