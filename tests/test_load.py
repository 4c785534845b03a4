"""Loads over time: how many tuples are due when."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import BadInputError
from penstock.dataflow.load import Load, find_gap, load_of_trace, parse_load


@pytest.mark.parametrize(
    ("text", "seconds", "due"),
    [
        ("100", 1.0, 100),
        ("100", 0.999, 99),
        ("7.5", 2.0, 15),
        ("steps:2x10,3x0,2x5", 2.0, 20),
        ("steps:2x10,3x0,2x5", 4.9, 20),
        ("steps:2x10,3x0,2x5", 6.0, 25),
        # past the end the last rate is held: 20 + 10 + 3 * 5
        ("steps:2x10,3x0,2x5", 10.0, 45),
        # 0.5 s of 100/s in every 0.8 s: two rounds and 0.1 s are 50 + 50 + 10
        ("on-off:100,0.5,0.3", 1.7, 110),
    ],
)
def test_due(text: str, seconds: float, due: int) -> None:
    assert parse_load(text).due(seconds) == due


LOADS = st.builds(
    Load,
    st.lists(
        st.tuples(st.floats(0.01, 5), st.sampled_from([0.0, 0.5, 3.0, 10.0, 333.3, 1000.0])), min_size=1, max_size=5
    )
    .filter(lambda spells: spells[-1][1] > 0)
    .map(tuple),
    st.booleans(),
)


@given(LOADS, st.floats(0.1, 20))
def test_a_tuple_is_due_exactly_when_it_is_counted(load: Load, seconds: float) -> None:
    count = min(load.due(seconds), 500)
    when = load.due_seconds(0, count)
    assert (np.diff(when) >= -1e-9).all()
    for number, moment in enumerate(when.tolist()):
        assert load.due(moment + 1e-6) >= number + 1
        assert load.due(moment - 1e-6) <= number
    assert (load.due_seconds(count // 2, count) == when[count // 2 :]).all()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-1", "expected 0, or 1e-06 to"),
        ("0", "above 0"),
        ("nan", "expected 0, or 1e-06 to"),
        ("steps:", "SECONDSxRATE"),
        ("steps:0x5", r"spells of 1e-06 to 1e\+09 seconds, found 0"),
        ("1e-300", "found 1e-300"),
        ("1e300", r"found 1e\+300"),
        ("on-off:10,1e-300,1e-300", "spells of 1e-06 to"),
        ("waves:3", "expected a rate"),
        ("on-off:3,4", "load 'on-off:3,4'"),
    ],
)
def test_bad_loads(text: str, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        parse_load(text)


def test_a_trace_becomes_spells() -> None:
    assert load_of_trace([(0, 10), (2, 20), (6, 5)]).spells == ((2, 10), (4, 20), (3, 5))
    with pytest.raises(BadInputError, match="times must rise"):
        load_of_trace([(0, 1), (0, 2)])
    with pytest.raises(BadInputError, match="expected 0, or"):
        load_of_trace([(0, 1), (1, -2)])


def trace(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    return file


def test_a_trace_file(tmp_path: Path) -> None:
    file = trace(tmp_path, "rate, note, time\n10,,0\n\n20,busy,2\n5,,6\n")
    # the last rate lasts as long as the mean gap, (2 + 4) / 2
    assert parse_load(f"trace:{file}").spells == ((2, 10), (4, 20), (3, 5))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected the columns time and rate, found nothing"),
        ("when,rate\n0,1\n", "expected the columns time and rate, found when, rate"),
        ("time,rate\n", "at least two rows"),
        ("time,rate\n0,5\n", "at least two rows"),
        ("time,rate\n0,5\n1,\n", "line 3: rate is missing"),
        ("time,rate\n0,5\n1\n", "line 3: number of cells differs from the header"),
        ("time,rate\n0,5\n,6\n", "line 3: time is missing"),
        ("time,rate\n0,5\n1,-2\n", "line 3: rate: expected at least 0, found -2"),
        ("time,rate\n0,5\n1,many\n", "line 3: rate: expected a number, found 'many'"),
        ("time,rate\n0,5\n1,nan\n", "line 3: rate: expected a number, found 'nan'"),
        ("time,rate\n0,5\n0,6\n", "line 3: times must rise, found 0 after 0"),
        # rows every second, but none for 3 and 4
        ("time,rate\n0,5\n1,5\n2,5\n\n5,5\n6,5\n", "line 6: a gap from 2 to 5 s"),
        ("time,rate\n0,0\n1,0\n", "at least one spell with a rate above 0"),
    ],
)
def test_bad_traces(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BadInputError, match=f"trace.csv: .*{complaint}"):
        parse_load(f"trace:{trace(tmp_path, text)}")


@pytest.mark.parametrize("times", [(0, 1, 2, 9), (0, 1, 3, 4, 8, 9, 13), (0, 1, 2.05, 3, 4.1, 5.2, 6)])
def test_uneven_rows_are_no_gap(times: tuple[float, ...]) -> None:
    # too few rows to tell; steps of 1 and 4 mixed; a clock that wanders
    assert find_gap(times) is None


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read"):
        parse_load(f"trace:{tmp_path / 'none.csv'}")


def test_rates_of_a_stretch() -> None:
    load = parse_load("steps:2x10,3x0,2x5")
    # seconds 1 to 6: 10 + 0 + 5 tuples in 5 s
    assert load.rate_between(1, 6) == 3
    assert load.peak_rate == 10
    assert parse_load("7.3").rate_between(0, 1) == 7.3
