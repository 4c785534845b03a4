"""Which row killed its worker, when the next attempt gets rows in another order."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penstock.runtime.batch import Marks
from penstock.runtime.call_journal import (
    KILLED,
    KILLED_IN_ORDER,
    CallJournal,
    CallRecord,
    digest,
    killed_twice,
    read_last_call,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def put_aside(file: Path, poisoned: Sequence[CallRecord], rows: Sequence[dict[str, Any]]) -> list[tuple[int, str]]:
    """Which of `rows`, and why."""
    crumbs = CallJournal(file, frozenset(poisoned))
    errors = [crumbs.note_call("op", Marks(), at, partial(dict, row)) for at, row in enumerate(rows)]
    crumbs.close()
    return [(at, error) for at, error in enumerate(errors) if error is not None]


def died_at(file: Path, rows: Sequence[dict[str, Any]], last: int) -> CallRecord:
    """What an attempt leaves that dies of the row at `last`."""
    assert put_aside(file, [], rows[: last + 1]) == []
    crumb = read_last_call(file)
    assert crumb is not None
    return crumb


ROWS = [{"n": n, "at": datetime(2026, 1, 1 + n, tzinfo=UTC), "d": Decimal(n), "a": np.arange(n)} for n in range(4)]


def test_a_row_is_known_in_another_order(tmp_path: Path) -> None:
    crumb = died_at(tmp_path / "crumb", ROWS, 2)
    assert put_aside(tmp_path / "crumb", [crumb], ROWS[::-1]) == [(1, KILLED)]


class Opaque:
    pass


def test_what_nobody_can_compare_is_known_by_its_order_and_says_so(tmp_path: Path) -> None:
    rows = [{"n": Opaque()} for _ in range(4)]
    assert digest(rows[0]) is None
    crumb = died_at(tmp_path / "crumb", rows, 2)
    assert put_aside(tmp_path / "crumb", [crumb], [{"n": Opaque()} for _ in range(4)]) == [(2, KILLED_IN_ORDER)]


def test_rows_that_hold_something_else_every_time_are_known_by_their_order(tmp_path: Path) -> None:
    def attempt(number: int) -> list[dict[str, Any]]:
        return [{"n": n, "tried": number} for n in range(4)]

    first = died_at(tmp_path / "crumb", attempt(1), 2)
    assert put_aside(tmp_path / "crumb", [first], attempt(2)) == [], "perhaps it only comes later"
    second = died_at(tmp_path / "crumb", attempt(2), 2)
    assert put_aside(tmp_path / "crumb", [first, second], attempt(3)) == [(2, KILLED_IN_ORDER)]


@pytest.mark.parametrize(
    ("crumb", "other", "twice"),
    [
        (CallRecord("op", 7, 0), CallRecord("op", 7, 0), True),
        (CallRecord("op", 7, 0), CallRecord("op", 7, 1), False),
        (CallRecord("op", None, 0, 3, "ab"), CallRecord("op", None, 0, 9, "ab"), True),
        (CallRecord("op", None, 0, 3, "ab"), CallRecord("op", None, 0, 3, "cd"), True),
        (CallRecord("op", None, 0, 3, "ab"), CallRecord("other", None, 0, 3, "ab"), False),
        (CallRecord("op", None, 0, 3), CallRecord("op", None, 0, 4), False),
    ],
)
def test_a_row_that_killed_twice(crumb: CallRecord, other: CallRecord, twice: bool) -> None:
    assert killed_twice([crumb, other]) == (frozenset({crumb, other}) if twice else frozenset())
