"""The highest rate a cluster carries."""

from __future__ import annotations

import math

import pytest

import penstock
from adapters import chain, cluster, declared, model, source
from penstock.base.errors import BadInputError
from penstock.dataflow.pipeline import Operator
from penstock.modelling.library import ModelLibrary
from penstock.planning.capacity import Capacity
from penstock.planning.registry import ALLOCATORS, PLACERS


@pytest.fixture(scope="module")
def twenty_slots() -> dict[str, Capacity]:
    """Of every pair."""
    return penstock.capacity("linear", cluster([4] * 5))


def test_capacity_of_twenty_slots(twenty_slots: dict[str, Capacity]) -> None:
    assert list(twenty_slots) == [f"{one}+{other}" for one in ALLOCATORS.names() for other in PLACERS.names()]
    assert {found.allocated for pair, found in twenty_slots.items() if pair.startswith("mba+")} == {280}
    assert {found.allocated for pair, found in twenty_slots.items() if pair.startswith("lsa+")} == {160}


def test_capacity_says_what_can_be_placed_and_what_that_will_do(twenty_slots: dict[str, Capacity]) -> None:
    for pair, found in twenty_slots.items():
        assert 0 <= found.placed <= found.allocated, pair
        assert found.predicted >= 0
    best = penstock.capacity("linear", cluster([4] * 5), allocator="mba", placer="sam")["mba+sam"]
    # a plan at that rate exists on this cluster, and supports it
    plan = penstock.plan("linear", best.placed, cluster=cluster([4] * 5))
    assert plan.prediction.slot_aware.rate == best.predicted
    assert best.predicted >= best.placed


def test_capacity_of_too_small_a_cluster_is_nothing() -> None:
    # linear at 10/s: blob alone takes 0.26 memory, table 0.1, pi 0.086 cpu; below that one slot would do, but one
    # slot of 100/s steps would need 7
    found = penstock.capacity("linear", cluster([1]), step=100, allocator="mba", placer="sam")["mba+sam"]
    assert (found.allocated, found.placed, found.predicted) == (0, 0, 0)


# one thread of 100/s takes a whole slot: 3 slots do 300/s, 30 steps of 10
def test_capacity_by_hand() -> None:
    library = ModelLibrary.of([model("A", (1, 100, 1.0, 0.5))])
    pipeline = chain(source(), Operator(name="A"))
    found = penstock.capacity(pipeline, cluster([2, 1]), models=library)
    assert found["mba+round-robin"].allocated == 300
    assert found["lsa+rsm"].allocated == 300
    # three threads and the source by turns on three slots: one each, 3 * 100/s
    assert found["mba+round-robin"].predicted == pytest.approx(300)


@pytest.mark.parametrize("step", [0, -10, math.nan, math.inf])
def test_a_step_that_is_none(step: float) -> None:
    with pytest.raises(BadInputError, match="step: expected a finite number of tuples/s above 0"):
        penstock.capacity("linear", cluster([4]), step=step)


def test_capacity_where_nothing_grows_with_the_rate() -> None:
    fixed = declared(threads=1, cpu=50, memory_mb=100)
    with pytest.raises(BadInputError, match=r"no operator with a model .* any rate"):
        penstock.capacity(fixed, cluster([4]), allocator="mba", placer="sam")


def test_capacity_of_a_large_cluster_and_of_models_that_need_nothing() -> None:
    large = penstock.capacity("linear", cluster([8] * 1000), allocator="mba", placer="sam")["mba+sam"]
    assert large.allocated >= large.placed > 100_000
    nothing = ModelLibrary.of([model("A", (1, 10, 0.0, 0.0))])
    with pytest.raises(BadInputError, match="any rate fits"):
        penstock.capacity(
            chain(source(), Operator(name="A")), cluster([2]), allocator="lsa", placer="sam", models=nothing
        )


# the models of a pipeline are named after it; one slot does 30,000/s, so steps of 10 would be 2,400 and more
def test_capacity_of_models_a_profile_made_needs_no_step() -> None:
    library = ModelLibrary.of([model("orders/A", (1, 30_000, 0.9, 0.5))])
    pipeline = chain(source(), Operator(name="A", model="orders/A"))
    rates = penstock.capacity(pipeline, cluster([4, 4]), models=library, placer="sam")
    assert rates["mba+sam"].allocated == 240_000
    assert rates["profiled+sam"].allocated >= 240_000
    fine = penstock.capacity(pipeline, cluster([4, 4]), models=library, allocator="mba", placer="sam", step=1_000)
    assert fine["mba+sam"].allocated == 240_000
