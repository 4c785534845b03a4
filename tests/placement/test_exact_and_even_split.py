"""The exact placer against every packing there is, and the split that shuffle routing supports."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from effort import tries
from penstock.modelling.library import reference_library
from penstock.planning.placement.placers.even_split import even, shuffled
from penstock.planning.placement.placers.exact import Item, fewest_bins

sizes = st.sampled_from([0.0, 0.2, 0.25, 0.34, 0.4, 0.5, 0.51, 0.6, 1.0])


def fits(items: list[tuple[float, float]], bins: tuple[int, ...]) -> bool:
    return all(
        sum(item[axis] for item, where in zip(items, bins, strict=True) if where == bin_) <= 1 + 1e-9
        for bin_ in set(bins)
        for axis in (0, 1)
    )


@tries(2)
@given(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=5))
def test_no_packing_has_fewer_slots(items: list[tuple[float, float]]) -> None:
    ordered = sorted(items, key=lambda item: (-max(item), -sum(item)))
    found = fewest_bins([Item("o", 1, cpu, memory) for cpu, memory in ordered], 100_000)
    assert found is not None
    assert sorted((item.cpu, item.memory) for row in found for item in row) == sorted(items)
    assert all(sum(item.cpu for item in row) <= 1 + 1e-9 for row in found)
    assert all(sum(item.memory for item in row) <= 1 + 1e-9 for row in found)
    packings = product(range(len(items)), repeat=len(items))
    assert len(found) == min(len(set(bins)) for bins in packings if fits(items, bins))


def test_first_fit_decreasing_is_not_the_best() -> None:
    # 0.5 0.4 | 0.3 0.3 0.2 | 0.2: three slots first fit decreasing; 0.5 0.3 0.2 | 0.4 0.3 0.2 fill two
    assert fewest_bins([Item("o", 1, size, 0.0) for size in (0.5, 0.4, 0.3, 0.3, 0.2, 0.2)], 1000) is not None
    assert len(fewest_bins([Item("o", 1, size, 0.0) for size in (0.5, 0.4, 0.3, 0.3, 0.2, 0.2)], 1000) or []) == 2


def test_it_refuses_politely_beyond_its_limits() -> None:
    with pytest.raises(
        penstock.RefusedError, match=r"173 bundles to share slots.*limit of placer 'exact' \(take joint"
    ):
        penstock.plan("linear", 200, allocator="lsa", placer="exact")
    with pytest.raises(penstock.RefusedError, match="branches to look at"):
        penstock.plan("diamond", 50, allocator="lsa", placer="exact:steps=5")


def test_it_is_never_above_sam() -> None:
    for pipeline in ("linear", "diamond", "star"):
        sam = penstock.plan(pipeline, 60)
        assert penstock.plan(pipeline, 60, placer="exact").slots_asked <= sam.slots_asked


@pytest.mark.parametrize(
    ("threads", "bundles", "expected"), [(160, 3, [54, 53, 53]), (4, 4, [1, 1, 1, 1]), (5, 2, [3, 2])]
)
def test_even(threads: int, bundles: int, expected: list[int]) -> None:
    assert even(threads, bundles) == expected


def test_the_published_split_and_the_even_one() -> None:
    table = reference_library().get("azure_table")
    # I(60) = 40, I(40) = 20: the 40 threads get 40/160 of the input, so 20 * 160 / 40 = 80
    assert shuffled(table, [60, 60, 40]) == 80
    # I(54) = 34: 34 * 160 / 54 = 100.7; I(53) = 33: 33 * 160 / 53 = 99.6
    assert shuffled(table, [54, 53, 53]) == pytest.approx(33 * 160 / 53)


@pytest.mark.parametrize(("pipeline", "rate"), [("linear", 50), ("linear", 100), ("diamond", 100), ("diamond", 200)])
def test_no_plan_does_less_under_shuffle(pipeline: str, rate: float) -> None:
    published = penstock.plan(pipeline, rate)
    split = penstock.plan(pipeline, rate, placer="even-split")
    assert split.prediction.shuffle.rate >= published.prediction.shuffle.rate * (1 - 1e-9)
    assert {o.name: o.threads for o in split.allocation.operators} == {
        o.name: o.threads for o in published.allocation.operators
    }


def test_linear_at_100_under_shuffle() -> None:
    assert penstock.plan("linear", 100).prediction.shuffle.rate == pytest.approx(80)
    plan = penstock.plan("linear", 100, placer="even-split")
    assert plan.slots_asked == 7
    assert plan.prediction.shuffle.rate == pytest.approx(99.62, abs=0.01)
