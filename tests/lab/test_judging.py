"""Verdicts, tables of cases, and the search for the highest stable rate."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import BadInputError
from penstock_lab.contract import Agreement, CaseResult, Line, Results, counted
from penstock_lab.experiments.model_driven_cases import highest
from penstock_lab.published_values import How, Value
from penstock_lab.verdicts import End, Good, claimed, compared, judge, r_squared, r_squared_of_identity


def published(**fields: object) -> Value:
    return Value.model_validate({"id": "v", "place": "Table 1", "how": How.STATED, **fields})


@pytest.mark.parametrize(
    ("fields", "ours", "within", "good", "verdict"),
    [
        ({"value": 100}, 100, 0.0, Good.NEITHER, Agreement.AGREES),
        ({"value": 100}, 110, 0.1, Good.NEITHER, Agreement.AGREES),  # |110 - 100| = 10 % of 100
        ({"value": 100}, 111, 0.1, Good.NEITHER, Agreement.DIFFERS),
        ({"value": 100}, 111, 0.1, Good.LOW, Agreement.WORSE),
        ({"value": 100}, 111, 0.1, Good.HIGH, Agreement.DIFFERS),  # run again, it is not better than itself
        ({"value": 100}, 89, 0.1, Good.LOW, Agreement.DIFFERS),
        ({"value": 100}, 89, 0.1, Good.HIGH, Agreement.WORSE),
        ({"low": 30, "high": 50}, 40, 0.0, Good.HIGH, Agreement.AGREES),
        ({"low": 30, "high": 50}, 54, 0.1, Good.NEITHER, Agreement.AGREES),  # 50 + 10 % = 55
        ({"low": 30, "high": 50}, 26, 0.1, Good.NEITHER, Agreement.DIFFERS),  # 30 - 10 % = 27
        ({"low": 0.81}, 0.99, 0.0, Good.NEITHER, Agreement.AGREES),
        ({"low": 0.81}, 0.5, 0.0, Good.HIGH, Agreement.WORSE),
        ({"high": 30}, 80, 0.1, Good.LOW, Agreement.WORSE),
        ({"claim": "it is fast"}, 1, 0.1, Good.NEITHER, Agreement.NOT_COMPARABLE),
    ],
)
def test_verdicts(fields: dict[str, object], ours: float, within: float, good: Good, verdict: Agreement) -> None:
    assert judge(published(**fields), ours, within=within, good=good) is verdict


@pytest.mark.parametrize(
    ("fields", "ours", "end", "verdict"),
    [
        # a least of 183 lies in 20 to 192.5, and is far from the published least
        ({"low": 20, "high": 175}, 183, None, Agreement.AGREES),
        ({"low": 20, "high": 175}, 183, End.LEAST, Agreement.DIFFERS),
        ({"low": 20, "high": 175}, 21, End.LEAST, Agreement.AGREES),  # 20 + 10 % = 22
        ({"low": 20, "high": 175}, 23, End.LEAST, Agreement.DIFFERS),
        ({"low": 20, "high": 175}, 160, End.MOST, Agreement.AGREES),  # 175 - 10 % = 157.5
        ({"low": 20, "high": 175}, 100, End.MOST, Agreement.DIFFERS),
    ],
)
def test_a_least_is_judged_against_the_published_least(
    fields: dict[str, object], ours: float, end: End | None, verdict: Agreement
) -> None:
    assert judge(published(**fields), ours, end=end) is verdict


def test_what_could_not_have_failed_is_no_evidence() -> None:
    value = published(value=100, not_evidence="the model was derived from it")
    line = compared("w", "x", value, 100)
    assert (line.verdict, line.why) == (Agreement.NOT_COMPARABLE, "the model was derived from it")
    # a failure all the same is shown
    assert compared("w", "x", value, 200).verdict is Agreement.DIFFERS
    claim = published(claim="A beats B", not_evidence="by construction")
    assert claimed("w", "x", claim, holds=True, ours="yes").verdict is Agreement.NOT_COMPARABLE


def test_a_line_says_its_tolerance_where_it_agrees_and_its_reason_where_it_does_not() -> None:
    value = published(value=100, unit="slots")
    assert compared("w", "x", value, 104, why="because").why == "within 10 %"
    assert compared("w", "x", value, 100, why="because").why == ""
    assert compared("w", "x", value, 200, why="because", note="mind").why == "because; mind"
    assert compared("w", "x", value, 200).ours == "200 slots"


def test_a_claim_holds_or_differs() -> None:
    value = published(claim="A beats B")
    assert claimed("w", "x", value, holds=True, ours="yes", why="no").document()["why"] == ""
    line = claimed("w", "x", value, holds=False, ours="no", why="since")
    assert (line.verdict, line.published, line.why) == (Agreement.DIFFERS, "A beats B", "since")


def test_correlation() -> None:
    # y = 2x + 1 lies on a line, so R2 is 1 whatever the line; as a prediction of x it is bad:
    # 1 - ((1-3)^2 + (2-5)^2 + (3-7)^2) / ((1-2)^2 + 0 + (3-2)^2) = 1 - 29/2
    assert r_squared([1, 2, 3], [3, 5, 7]) == pytest.approx(1)
    assert r_squared_of_identity([1, 2, 3], [3, 5, 7]) == pytest.approx(-13.5)
    assert r_squared([1, 2, 3], [2, 2, 2]) is None
    assert r_squared([1], [1]) is None
    # cov = (-1)(-1) + 0 + (1)(0) ... by hand: x = 0,1,2; y = 0,1,1: cov 1, var x 2, var y 2/3: 1 / (4/3)
    assert r_squared([0, 1, 2], [0, 1, 1]) == pytest.approx(0.75)


@given(edge=st.integers(0, 5000), guess=st.integers(-5, 6000), most=st.none() | st.integers(1, 6000))
def test_the_search_finds_the_edge_from_any_guess(edge: int, guess: int, most: int | None) -> None:
    asked: list[int] = []

    def stable(number: int) -> bool:
        asked.append(number)
        return number <= edge

    assert highest(stable, guess, most) == min(edge, math.inf if most is None else most)
    assert len(asked) == len(set(asked))
    assert all(1 <= number <= (most or math.inf) for number in asked)


def test_results_are_found_by_their_parameters() -> None:
    results = Results((CaseResult({"a": 1, "b": "x"}, {"m": 1}), CaseResult({"a": 2, "b": "x"}, {"m": 2})))
    assert results.only(a=2) == {"m": 2}
    assert [one.measures["m"] for one in results.where(b="x")] == [1, 2]
    assert results.values("a") == [1, 2]
    assert results.where(c=1) == ()
    with pytest.raises(BadInputError, match="2 cases, not 1"):
        results.only(b="x")


def test_verdicts_are_counted() -> None:
    lines = [
        Line("", "", "", "", Agreement.AGREES),
        Line("", "", "", "", Agreement.WORSE),
        Line("", "", "", "", Agreement.WORSE),
    ]
    assert {verdict: count for verdict, count in counted(lines).items() if count} == {
        Agreement.AGREES: 1,
        Agreement.WORSE: 2,
    }
