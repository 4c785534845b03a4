"""What every sharing policy must keep to, over random clusters: a policy joins by being registered.

Some hold for all; the others for those whose class says so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import tries
from penstock.planning.registry import SHARERS
from penstock.planning.sharing.contract import Divides, Sharer, Shares, Tenant, Tenants
from penstock.planning.sharing.dominant_fair import unit_demands
from penstock.planning.sharing.share import share_cluster
from sharing_builders import demands, pipelines, tenancies

patiently = tries(1)
every_sharer = pytest.mark.parametrize("name", SHARERS.names())


def named(quality: str) -> list[str]:
    found = [name for name in SHARERS.names() if getattr(SHARERS.create(name), quality)]
    assert found, f"no policy claims {quality}: the test would hold nothing"
    return found


def divided(name: str, asked: Tenants) -> tuple[Sharer, Shares]:
    sharer = SHARERS.create(name)
    return sharer, sharer.share(asked)


def resources_used(asked: Tenants, shares: Shares) -> tuple[list[float], list[float]]:
    """(used, offered) of every resource, counted anew."""
    units, capacity, _ = unit_demands(asked)
    counts = np.array([shares.nodes[tenant.name] for tenant in asked.pipelines], dtype=float)
    return (counts @ units).tolist(), capacity.tolist()


def minima_fit(sharer: Sharer, asked: Tenants) -> bool:
    if sharer.divides is Divides.RESOURCES:
        least = Shares("", {tenant.name: tenant.minimum for tenant in asked.pipelines}, {})
        return all(used <= offered * (1 + 1e-9) for used, offered in zip(*resources_used(asked, least), strict=True))
    return asked.needed <= asked.capacity


@every_sharer
@patiently
@given(asked=tenancies())
def test_never_hands_out_more_than_there_is(name: str, asked: Tenants) -> None:
    sharer, shares = divided(name, asked)
    if sharer.divides is Divides.NODES:
        assert sum(shares.nodes.values()) <= asked.capacity
        assert all(isinstance(share, int) and share >= 0 for share in shares.nodes.values())
    elif sharer.divides is Divides.SLOTS:
        taken = [slot for slots in shares.slots.values() for slot in slots]
        assert len(set(taken)) == len(taken)
        assert set(taken) <= set(asked.cluster.slots)
        for tenant in asked.pipelines:
            assert shares.nodes[tenant.name] == len(shares.slots[tenant.name]) / asked.slots
    else:
        for used, offered in zip(*resources_used(asked, shares), strict=True):
            assert used <= offered * (1 + 1e-6)


@every_sharer
@patiently
@given(asked=tenancies())
def test_nobody_gets_more_than_it_desires(name: str, asked: Tenants) -> None:
    sharer, shares = divided(name, asked)
    for tenant in asked.pipelines:
        if sharer.divides is Divides.SLOTS:
            assert len(shares.slots[tenant.name]) <= asked.workers(tenant)
        else:
            assert shares.nodes[tenant.name] <= tenant.desired


@every_sharer
@patiently
@given(asked=tenancies())
def test_everyone_is_answered_and_exactly_those_short_of_their_minimum_wait(name: str, asked: Tenants) -> None:
    sharer, shares = divided(name, asked)
    assert shares.policy == sharer.name == name
    assert list(shares.nodes) == [tenant.name for tenant in asked.pipelines]
    for tenant in asked.pipelines:
        enough: float = tenant.minimum
        if sharer.divides is Divides.SLOTS:
            enough = min(enough, asked.workers(tenant) / asked.slots)
        assert (tenant.name in shares.waiting) == (shares.nodes[tenant.name] < enough)
    assert all(len(reason) > 20 and "\n" not in reason for reason in shares.waiting.values())


@every_sharer
@patiently
@given(asked=tenancies())
def test_the_same_question_gets_the_same_answer_whatever_the_names(name: str, asked: Tenants) -> None:
    _, shares = divided(name, asked)
    assert divided(name, asked)[1] == shares
    renamed = [replace(tenant, name=f"x{-number}") for number, tenant in enumerate(asked.pipelines)]
    _, others = divided(name, replace(asked, pipelines=tuple(renamed)))
    assert list(others.nodes.values()) == list(shares.nodes.values())


@every_sharer
@patiently
@given(asked=tenancies(), data=st.data())
def test_of_two_alike_the_one_submitted_first_gets_no_less(name: str, asked: Tenants, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(asked.pipelines) - 1))
    again = replace(asked.pipelines[position], name="again")
    _, shares = divided(name, replace(asked, pipelines=(*asked.pipelines, again)))
    assert shares.nodes[asked.pipelines[position].name] >= shares.nodes["again"]


@every_sharer
@patiently
@given(everyone=pipelines(), spare=st.integers(0, 5))
def test_where_there_is_enough_everybody_gets_all(name: str, everyone: list[Tenant], spare: int) -> None:
    asked = Tenants.of(sum(tenant.desired for tenant in everyone) + spare, everyone, 2)
    asked = replace(asked, pipelines=tuple(replace(tenant, workers=None) for tenant in everyone))
    _, shares = divided(name, asked)
    assert shares.nodes == {tenant.name: tenant.desired for tenant in everyone}
    assert shares.waiting == {}


@pytest.mark.parametrize("name", named("keeps_minima"))
@patiently
@given(asked=tenancies())
def test_minima_are_kept_while_they_fit_and_never_given_in_part(name: str, asked: Tenants) -> None:
    sharer, shares = divided(name, asked)
    for tenant in asked.pipelines:
        if minima_fit(sharer, asked):
            assert shares.nodes[tenant.name] >= tenant.minimum
        else:
            assert shares.nodes[tenant.name] == 0 or shares.nodes[tenant.name] >= tenant.minimum


@pytest.mark.parametrize("name", named("wastes_nothing"))
@patiently
@given(asked=tenancies())
def test_nothing_is_left_that_somebody_could_use(name: str, asked: Tenants) -> None:
    sharer, shares = divided(name, asked)
    for tenant in asked.pipelines:
        share = shares.nodes[tenant.name]
        if sharer.divides is Divides.SLOTS:
            free = len(asked.cluster.slots) - sum(map(len, shares.slots.values()))
            assert free == 0 or len(shares.slots[tenant.name]) == asked.workers(tenant)
        elif share < tenant.desired:
            # the next node, or enough of them to reach the minimum, must not be there
            more = max(1, tenant.minimum - int(share)) if sharer.keeps_minima else 1
            grown = replace(shares, nodes={**shares.nodes, tenant.name: share + more})
            if sharer.divides is Divides.NODES:
                assert sum(grown.nodes.values()) > asked.capacity
            else:
                pairs = zip(*resources_used(asked, grown), strict=True)
                assert any(used > offered * (1 + 1e-12) for used, offered in pairs)


@pytest.mark.parametrize("name", named("obeys_priority"))
@patiently
@given(asked=tenancies(), data=st.data())
def test_of_two_alike_the_one_of_higher_priority_gets_no_less(name: str, asked: Tenants, data: st.DataObject) -> None:
    one = asked.pipelines[data.draw(st.integers(0, len(asked.pipelines) - 1))]
    lower = replace(one, name="lower", priority=one.priority + data.draw(st.integers(1, 3)))
    # submitted before it, so that order cannot be what decides
    _, shares = divided(name, replace(asked, pipelines=(lower, *asked.pipelines)))
    assert shares.nodes[one.name] >= shares.nodes["lower"]


@every_sharer
@patiently
@given(asked=tenancies())
def test_the_measures_agree_with_the_claims(name: str, asked: Tenants) -> None:
    sharer = SHARERS.create(name)
    found = share_cluster(asked, sharer)
    assert found.nodes == found.shares.nodes  # equal nodes always come out
    assert found.measures.minima_missed == len(found.waiting)
    assert 0 < found.measures.jain <= 1 + 1e-12
    assert 0 <= found.measures.fairness <= 1
    if sharer.wastes_nothing:
        assert found.measures.unused == 0
    if sharer.keeps_minima and minima_fit(sharer, asked):
        assert not found.must_wait


@patiently
@given(asked=tenancies(), unit=demands())
def test_dominant_shares_cannot_be_evened_out_further(asked: Tenants, unit: dict[str, float]) -> None:
    """By the definition: no unit can go from one pipeline to another that stays poorer for it, or as poor."""
    asked = replace(asked, pipelines=(*asked.pipelines, Tenant("one more", 15, 1, resources=unit)))
    _, shares = divided("dominant-fair", asked)
    units, capacity, _ = unit_demands(asked)
    weight = [
        max(demand / offer if demand else 0.0 for demand, offer in zip(row, capacity, strict=True)) for row in units
    ]
    counts = [int(shares.nodes[tenant.name]) for tenant in asked.pipelines]
    used = np.array(counts, dtype=float) @ units
    for i, poor in enumerate(asked.pipelines):
        if not 0 < counts[i] < poor.desired:
            continue  # has all it desires, or waits for its minimum
        for j, rich in enumerate(asked.pipelines):
            gives = counts[j] > rich.minimum
            if i != j and gives and (counts[j] - 1) * weight[j] >= (counts[i] + 1) * weight[i] - 1e-12:
                after = used - units[j] + units[i]
                assert any(after > capacity * (1 + 1e-12)), (poor.name, rich.name)
