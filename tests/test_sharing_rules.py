"""What single policies promise, by definition: the published tables, max-min, priority, ageing, one node more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import tries
from penstock.planning.registry import SHARERS
from penstock.planning.sharing.contract import Tenant, Tenants
from penstock.planning.sharing.division import aged_level, filled, round_half_up, whole_shares
from penstock.planning.sharing.measures import Served, jain
from sharing_builders import pipelines, sized_nodes, tenancies, tenants

patiently = tries(1)

USE_CASE_1 = ((8, 4, 1), (8, 4, 1), (4, 2, 2), (4, 2, 2))
SAME_LEVEL_1 = ((8, 4, 2), (8, 4, 2), (4, 2, 2), (4, 2, 2))
USE_CASE_2 = ((16, 8, 1), (8, 4, 2))
SAME_LEVEL_2 = ((16, 8, 2), (8, 4, 2))


def shares(policy: str, asked: Tenants) -> list[float]:
    return list(SHARERS.create(policy).share(asked).nodes.values())


@pytest.mark.parametrize(
    ("policy", "nodes", "asked", "expected"),
    [
        # Table 8: PF = round(16 * 16/24) = 11, round(11/2) = 6 twice; 4 left, 2 each
        ("static-priority", 16, USE_CASE_1, [6, 6, 2, 2]),
        # Table 12: round(20 * 16/24) = 13, then min(7, round(20 * 8/24)) = 7
        ("static-priority", 20, USE_CASE_2, [13, 7]),
        # Table 9: one level, round(16 * 8/24) = 5, round(16 * 4/24) = 3; with the trigger on level 1 takes all 16
        ("dynamic-priority", 16, SAME_LEVEL_1, [5, 5, 3, 3]),
        ("dynamic-priority", 16, USE_CASE_1, [8, 8, 0, 0]),
        # Table 13
        ("dynamic-priority", 20, SAME_LEVEL_2, [13, 7]),
        ("dynamic-priority", 20, USE_CASE_2, [16, 4]),
        # weights 8, 8, 2, 2 from minima 4, 4, 2, 2: 4.5/8, 5.5/8 come before 2.5/2, so 6 and 6
        ("fair-priority", 16, USE_CASE_1, [6, 6, 2, 2]),
        ("fair-priority", 20, USE_CASE_2, [16, 4]),
        # in one level it is by desired: 8 * 16/24 = 5.33, 4 * 16/24 = 2.67
        ("fair-priority", 16, SAME_LEVEL_1, [5, 5, 3, 3]),
        # a step in priority worth nothing, and worth everything
        ("fair-priority:ratio=1", 16, USE_CASE_1, [5, 5, 3, 3]),
        ("fair-priority:ratio=1000", 16, USE_CASE_1, [6, 6, 2, 2]),
        ("fair-priority:ratio=1000", 18, USE_CASE_1, [7, 7, 2, 2]),
        ("max-min", 16, USE_CASE_1, [4, 4, 4, 4]),
        ("fair-max-min", 14, ((8, 7, 1), (8, 1, 1), (3, 1, 1)), [7, 4, 3]),
    ],
)
def test_tables(policy: str, nodes: int, asked: tuple[tuple[int, int, int], ...], expected: list[int]) -> None:
    assert shares(policy, tenants(nodes, *asked)) == expected


def test_weaknesses_of_the_published_forms_are_kept() -> None:
    # minima 9 and 1 of 11 nodes; in proportion to desired 10 and 10 they get 6 and 5
    assert shares("static-priority", tenants(11, (10, 9, 1), (10, 1, 1))) == [6, 5]
    # ten pipelines of one level desire one of four nodes each: round(4 * 1/10) = 0, and the level below takes all
    assert shares("dynamic-priority", tenants(4, *[(1, 1, 1)] * 10, (4, 1, 2))) == [0] * 10 + [4]
    assert shares("fair-priority", tenants(4, *[(1, 1, 1)] * 10, (4, 1, 2))) == [1] * 4 + [0] * 7


def test_levels_without_pipelines_change_nothing_for_the_published_forms() -> None:
    for policy in ("static-priority", "dynamic-priority"):
        near, far = tenants(16, *USE_CASE_1), tenants(16, (8, 4, 3), (8, 4, 3), (4, 2, 900), (4, 2, 900))
        assert shares(policy, near) == shares(policy, far)


def test_for_fair_priority_every_level_counts_even_one_without_pipelines() -> None:
    # weights 10 and 10 / 2**1: 2/3 and 1/3 of 12; with three levels between, 10 / 2**4: all but the minimum
    assert shares("fair-priority", tenants(12, (10, 1, 1), (10, 1, 2))) == [8, 4]
    assert shares("fair-priority", tenants(10, (10, 1, 1), (10, 1, 5))) == [9, 1]
    assert shares("fair-priority", tenants(12, (10, 1, 1), (10, 1, 1_000_000))) == [10, 2]


def test_who_waits_and_why() -> None:
    found = SHARERS.create("fair-priority").share(tenants(10, (8, 6, 2), (8, 5, 1), (9, 9, 1), (20, 12, 1), (4, 3, 3)))
    # by level: p1 takes 5, p2 does not fit (9 > 5), p3 never will, p0 does not fit (6 > 5), p4 takes 3
    assert found.nodes == {"p0": 0, "p1": 7, "p2": 0, "p3": 0, "p4": 3}
    assert found.waiting["p0"].startswith(
        "needs at least 6 nodes, 5 left after the minima of those who stand before it"
    )
    assert "and the whole cluster has 10" in found.waiting["p3"]
    assert "waiting will not help" in found.waiting["p3"]


def test_waiting_lifts_a_pipeline_over_the_others() -> None:
    assert aged_level(Tenant("p", 1, priority=3, waited=1250), patience=600) == 1
    asked = tenants(5, (5, 5, 1), (5, 5, 3))
    assert shares("fair-priority", asked) == [5, 0]
    aged = replace(asked, pipelines=(asked.pipelines[0], replace(asked.pipelines[1], waited=1200)))
    assert shares("fair-priority", aged) == [0, 5]
    assert shares("fair-priority:patience=1000", aged) == [5, 0]


@pytest.mark.parametrize("policy", ["fair-priority", "fair-max-min", "dominant-fair"])
@tries(1)
@given(everyone=pipelines(most=5), nodes=st.integers(1, 30))
def test_nobody_waits_for_ever(policy: str, everyone: list[Tenant], nodes: int) -> None:
    """Decide again every 300 s. A waiting pipeline rises a level every 600 s, so after at most 4 levels it stands
    before all who run, and of the others who wait each goes before it at most once a turn."""
    fitting = [replace(tenant, waited=0.0) for tenant in everyone if tenant.minimum <= nodes]
    if not fitting:
        return
    asked = Tenants.of(nodes, fitting, 2)
    ran: set[str] = set()
    for _ in range(20 + 5 * len(fitting)):
        found = SHARERS.create(policy).share(asked)
        ran |= {name for name, share in found.nodes.items() if share}
        asked = replace(
            asked,
            pipelines=tuple(
                replace(tenant, waited=0.0 if found.nodes[tenant.name] else tenant.waited + 300)
                for tenant in asked.pipelines
            ),
        )
    assert ran == {tenant.name for tenant in fitting}


def test_dynamic_priority_does_let_somebody_wait_for_ever() -> None:
    assert shares("dynamic-priority", tenants(8, (8, 4, 1), (4, 2, 2))) == [8, 0]


@patiently
@given(asked=tenancies(resources=False))
def test_max_min_by_its_definition(asked: Tenants) -> None:
    """All is handed out, and whoever could still use a node has at most one less than anybody."""
    found = shares("max-min", asked)
    assert sum(found) == min(asked.capacity, sum(tenant.desired for tenant in asked.pipelines))
    for share, tenant in zip(found, asked.pipelines, strict=True):
        if share < tenant.desired:
            assert max(found) <= share + 1


@patiently
@given(asked=tenancies(resources=False))
def test_fair_max_min_by_its_definition(asked: Tenants) -> None:
    """The same among those who run, but for nodes that are somebody's minimum."""
    found = shares("fair-max-min", asked)
    for share, tenant in zip(found, asked.pipelines, strict=True):
        if 0 < share < tenant.desired:
            for other_share, other in zip(found, asked.pipelines, strict=True):
                assert other_share <= max(share + 1, other.minimum)


