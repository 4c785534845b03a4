"""What is learned of an operator from a few tuples, in every form its code may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.dataflow.logic import Logic, Per
from penstock.runtime.sampling import sample_steps
from penstock.runtime.steps import ENTRANCE, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

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
