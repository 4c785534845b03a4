"""A division that would be too late for somebody is made again; by hand."""

from __future__ import annotations

import pytest

from penstock.planning.registry import SHARERS
from penstock.planning.sharing.contract import Tenant, Tenants
from penstock.planning.sharing.share import share_in_time


def tenants(nodes: int, *desired: int, priorities: tuple[int, ...] = ()) -> Tenants:
    levels = priorities or (1,) * len(desired)
    named = [
        Tenant(f"p{number}", units, priority=level)
        for number, (units, level) in enumerate(zip(desired, levels, strict=True))
    ]
    return Tenants.of(nodes, named, 1)


def given(policy: str, who: Tenants, **needs: int) -> tuple[list[int], tuple[str, ...]]:
    made = share_in_time(SHARERS.create(policy), who, needs)
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
    who = Tenants.of(2, [Tenant("p0", 5, minimum=2), Tenant("p1", 5, minimum=2)], 1)
    assert share_in_time(SHARERS.create("fair-max-min"), who, {"p0": 3}).late == ()