@patiently
@given(asked=tenancies(resources=False))
def test_without_declared_demands_dominant_fair_is_fair_max_min(asked: Tenants) -> None:
    assert shares("dominant-fair", asked) == shares("fair-max-min", asked)


def test_dominant_fair_gives_the_example_of_its_authors() -> None:
    """9 CPUs and 18 GB; one runs tasks of <1 CPU, 4 GB>, the other of <3 CPUs, 1 GB>: 3 tasks and 2, 2/3 each."""
    nodes = sized_nodes(*[1] * 9)
    nodes = replace(
        nodes, nodes=tuple(replace(node, capacity={"cpu": 1, "memory_mb": 2, "gpu": 0}) for node in nodes.nodes)
    )
    asked = Tenants.of(
        nodes,
        [
            Tenant("a", 9, resources={"cpu": 1, "memory_mb": 4}),
            Tenant("b", 9, resources={"cpu": 3, "memory_mb": 1}),
        ],
    )
    assert shares("dominant-fair", asked) == [3, 2]


@pytest.mark.parametrize("policy", ["fair-priority", "fair-max-min", "max-min"])
@patiently
@given(everyone=pipelines(), spare=st.integers(0, 40))
def test_one_node_more_costs_nobody_a_node(policy: str, everyone: list[Tenant], spare: int) -> None:
    needed = sum(tenant.minimum for tenant in everyone)
    before = shares(policy, Tenants.of(needed + spare, everyone, 2))
    after = shares(policy, Tenants.of(needed + spare + 1, everyone, 2))
    assert all(more >= less for less, more in zip(before, after, strict=True))


