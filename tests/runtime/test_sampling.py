"""What is learned of an operator from a few tuples, in every form its code may have."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

from penstock.base.errors import BadInputError
from penstock.dataflow.logic import Logic, Per
from penstock.engines.fused.sources.readers import refuse_unlearned
from penstock.runtime.schema_inference import sample_steps
from penstock.runtime.schemas import is_seen
from penstock.runtime.steps import ENTRANCE, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TALLIES = pa.table({"m": pa.array([{"a": 1}, {"b": 2}], pa.map_(pa.string(), pa.int64()))})


def by_row(change: Callable[[Any], Any]) -> Logic:
    return Logic(lambda row: {"v": change(row["m"])})


def by_frame(change: Callable[[Any], Any]) -> Logic:
    return Logic(lambda frame: frame.assign(v=frame.m.map(change))[["v"]], Per.PANDAS)


def by_frames(change: Callable[[Any], Any]) -> Logic:
    def over_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame.assign(v=frame.m.map(change))[["v"]]

    return Logic(over_frames, Per.MAP_IN_PANDAS)


def by_table(change: Callable[[Any], Any]) -> Logic:
    return Logic(lambda table: pa.table({"v": [change(dict(pairs)) for pairs in table["m"].to_pylist()]}), Per.ARROW)


FORMS = {"row": by_row, "pandas": by_frame, "map-in-pandas": by_frames, "arrow": by_table}


@pytest.mark.parametrize("form", FORMS)
def test_a_field_that_is_always_none_needs_a_schema(form: str) -> None:
    logic = FORMS[form](lambda _: None)
    sampled = sample_steps((Step("op", logic),), {ENTRANCE: TALLIES})
    assert "op" not in sampled.tables
    assert sampled.errors["op"].endswith("operator 'op', field 'v': every sample holds None; give schema=")
    given = pa.schema([("v", pa.string())])
    sampled = sample_steps((Step("op", logic, schema=given),), {ENTRANCE: TALLIES})
    assert sampled.errors == {}
    assert sampled.tables["op"].schema.field("v").type == pa.string()


@pytest.mark.parametrize("form", FORMS)
def test_code_that_is_sampled_gets_maps_as_dicts(form: str) -> None:
    sampled = sample_steps((Step("op", FORMS[form](lambda tally: sum(tally.values()))),), {ENTRANCE: TALLIES})
    assert sampled.errors == {}
    assert sampled.tables["op"].column("v").to_pylist() == [1, 2]


NUMBERED = pa.table({"n": [1, 2, 3]})
SAID = pa.schema([("a", pa.int64()), ("b", pa.string())])
LOOSE = {
    "row": Logic(lambda row: {"b": "x", "more": 0, "a": "two" if row["n"] == 2 else row["n"]}),
    "pandas": Logic(lambda f: f.assign(b="x", more=0, a=f.n.map(lambda n: "two" if n == 2 else n)), Per.PANDAS),
    "map-in-pandas": Logic(lambda fs: (f.assign(b="x", a=f.n.where(f.n != 2, 2.5)) for f in fs), Per.MAP_IN_PANDAS),
    "arrow": Logic(lambda table: pa.table({"b": ["x"] * 3, "n": table["n"], "a": ["1", "two", "3"]}), Per.ARROW),
}


@pytest.mark.parametrize("form", LOOSE)
def test_what_fits_the_schema_that_code_says_is_sampled_as_it_would_run(form: str) -> None:
    """Columns are taken by name, others left out, and a row that does not fit is no reason to take none."""
    sampled = sample_steps((Step("op", LOOSE[form], schema=SAID),), {ENTRANCE: NUMBERED})
    assert sampled.tables["op"].to_pylist() == [{"a": 1, "b": "x"}, {"a": 3, "b": "x"}]
    assert "field 'a'" in sampled.errors["op"]


def test_only_code_that_says_nothing_must_show_what_it_sends() -> None:
    steps = (Step("said", Logic(lambda _: None), schema=SAID), Step("silent", Logic(lambda _: None)))
    sampled = sample_steps(steps, {ENTRANCE: NUMBERED})
    assert sampled.tables == {}
    refuse_unlearned(steps[:1], sampled.tables, sampled.errors)
    with pytest.raises(BadInputError, match="operator 'silent': no sample tuple came through it"):
        refuse_unlearned(steps, sampled.tables, sampled.errors)


def test_a_sample_that_cannot_be_read_is_left_out() -> None:
    far = pa.table({"at": pa.array([0, 2**60]).cast(pa.timestamp("us", "UTC"))})
    sampled = sample_steps((Step("op", Logic(lambda row: {"year": row["at"].year})),), {ENTRANCE: far})
    assert sampled.tables["op"].to_pylist() == [{"year": 1970}]
    assert sampled.errors["op"].startswith("field 'at': no value of Python's")


PRICED = pa.table({"price": pa.array([Decimal("1.23")], pa.decimal128(10, 4))})


@pytest.mark.parametrize("form", ["row", "pandas", "map-in-pandas"])
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"price": Decimal("1.23")}, pa.decimal128(10, 4)),
        # more digits than it came with, behind the point or before it
        ({"price": Decimal("1.23456")}, pa.decimal128(38, 5)),
        ({"price": Decimal(1_000_000)}, pa.decimal128(38, 4)),
        ({"tax": Decimal("0.2")}, pa.decimal128(38, 4)),
        ({"tax": Decimal("0.23456")}, pa.decimal128(38, 5)),
        # so large that less than 4 digits are left
        ({"tax": Decimal(10**35)}, pa.decimal128(38, 2)),
        ({"taxes": [Decimal("0.2")]}, pa.list_(pa.decimal128(38, 4))),
    ],
)
def test_decimals_have_room_for_more_than_samples_show(form: str, sent: dict[str, Any], expected: pa.DataType) -> None:
    (name,) = sent
    frame_of = lambda _: pd.DataFrame({name: pd.Series([sent[name]], dtype=object)})  # noqa: E731 - used in two forms
    logic = {
        "row": Logic(lambda _: sent),
        "pandas": Logic(frame_of, Per.PANDAS),
        "map-in-pandas": Logic(lambda frames: map(frame_of, frames), Per.MAP_IN_PANDAS),
    }[form]
    sampled = sample_steps((Step("op", logic),), {ENTRANCE: PRICED})
    assert sampled.errors == {}
    assert sampled.tables["op"].schema.field(name).type == expected


def test_decimals_of_arrow_are_what_they_say() -> None:
    sampled = sample_steps((Step("op", Logic(lambda table: table, Per.ARROW)),), {ENTRANCE: PRICED})
    assert sampled.tables["op"].schema.field("price").type == pa.decimal128(10, 4)


@pytest.mark.parametrize("form", ["pandas", "map-in-pandas"])
@pytest.mark.parametrize(
    ("given", "made", "expected"),
    [
        (pa.array([1, None, 3], pa.int64()), lambda n: n, pa.int64()),
        (pa.array([1, None, 3], pa.int8()), lambda n: n, pa.int8()),
        # no room for it; parts of whole numbers; numbers that were whole in the frame
        (pa.array([1, None, 3], pa.int8()), lambda n: n * 1000, pa.float64()),
        (pa.array([1, None, 3], pa.int64()), lambda n: n / 2, pa.float64()),
        (pa.array([2, 4, 6], pa.int64()), lambda n: n / 2, pa.float64()),
    ],
)
def test_whole_numbers_stay_what_they_are_though_a_null_is_among_them(
    form: str, given: pa.Array, made: Callable[[Any], Any], expected: pa.DataType
) -> None:
    change = lambda frame: frame.assign(n=made(frame.n))  # noqa: E731 - used in two forms
    logic = {
        "pandas": Logic(change, Per.PANDAS),
        "map-in-pandas": Logic(lambda frames: map(change, frames), Per.MAP_IN_PANDAS),
    }[form]
    sampled = sample_steps((Step("op", logic),), {ENTRANCE: pa.table({"n": given})})
    assert sampled.errors == {}
    assert sampled.tables["op"].schema.field("n").type == expected


def test_only_what_was_seen_says_so() -> None:
    steps = (Step("said", Logic(lambda row: row), schema=NUMBERED.schema), Step("silent", Logic(lambda row: row)))
    sampled = sample_steps(steps, {ENTRANCE: NUMBERED})
    assert [is_seen(sampled.tables[step.operator].schema) for step in steps] == [False, True]
