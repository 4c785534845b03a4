"""A division that would be too late for somebody is made again; by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given as holds_for
from hypothesis import strategies as st

from effort import tries
from penstock.planning.registry import SHARERS
from penstock.planning.sharing.contract import Tenant, Tenants, late_in
from penstock.planning.sharing.e_stream import EStreamMaxMin
from penstock.planning.sharing.share import share_in_time


def tenants(nodes: int, *desired: int, priorities: tuple[int, ...] = ()) -> Tenants:
    levels = priorities or (1,) * len(desired)
    named = [
        Tenant(f"p{number}", units, priority=level)
        for number, (units, level) in enumerate(zip(desired, levels, strict=True))
    ]
    return Tenants.of(nodes, named, 1)


def given(policy: str, who: Tenants, **needs: int) -> tuple[list[int], tuple[str, ...]]:
    who = Tenants.of(
        who.cluster, [replace(tenant, in_time=needs.get(tenant.name, 0)) for tenant in who.pipelines], who.slots
    )
    made = share_in_time(SHARERS.create(policy), who)
    assert sum(made.shares.nodes.values()) <= who.capacity
    return [int(made.shares.nodes[tenant.name]) for tenant in who.pipelines], made.late


def test_nobody_is_late_and_the_policy_divides_alone() -> None:
    assert given("fair-max-min", tenants(6, 5, 5), p0=3) == ([3, 3], ())


def test_who_would_be_late_gets_what_it_needs() -> None:
    assert given("fair-max-min", tenants(6, 5, 5), p0=4) == ([4, 2], ("p0",))


def test_all_deadlines_or_none_among_equals() -> None:
    assert given("fair-max-min", tenants(9, 5, 5, 5), p0=4, p1=4) == ([4, 4, 1], ("p0", "p1"))
    assert given("fair-max-min", tenants(8, 5, 5, 5), p0=4, p1=4) == given("fair-max-min", tenants(8, 5, 5, 5))


def test_a_higher_priority_keeps_its_deadline_where_not_all_can() -> None:
    who = tenants(8, 5, 5, 5, priorities=(2, 2, 1))
    alone, _ = given("fair-priority", who)
    shares, late = given("fair-priority", who, p0=4, p1=4, p2=5)
    assert alone[2] < 5
    assert shares[2] == 5
    assert late == ("p2",)


@pytest.mark.parametrize("policy", ["static-priority", "dynamic-priority"])
def test_what_is_kept_as_published_stays_so(policy: str) -> None:
    assert given(policy, tenants(6, 5, 5), p0=5) == given(policy, tenants(6, 5, 5))


def test_where_minima_do_not_fit_nothing_is_promised_beyond_them() -> None:
    who = Tenants.of(2, [Tenant("p0", 5, minimum=2, in_time=3), Tenant("p1", 5, minimum=2)], 1)
    assert share_in_time(SHARERS.create("fair-max-min"), who).late == ()


# ------------------------------------------------------------------------------------------------ e-stream


def needing(nodes: int, *tenants: Tenant) -> Tenants:
    return Tenants.of(nodes, tenants, 1)


# by hand: (nodes, (needed, degree, in_time) of each, shares, late)
BY_NEED = [
    # max-min over needed: 2 of 2, and the rest of 9 is halved: 3.5 -> the lower degree gets the odd one
    (9, [(2, 1.0, 0), (9, 0.9, 0), (9, 0.4, 0)], [2, 3, 4], ()),
    # nobody gets more than it needs, though all desire 10
    (20, [(2, 1.0, 0), (3, 1.0, 0), (4, 1.0, 0)], [2, 3, 4], ()),
    # 3 each; the first would be late with 3 and gets the 5 that keep its deadline, the others share 4
    (9, [(9, 1.0, 5), (9, 1.0, 0), (9, 1.0, 0)], [5, 2, 2], ("p0",)),
    # two would be late and only one promise of 6 fits into 9: that of the lower degree
    (9, [(9, 0.8, 6), (9, 0.5, 6), (9, 1.0, 0)], [2, 6, 1], ("p1",)),
    # a deadline that 10 desired nodes do not keep changes nothing
    (9, [(9, 1.0, 11), (9, 1.0, 0), (9, 1.0, 0)], [3, 3, 3], ()),
    # the promise of 7 makes the two others late, who were in time with 3: the first division stands
    (9, [(9, 1.0, 7), (9, 1.0, 3), (9, 1.0, 3)], [3, 3, 3], ()),
    # a deadline may need more than the rate does
    (9, [(2, 1.0, 4), (9, 1.0, 0)], [4, 5], ("p0",)),
]


@pytest.mark.parametrize(("nodes", "pipelines", "shares", "late"), BY_NEED)
def test_max_min_over_needed_with_deadlines(
    nodes: int, pipelines: list[tuple[int, float, int]], shares: list[int], late: tuple[str, ...]
) -> None:
    who = needing(
        nodes,
        *(
            Tenant(f"p{n}", desired=10, needed=needed, fairness=degree, in_time=in_time)
            for n, (needed, degree, in_time) in enumerate(pipelines)
        ),
    )
    made = share_in_time(SHARERS.create("e-stream"), who)
    assert list(made.shares.nodes.values()) == shares
    assert made.late == late
    assert (made.rejected is not None) == bool(late)
    degrees = [tenant.fairness for tenant in made.shares.takers]
    assert degrees == sorted(degrees)


@st.composite
def needs(draw: st.DrawFn) -> Tenants:
    count = draw(st.integers(1, 7))
    return needing(
        draw(st.integers(1, 25)),
        *(
            Tenant(
                f"p{n}",
                desired=draw(st.integers(1, 9)),
                needed=draw(st.none() | st.integers(1, 12)),
                fairness=draw(st.sampled_from([0.0, 0.3, 0.7, 1.0])),
                in_time=draw(st.integers(0, 9)),
            )
            for n in range(count)
        ),
    )


@holds_for(needs())
@tries(10)
def test_every_division_is_max_min_above_its_promises(who: Tenants) -> None:
    sharer = EStreamMaxMin()
    made = share_in_time(sharer, who)
    alone = sharer.share(who)
    wanted = {tenant.name: tenant.wanted for tenant in who.pipelines}
    for shares, floors in ((alone, {}), (made.shares, {t.name: t.in_time for t in who.pipelines})):
        held = shares.nodes
        assert sum(held.values()) <= who.capacity
        for name, amount in held.items():
            assert amount <= max(wanted[name], floors.get(name, 0))
            if amount >= wanted[name]:
                continue
            # it could use a node more: none is left, and nobody has two more above its promise
            assert sum(held.values()) == who.capacity
            assert all(other <= amount + 1 or other <= floors.get(whose, 0) for whose, other in held.items())
    # no division that was tried has fewer late pipelines
    assert len(late_in(made.shares, who)) == min(len(late_in(shares, who)) for shares in sharer.divisions(who))
    assert set(made.late).isdisjoint(late_in(made.shares, who))