amounts = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30), st.sampled_from([1e-100, 0.25, 0.5, 1.0, 3.0, 7.0, 1e6])),
    min_size=1,
    max_size=9,
)


@patiently
@given(rows=amounts, capacity=st.integers(0, 150), data=st.data())
def test_whole_shares_are_those_of_single_steps(
    rows: list[tuple[int, int, float]], capacity: int, data: st.DataObject
) -> None:
    """The search for the level must skip nothing that steps of one would do otherwise."""
    floors = [low for low, _, _ in rows]
    caps = [low + more for low, more, _ in rows]
    weights = [weight for _, _, weight in rows]
    order = data.draw(st.permutations(range(len(rows))))
    capacity = max(capacity, sum(floors))
    expected = list(floors)
    for _ in range(capacity - sum(floors)):
        able = [position for position in range(len(rows)) if expected[position] < caps[position]]
        if not able:
            break
        chosen = min(able, key=lambda position: ((expected[position] + 0.5) / weights[position], order[position]))
        expected[chosen] += 1
    assert whole_shares(capacity, floors, caps, weights, order) == expected


@patiently
@given(
    wanted=st.lists(st.integers(0, 50), min_size=1, max_size=9),
    capacity=st.integers(1, 200),
)
def test_whole_and_fractional_filling_are_less_than_a_node_apart(wanted: list[int], capacity: int) -> None:
    fractions = filled(wanted, capacity)
    whole = whole_shares(capacity, [0] * len(wanted), wanted, [1.0] * len(wanted))
    assert sum(fractions) == pytest.approx(min(capacity, sum(wanted)))
    assert all(abs(a - b) < 1 for a, b in zip(fractions, whole, strict=True))


def test_arithmetic() -> None:
    assert [round_half_up(n, 2) for n in (1, 2, 3, 5)] == [1, 1, 2, 3]
    # (1 + 1 + 0)^2 / (3 * 2) = 2/3
    assert jain([1, 1, 0]) == pytest.approx(2 / 3)
    assert jain([0.5] * 7) == pytest.approx(1)
    assert jain([0, 0]) == 1
    # 10 s of 2 of 4, then 10 s of 6 of 4 counts as 4 of 4
    assert Served().after(10, 2, 4).after(10, 6, 4).degree == 0.75
