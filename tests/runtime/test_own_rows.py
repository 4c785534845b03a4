"""Rows as dicts belong to whoever has them: what code does to one is not seen in another."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from segment_builders import NUMBERS, collected, numbers, values

from penstock.dataflow.logic import Logic
from penstock.runtime.batch import Batch
from penstock.runtime.segment import Segment
from penstock.runtime.steps import Read, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def reusing() -> Callable[..., Any]:
    kept: dict[str, Any] = {}

    def code(row: dict[str, Any], *_opened: object) -> dict[str, Any]:
        kept.update(row)
        return kept

    return code


def reusing_now_and_then() -> Callable[..., Any]:
    code = reusing()

    def filtering(row: dict[str, Any], *_opened: object) -> dict[str, Any] | None:
        return None if row["n"] == 7 else code(row)

    return filtering


@pytest.mark.parametrize("make", [reusing, reusing_now_and_then])
@pytest.mark.parametrize("opens", [False, True])
@pytest.mark.parametrize("timeout_seconds", [None, 60.0])
def test_code_may_give_one_dict_again_and_again(
    make: Callable[[], Callable[..., Any]], opens: bool, timeout_seconds: float | None
) -> None:
    logic = Logic(make(), open=object if opens else None, timeout_seconds=timeout_seconds)
    segment = Segment([Step("op", logic, schema=NUMBERS, leaves=True)])
    expected = [n for n in range(100) if n != 7 or make is reusing]
    assert sorted(values(collected(segment, [numbers(0, 100)])["op"])) == expected
    segment.close()


def test_threads_that_share_rows_may_each_give_one_dict_again() -> None:
    def update(row: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
        kept.update(row)
        return kept

    segment = Segment([Step("op", Logic(update, open=dict), 3, schema=NUMBERS, leaves=True)])
    assert sorted(values(collected(segment, [numbers(0, 300)])["op"])) == list(range(300))
    segment.close()


def test_what_code_keeps_is_not_changed_by_the_next_operator() -> None:
    @lru_cache
    def looked_up(n: int) -> dict[str, Any]:
        return {"n": n}

    def count(row: dict[str, Any]) -> dict[str, Any]:
        row["n"] += 1
        return row

    steps = [
        Step("look-up", Logic(lambda row: looked_up(row["n"] % 2)), reads=(Read(),), schema=NUMBERS),
        Step("count", Logic(count), reads=(Read(0),), schema=NUMBERS, leaves=True),
    ]
    segment = Segment(steps)
    assert sorted(values(collected(segment, [numbers(0, 6)])["count"])) == [1, 1, 1, 2, 2, 2]
    segment.close()


NESTED = pa.schema(
    [("n", pa.int64()), ("tags", pa.list_(pa.struct([("t", pa.string())]))), ("m", pa.map_(pa.string(), pa.int64()))]
)


def with_tags(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"], "tags": [{"t": "x"}], "m": {"a": 1}}


def change(row: dict[str, Any]) -> dict[str, Any]:
    row["tags"][0]["t"] = "changed"
    row["tags"].append({"t": "more"})
    row["m"]["a"] = 2
    return row


def same(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield row


@pytest.mark.parametrize("shares", [((0.0, 1.0), (0.0, 1.0)), ((0.0, 1.0), (0.25, 1.0)), ((0.25, 1.0), (0.0, 1.0))])
@pytest.mark.parametrize("branches", [("changes", "keeps"), ("keeps", "changes")])
def test_a_branch_does_not_see_what_another_changes_inside_of_fields(
    branches: tuple[str, str], shares: tuple[tuple[float, float], ...]
) -> None:
    steps = [Step("make", Logic(with_tags), schema=NESTED)]
    for number, (name, share) in enumerate(zip(branches, shares, strict=True), 1):
        logic = Logic(change if name == "changes" else same)
        steps.append(Step(name, logic, reads=(Read(0, number, share),), schema=NESTED, leaves=True))
    segment = Segment(steps)
    out = collected(segment, [Batch(pa.RecordBatch.from_pydict({"n": range(40)}, schema=NUMBERS))])
    segment.close()
    assert {str(tags) for tags in values(out["keeps"], "tags")} == {str([{"t": "x"}])}
    assert {str(tally) for tally in values(out["keeps"], "m")} == {str([("a", 1)])}
    assert {str(tags) for tags in values(out["changes"], "tags")} == {str([{"t": "changed"}, {"t": "more"}])}
