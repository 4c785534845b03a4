"""Predictions by hand: bounds, latency, groupings, ranges."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters import by_slot, chain, close, cluster, model, sink, source
from effort import tries
from penstock.cluster.topology import Slot
from penstock.dataflow.pipeline import Operator, Pipeline, Stream, gains
from penstock.modelling.model import FixedDemand, Model, Point
from penstock.planning.allocation.contract import Need, fewest_slots
from penstock.planning.prediction.placement import (
    LatencyAssumptions,
    Routing,
    SlotUsage,
    erlang_c,
    highest_peak,
    latency_ms,
    lowest_peak,
    node_usage,
    slot_usage,
    sojourn_seconds,
    supported_rate,
    supported_rate_as_declared,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# ---------------------------------------------------------------------------------------------- bounds

ONE_POINT = model("one", (1, 10, 0.5, 0.2))
RISING = model("rising", (1, 10, 0.1, 0.0), (2, 20, 0.5, 0.0))
WHOLE = model("whole", (1, 100, 1.0, 0.0))
EITHER = model("either", (1, 10, 0.2, 0.9), (2, 10, 0.9, 0.2))


@pytest.mark.parametrize(
    ("modelled", "fixed", "expected"),
    [
        # nothing to do still takes a slot
        pytest.param([], (0, 0), 1, id="nothing"),
        # cpu 2.1 slots -> 3
        pytest.param([], (2.1, 0.5), 3, id="fixed cpu"),
        # memory 3.0 slots -> 3, an exact fit
        pytest.param([], (0.3, 3.0), 3, id="fixed memory"),
        # 25/s at 0.05 cpu each: 1.25 slots of cpu; but no slot does more than 10/s: 25 / 10 -> 3
        pytest.param([(ONE_POINT, 25)], (0, 0), 3, id="the peak rate binds"),
        # 20/s: cpu 1.0, peak 20 / 10 = 2 -> 2
        pytest.param([(ONE_POINT, 20)], (0, 0), 2, id="exactly at the peak"),
        # 20/s: cpu 1.0 + 1.1 fixed = 2.1 -> 3
        pytest.param([(ONE_POINT, 20)], (1.1, 0), 3, id="with a fixed demand"),
        # N = 2: rising does 40 / 2 = 20 at 0.5, whole 120 / 2 = 60 at 0.6: 1.1 > 1
        # N = 3: rising 13.3 at 0.1 + 0.4 * 3.3 / 10 = 0.233, whole 40 at 0.4: 0.633
        # (total cpu at the cheapest, 40 * 0.01 + 1.2 = 1.6, would have said 2)
        pytest.param([(RISING, 40), (WHOLE, 120)], (0, 0), 3, id="more rate per slot costs more"),
        # each needs 0.2 cpu or 0.2 memory at least, 0.4 of either in one slot; but 0.55 of their mean, 1.1 in one slot
        pytest.param([(EITHER, 10), (EITHER, 10)], (0, 0), 2, id="a mixture of cpu and memory"),
    ],
)
def test_fewest_slots(modelled: list[tuple[Model, float]], fixed: tuple[float, float], expected: int) -> None:
    assert fewest_slots([Need(model.name, rate, model) for model, rate in modelled], *fixed) == expected


SHARES = 6
"""The rate of an operator is split into so many equal parts for the search below."""


def fewest_by_search(demands: Sequence[tuple[Model, float]], most: int) -> int | None:
    """The fewest slots that carry two operators' rates, each split into SHARES parts: tries every split.

    A slot can take (a, b) parts if there are thread counts t, u with a*w <= I(t), b*v <= I(u), and the scaled
    C and M of both add up to at most 1 each.
    """
    options = []
    for found, rate in demands:
        rows = []
        for parts in range(SHARES + 1):
            asked = parts * rate / SHARES
            counts = range(1, found.points[-1].threads + 1) if parts else [0]
            costs = [
                (found.cpu(count) * asked / found.rate(count), found.memory(count) * asked / found.rate(count))
                if count
                else (0.0, 0.0)
                for count in counts
                if asked <= found.rate(count) * (1 + 1e-12)
            ]
            rows.append(costs)
        options.append(rows)
    fits = {
        parts
        for parts in itertools.product(range(SHARES + 1), repeat=len(demands))
        if any(
            sum(cpu for cpu, _ in chosen) <= 1 + 1e-12 and sum(memory for _, memory in chosen) <= 1 + 1e-12
            for chosen in itertools.product(*(rows[count] for rows, count in zip(options, parts, strict=True)))
        )
    }
    reached = {(0,) * len(demands)}
    for slots in range(1, most + 1):
        reached = {
            tuple(min(SHARES, a + b) for a, b in zip(before, more, strict=True)) for before in reached for more in fits
        }
        if (SHARES,) * len(demands) in reached:
            return slots
    return None


small_models = st.lists(
    st.tuples(st.integers(1, 2), st.integers(1, 12), st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=2
).map(
    lambda rows: model(
        "m",
        *(
            (sum(step for step, *_ in rows[: position + 1]), rate, cpu / 10, memory / 10)
            for position, (_, rate, cpu, memory) in enumerate(rows)
        ),
    )
)


@tries(2)
@given(st.lists(st.tuples(small_models, st.integers(1, 20).map(float)), min_size=2, max_size=2))
@example([(EITHER, 10.0), (EITHER, 10.0)])
@example([(RISING, 40.0), (WHOLE, 120.0)])
def test_no_split_beats_the_bound(demands: list[tuple[Model, float]]) -> None:
    best = fewest_by_search(demands, most=8)
    if best is not None:
        assert fewest_slots([Need(model.name, rate, model) for model, rate in demands], 0, 0) <= best


def test_the_search_can_find_less_than_a_wrong_bound() -> None:
    # the cases above where the bound is met: the search is not just always generous
    assert fewest_by_search([(EITHER, 10), (EITHER, 10)], most=8) == 2
    assert fewest_by_search([(RISING, 40), (WHOLE, 120)], most=8) == 3


# --------------------------------------------------------------------------------------------- latency


# One server: the chance to wait is the load. Two servers at a = 1: B(1) = 1/2, B(2) = 0.5 / 2.5 = 1/5,
# C = 0.2 / (1 - 0.5 * 0.8) = 1/3. Three at a = 2: B = 2/3, 2/5, 4/19; C = (4/19) / (1 - 2/3 * 15/19) = 4/9.
@pytest.mark.parametrize(
    ("servers", "offered", "expected"),
    [(1, 0.0, 0.0), (1, 0.5, 0.5), (1, 0.9, 0.9), (2, 1.0, 1 / 3), (3, 2.0, 4 / 9)],
)
def test_erlang_c(servers: int, offered: float, expected: float) -> None:
    assert erlang_c(servers, offered) == pytest.approx(expected)


# One thread at 10/s: S = 0.1 s. At load 0.5 half the tuples wait: the median is S itself; for p95
# 0.1 + 0.1 / (2 * 0.5) * ln(0.5 / 0.05) = 0.1 + 0.1 * ln 10; for p99 0.1 + 0.1 * ln 50.
# At load 1 (counted as 0.99): 0.1 + 0.1 / (2 * 0.01) * ln(0.99 / 0.5) = 0.1 + 5 ln 1.98.
# Two threads at 20/s: S = 0.1 s; load 0.5 is a = 1, C = 1/3: p95 = 0.1 + 0.1 / (2 * 1) * ln((1/3) / 0.05).
@pytest.mark.parametrize(
    ("threads", "peak", "load", "percentile", "expected"),
    [
        (1, 10, 0.5, 0.50, 0.1),
        (1, 10, 0.5, 0.95, 0.1 + 0.1 * math.log(10)),
        (1, 10, 0.5, 0.99, 0.1 + 0.1 * math.log(50)),
        (1, 10, 1.0, 0.50, 0.1 + 5 * math.log(1.98)),
        (1, 10, 0.0, 0.99, 0.1),
        (2, 20, 0.5, 0.95, 0.1 + 0.05 * math.log(20 / 3)),
        (1, 10, 1.01, 0.50, math.inf),
    ],
)
def test_sojourn(threads: int, peak: float, load: float, percentile: float, expected: float) -> None:
    assert sojourn_seconds(threads, peak, load, percentile) == pytest.approx(expected)


@pytest.mark.parametrize("threads", [1, 2, 7, 60])
@pytest.mark.parametrize("percentile", [0.5, 0.95, 0.99])
def test_sojourn_grows_with_load(threads: int, percentile: float) -> None:
    loads = [step / 50 for step in range(51)]
    times = [sojourn_seconds(threads, 10 * threads, load, percentile) for load in loads]
    assert times == sorted(times)
    assert times[-1] > times[0]
    assert math.isfinite(times[-1])


# One thread of A at 10/s asked for 5/s: p50 0.1 s, p95 0.330259 s (above). The batch adds p * 100 ms; the hop from
# the source adds 0 on one slot, 0.05 ms on one node, 0.5 in one rack, 1 between racks.
@pytest.mark.parametrize(("place", "hop"), [("v0s0", 0.0), ("v0s1", 0.05), ("v1s0", 0.5), ("v2s0", 1.0)])
def test_latency_of_a_chain(place: str, hop: float) -> None:
    found = latency_of({"v0s0": {"source": 1}, place: {"source": 1, "A": 1} if place == "v0s0" else {"A": 1}}, 5)
    assert found["p50"] == pytest.approx(50 + 100 + hop)
    assert found["p95"] == pytest.approx(95 + 100 + 100 * math.log(10) + hop)
    assert found["p99"] == pytest.approx(99 + 100 + 100 * math.log(50) + hop)


def latency_of(mapping: Mapping[str, Mapping[str, int]], rate: float) -> dict[str, float]:
    pipeline = chain(source(), Operator(name="A"))
    demands: dict[str, Model | FixedDemand | None] = {
        "source": FixedDemand(0.1, 0.15),
        "A": model("A", (1, 10, 0.5, 0.1)),
    }
    return latency_ms(
        pipeline,
        gains(pipeline),
        demands,
        by_slot(mapping),
        cluster([2, 2, 2], racks=[0, 0, 1]),
        rate,
        Routing.SLOT_AWARE,
        LatencyAssumptions(),
    )


def test_a_hop_is_the_mean_over_pairs_of_threads() -> None:
    # A on the source's slot and in another rack: (0 + 1) / 2 ms. 10/s over two slots of 10/s: load 0.5 as above.
    found = latency_of({"v0s0": {"source": 1, "A": 1}, "v2s0": {"A": 1}}, 10)
    assert found["p50"] == pytest.approx(50 + 100 + 0.5)


def test_latency_has_no_bound_above_the_peak() -> None:
    assert latency_of({"v0s0": {"source": 1, "A": 1}}, 10.1) == {"p50": math.inf, "p95": math.inf, "p99": math.inf}


def test_the_slowest_path_counts() -> None:
    # fast: one thread at 100/s, S = 10 ms; slow: one at 10/s, S = 100 ms; at 5/s the median of both is S.
    # source -> fast -> join, source -> slow -> join; join S = 10 ms at 2 * 5 = 10/s: 50 + 100 + 10.
    pipeline = Pipeline.of(
        "p",
        [source(), Operator(name="fast"), Operator(name="slow"), Operator(name="join")],
        [
            Stream(sender=a, receiver=b)
            for a, b in [("source", "fast"), ("source", "slow"), ("fast", "join"), ("slow", "join")]
        ],
    )
    quick, slow = model("q", (1, 100, 0.1, 0.1)), model("s", (1, 10, 0.1, 0.1))
    demands: dict[str, Model | FixedDemand | None] = {
        "source": FixedDemand(0, 0),
        "fast": quick,
        "slow": slow,
        "join": quick,
    }
    threads = by_slot({"v0s0": {"source": 1, "fast": 1, "slow": 1, "join": 1}})
    found = latency_ms(
        pipeline, gains(pipeline), demands, threads, cluster([1]), 5, Routing.SHUFFLE, LatencyAssumptions()
    )
    assert found["p50"] == pytest.approx(160)


# ------------------------------------------------------------------------------------------- groupings

STEEP = model("A", (1, 10, 0.5, 0.1), (2, 15, 0.8, 0.1))
SPREAD = {"v0s0": {"A": 2}, "v0s1": {"A": 1}}
"""Two threads on one slot (together 15/s) and one on another (10/s)."""


def as_declared(pipeline: Pipeline, mapping: Mapping[str, Mapping[str, int]]) -> tuple[float, str | None]:
    demands: dict[str, Model | FixedDemand | None] = {
        name: STEEP if name == "A" else FixedDemand(0, 0) for name in pipeline.operators
    }
    found = supported_rate_as_declared(pipeline, gains(pipeline), demands, by_slot(mapping))
    return found.rate, found.bottleneck


EVEN = 22.5
"""2/3 W <= 15 and 1/3 W <= 10: W <= 22.5 and 30."""


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        ({"grouping": "shuffle"}, EVEN),
        ({"grouping": "direct"}, EVEN),
        ({"grouping": "fields", "key": "k"}, EVEN),
        ({"grouping": "partial-key", "key": "k"}, EVEN),
        # shares 15/25 and 10/25: both full at W = 25
        ({"grouping": "slot-aware"}, 25),
        # a copy per thread: 2 W <= 15, 1 W <= 10
        ({"grouping": "all"}, 7.5),
        # one thread does it all: W <= I(1) = 10
        ({"grouping": "global"}, 10),
        # shuffled with a constant: 2/3 (W + 5) <= 15
        ({"grouping": "shuffle", "constant": 5}, 17.5),
        # and a selectivity: 2/3 (2 W + 5) <= 15
        ({"grouping": "shuffle", "selectivity": 2, "constant": 5}, 8.75),
    ],
)
def test_groupings(stream: dict[str, Any], expected: float) -> None:
    pipeline = chain(source(), Operator(name="A"), **stream)
    rate, bottleneck = as_declared(pipeline, {"v0s2": {"source": 1}, **SPREAD})
    assert (rate, bottleneck) == (close(expected), "A")


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        # everything starts on A's first slot and stays there: W <= 15
        ({"v0s0": 1}, 15),
        # everything starts on A's second slot: W <= 10
        ({"v0s1": 1}, 10),
        # no thread of A there: as shuffle
        ({"v0s2": 1}, EVEN),
        # half starts on the second slot and stays; the other half is shuffled, a third of it there too:
        # 1/2 + 1/2 * 1/3 = 2/3 of W <= 10, and 1/2 * 2/3 = 1/3 of W <= 15
        ({"v0s1": 1, "v0s2": 1}, 15),
    ],
)
def test_local_or_shuffle(sources: dict[str, int], expected: float) -> None:
    pipeline = chain(source(), Operator(name="A"), grouping="local-or-shuffle")
    mapping: dict[str, dict[str, int]] = {name: dict(threads) for name, threads in SPREAD.items()}
    for name, count in sources.items():
        mapping.setdefault(name, {})["source"] = count
    assert as_declared(pipeline, mapping) == (close(expected), "A")


def test_streams_of_different_groupings_add_up() -> None:
    # on the first slot: W / I(1) from the global one and 2/3 W / 15 from the shuffled one:
    # together 0.1444 W is at most 1, so W at most 6.923
    pipeline = Pipeline.of(
        "p",
        [source(), Operator(name="A")],
        [Stream(sender="source", receiver="A", grouping=grouping) for grouping in ("global", "shuffle")],
    )
    rate, bottleneck = as_declared(pipeline, {"v0s2": {"source": 1}, **SPREAD})
    assert rate == pytest.approx(1 / (1 / 10 + 2 / 3 / 15))
    assert bottleneck == "A"


def test_a_pipeline_without_models_has_no_limit() -> None:
    assert as_declared(chain(source(), sink()), {"v0s0": {"source": 1, "sink": 1}}) == (math.inf, None)


# ------------------------------------------------------------------------------------- ranges and usage


def test_the_range_comes_from_the_spread() -> None:
    # 10 +- 2 and 15 +- 3: slot-aware 25 +- 5; shuffle 3/2 * (15 +- 3) = 22.5 +- 4.5
    spread = Model(
        "A",
        (
            Point(threads=1, rate=10, cpu=0, memory=0, rate_spread=2),
            Point(threads=2, rate=15, cpu=0, memory=0, rate_spread=3),
        ),
    )
    pipeline = chain(source(), Operator(name="A"))
    demands: dict[str, Model | FixedDemand | None] = {"source": None, "A": spread}
    found = {
        (routing, edge): supported_rate(gains(pipeline), demands, by_slot(SPREAD), routing, edge).rate
        for routing in Routing
        for edge in (lowest_peak, highest_peak)
    }
    assert found == {
        (Routing.SHUFFLE, lowest_peak): pytest.approx(18),
        (Routing.SHUFFLE, highest_peak): pytest.approx(27),
        (Routing.SLOT_AWARE, lowest_peak): pytest.approx(20),
        (Routing.SLOT_AWARE, highest_peak): pytest.approx(30),
    }


def test_usage_of_nodes_is_the_sum_of_their_slots() -> None:
    # A at 12.5/s of 25: half loaded, slot 0: 0.8 / 2, slot 1: 0.5 / 2; declared threads count as they are, each
    pipeline = chain(source(), Operator(name="A"), sink())
    demands: dict[str, Model | FixedDemand | None] = {"source": FixedDemand(0.1, 0.15), "A": STEEP, "sink": None}
    threads = by_slot({"v0s0": {"source": 1, "A": 2}, "v0s1": {"A": 1}, "v1s0": {"sink": 3}})
    slots = slot_usage(gains(pipeline), demands, {"sink": SlotUsage(0.2, 0.3)}, threads, 12.5, Routing.SLOT_AWARE)
    expected = {
        Slot("v0", 0): (0.1 + 0.4, 0.15 + 0.05),
        Slot("v0", 1): (0.25, 0.05),
        Slot("v1", 0): (0.6, 0.9),
    }
    assert {slot: (used.cpu, used.memory) for slot, used in slots.items()} == {
        slot: pytest.approx(amounts) for slot, amounts in expected.items()
    }
    nodes = {name: (used.cpu, used.memory) for name, used in node_usage(slots).items()}
    assert nodes == {"v0": pytest.approx((0.75, 0.25)), "v1": pytest.approx((0.6, 0.9))}
