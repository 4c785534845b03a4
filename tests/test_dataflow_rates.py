"""Rates through the graph, by hand."""

from __future__ import annotations

import math

import pytest

from adapters import chain, sink, source
from penstock.base.errors import BadInputError
from penstock.dataflow.pipeline import Gain, Kind, Operator, Pipeline, Stream, checked_rate, gains, topological_order


def operators(*names: str, sources: tuple[str, ...] = ("s",)) -> list[Operator]:
    return [Operator(name=name, kind=Kind.SOURCE if name in sources else Kind.OPERATOR) for name in names]


def streams(*rows: tuple[str, str, float, float]) -> list[Stream]:
    """(from, to, selectivity, constant)."""
    return [Stream(sender=a, receiver=b, selectivity=s, constant=c) for a, b, s, c in rows]


# Two inputs of one operator, and the constant of one stream carried through the selectivity of the next:
#   a = 2 s + 3                       = 2 W + 3
#   b = 0.5 s + 0                     = 0.5 W
#   j = (1 a + 1) + (4 b + 0)         = (2 W + 3 + 1) + 2 W = 4 W + 4
#   k = 0.25 j + 10                   = W + 11
# At W = 10: a 23, b 5, j 44, k 21.
AFFINE = Pipeline.of(
    "affine",
    operators("s", "a", "b", "j", "k"),
    streams(("s", "a", 2, 3), ("s", "b", 0.5, 0), ("a", "j", 1, 1), ("b", "j", 4, 0), ("j", "k", 0.25, 10)),
)


@pytest.mark.parametrize(
    ("operator", "factor", "constant", "at_ten"),
    [("s", 1, 0, 10), ("a", 2, 3, 23), ("b", 0.5, 0, 5), ("j", 4, 4, 44), ("k", 1, 11, 21)],
)
def test_affine_gains(operator: str, factor: float, constant: float, at_ten: float) -> None:
    found = gains(AFFINE)[operator]
    assert (found.factor, found.constant) == (factor, constant)
    assert found.at(10) == at_ten


# w = factor W + constant, so W = (w - constant) / factor; with factor 0 any W will do, unless the constant
# alone is more than the operator can take.
@pytest.mark.parametrize(
    ("factor", "constant", "operator_rate", "expected"),
    [
        (4, 4, 44, 10),
        (1, 0, 7, 7),
        (2, 10, 10, 0),
        (2, 10, 9, 0),
        (0, 5, 5, math.inf),
        (0, 5, 4, 0),
        (0, 0, 3, math.inf),
        # three threads of 0.1 add up to 0.30000000000000004 or less, by the order: rounding is not a shortage
        (0, 0.3, 0.29999999999999993, math.inf),
    ],
)
def test_pipeline_rate_at(factor: float, constant: float, operator_rate: float, expected: float) -> None:
    assert Gain(factor, constant).pipeline_rate_at(operator_rate) == pytest.approx(expected)


def test_parallel_streams_each_carry_the_output() -> None:
    # w = 1 W + 1 W
    found = gains(Pipeline.of("p", operators("s", "a"), streams(("s", "a", 1, 0), ("s", "a", 1, 0))))
    assert found["a"] == Gain(2, 0)


def test_every_source_gets_the_full_rate() -> None:
    # j = 1 W from s + 3 W from t
    found = gains(
        Pipeline.of("p", operators("s", "t", "j", sources=("s", "t")), streams(("s", "j", 1, 0), ("t", "j", 3, 0)))
    )
    assert found["t"] == Gain(1, 0)
    assert found["j"] == Gain(4, 0)


# Kahn with a queue: s and t are ready first (declared order); finishing s frees c (its only input), finishing t
# frees b; a needs both b and c and comes last.
def test_order_is_first_in_first_out_with_declared_ties() -> None:
    found = Pipeline.of(
        "p",
        operators("a", "b", "s", "c", "t", sources=("s", "t")),
        streams(("s", "c", 1, 0), ("t", "b", 1, 0), ("b", "a", 1, 0), ("c", "a", 1, 0)),
    )
    assert topological_order(found) == ("s", "t", "c", "b", "a")


def test_a_cycle_is_named() -> None:
    cyclic = Pipeline.of(
        "loop",
        operators("s", "a", "b", "c"),
        streams(("s", "a", 1, 0), ("a", "b", 1, 0), ("b", "c", 1, 0), ("c", "a", 1, 0)),
    )
    with pytest.raises(BadInputError, match="pipeline 'loop': rates need a pipeline without cycles") as caught:
        gains(cyclic)
    around = str(caught.value).split("found ")[1].split(" -> ")
    assert around[0] == around[-1]
    assert set(around) == {"'a'", "'b'", "'c'"}


def test_an_operator_that_feeds_itself_is_a_cycle() -> None:
    with pytest.raises(BadInputError, match="found 'a' -> 'a'"):
        gains(Pipeline.of("p", operators("s", "a"), streams(("s", "a", 1, 0), ("a", "a", 1, 0))))


def test_no_source() -> None:
    with pytest.raises(BadInputError, match="pipeline 'p': no source; expected at least one operator of kind source"):
        gains(Pipeline.of("p", operators("a", "b"), streams(("a", "b", 1, 0))))


def test_an_operator_that_receives_nothing() -> None:
    with pytest.raises(BadInputError, match="operator 'b' receives no stream and is not of kind source"):
        gains(Pipeline.of("p", operators("s", "a", "b"), streams(("s", "a", 1, 0))))


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf, -math.inf])
def test_rates_that_are_none(rate: float) -> None:
    with pytest.raises(BadInputError, match="rate: expected a finite number of tuples/s above 0, found"):
        checked_rate(rate)


def test_rates_too_large_for_numbers() -> None:
    # 1e200 * 1e200 is beyond the largest float
    steep = chain(source(), Operator(name="a"), Operator(name="b"), sink(), selectivity=1e200)
    with pytest.raises(BadInputError, match="pipeline 'chain': operator 'b': its rate is too large to compute"):
        gains(steep)


def test_a_pipeline_too_large_to_plan_says_the_limit() -> None:
    operators = [Operator(name="s", kind=Kind.SOURCE), *(Operator(name=f"o{number}") for number in range(2000))]
    with pytest.raises(BadInputError, match="pipeline 'p': expected at most 2,000 operators, found 2,001"):
        Pipeline.of("p", operators, [])
    streams = [Stream(sender="s", receiver="o0")] * 20_001
    with pytest.raises(BadInputError, match="pipeline 'p': expected at most 20,000 streams, found 20,001"):
        Pipeline.of("p", operators[:2], streams)
