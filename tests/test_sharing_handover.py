"""Which nodes a share is and which threads move: nothing twice, nothing needless, spread evenly."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import tries
from penstock.cluster.topology import Node, Slot
from penstock.planning.registry import SHARERS
from penstock.planning.sharing.contract import Divides, Tenant, Tenants
from penstock.planning.sharing.share import Moves, dealt, moved_least, share_cluster, worker_slots
from sharing_builders import running_tenancies, sized_nodes, unequal_tenancies

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.planning.sharing.share import HandOver

patiently = tries(1)
BY_NODE = [name for name in SHARERS.names() if SHARERS.create(name).divides is Divides.NODES]


def handed(policy: str, asked: Tenants, moves: Moves = Moves.FEWEST) -> HandOver:
    found = share_cluster(asked, SHARERS.create(policy), moves).handed
    assert found is not None
    return found


def running(nodes: int, *pipelines: Tenant, slots: int = 2) -> Tenants:
    return Tenants.of(nodes, pipelines, slots)


class TestWhatMoves:
    """One grows from 2 to 3 of 4 nodes because the other, which holds 2, now desires 1."""

    asked = running(
        4,
        Tenant("grows", 3, 1, workers=6, threads=12, current=("n1", "n2")),
        Tenant("shrinks", 1, 1, workers=2, threads=6, current=("n3", "n4")),
    )

    def test_published_starts_both_anew(self) -> None:
        found = handed("isolation", self.asked, Moves.PUBLISHED)
        assert found.moved_threads == 12 + 6
        assert found.moved_pipelines == 2

    def test_fewest_moves_what_must_be_spread_again(self) -> None:
        found = handed("isolation", self.asked)
        # 12 threads on 4 slots of n1, n2: 3 each; on 6 slots 2 each, so one leaves every old slot: 4.
        # 6 threads on n3/0 and n4/0 (2 workers), 3 each; one node is kept with its 3, the others move: 3.
        assert found.holdings["grows"].moved == 4
        assert found.holdings["shrinks"].moved == 3
        assert found.holdings["grows"].nodes == ("n1", "n2", "n4")
        assert found.holdings["shrinks"].nodes == ("n3",)

    def test_once_moved_it_stays(self) -> None:
        after = handed("isolation", self.asked).after(self.asked)
        again = handed("isolation", after)
        assert again.moved_threads == 0
        assert all(holding.kept for holding in again.holdings.values())

    def test_threads_of_a_node_that_is_gone_move_and_no_others(self) -> None:
        asked = running(3, Tenant("a", 2, workers=4, threads=4, current=("n9", "n2")))
        found = handed("isolation", asked)
        assert found.holdings["a"].nodes == ("n1", "n2")
        assert found.holdings["a"].moved == 2
        assert handed("isolation", asked, Moves.PUBLISHED).holdings["a"].moved == 4


def check(asked: Tenants, found: HandOver) -> None:
    """What holds for any hand-over: no node twice, no thread lost or doubled, slots that exist, an even spread."""
    names = [name for holding in found.holdings.values() for name in holding.nodes]
    assert len(set(names)) == len(names)
    assert set(names) | {node.name for node in found.free} == {node.name for node in asked.cluster.nodes}
    for tenant in asked.pipelines:
        holding = found.holdings[tenant.name]
        mine = [asked.cluster.node(name) for name in holding.nodes]
        assert found.nodes[tenant.name] == sum(map(asked.size, mine))
        threads = [thread for row in holding.layout.values() for thread in row]
        assert sorted(threads) == (list(range(asked.threads(tenant))) if mine else [])
        assert all(slot.number < asked.cluster.node(slot.node).slots for slot in holding.layout)
        assert 0 <= holding.moved <= asked.threads(tenant)
        if mine:
            sizes = [len(row) for row in holding.layout.values()]
            assert max(sizes) - min(sizes) <= 1
            evenly = Counter(slot.node for slot in worker_slots(mine, asked.workers(tenant)))
            spread = Counter(slot.node for slot in holding.layout)
            assert sorted(spread.values()) == sorted(evenly.values())


@pytest.mark.parametrize("moves", Moves)
@pytest.mark.parametrize("policy", BY_NODE)
@patiently
@given(asked=running_tenancies())
def test_equal_nodes(policy: str, moves: Moves, asked: Tenants) -> None:
    found = share_cluster(asked, SHARERS.create(policy), moves)
    assert found.handed is not None
    check(asked, found.handed)
    assert found.nodes == found.shares.nodes
    assert found.waiting == found.shares.waiting


@pytest.mark.parametrize("policy", BY_NODE)
@patiently
@given(asked=running_tenancies())
def test_fewest_keeps_all_it_may_and_moves_no_more_than_published(policy: str, asked: Tenants) -> None:
    fewest, published = handed(policy, asked), handed(policy, asked, Moves.PUBLISHED)
    for tenant in asked.pipelines:
        alive = [name for name in tenant.current if name in {node.name for node in asked.cluster.nodes}]
        kept = set(fewest.holdings[tenant.name].nodes) & set(alive)
        assert len(kept) == min(len(alive), fewest.nodes[tenant.name])
        assert fewest.holdings[tenant.name].moved <= published.holdings[tenant.name].moved


@pytest.mark.parametrize("moves", Moves)
@pytest.mark.parametrize("policy", BY_NODE)
@patiently
@given(asked=unequal_tenancies())
def test_nodes_that_differ(policy: str, moves: Moves, asked: Tenants) -> None:
    sharer = SHARERS.create(policy)
    found = share_cluster(asked, sharer, moves)
    assert found.handed is not None
    check(asked, found.handed)
    for tenant in asked.pipelines:
        sizes = [asked.size(asked.cluster.node(name)) for name in found.handed.holdings[tenant.name].nodes]
        waits = tenant.name in found.waiting
        if moves is Moves.FEWEST:
            # above what it desires only by the node without which it would miss its minimum
            assert sum(sizes) <= tenant.desired or sum(sizes) - min(sizes) < tenant.minimum
            if sharer.keeps_minima:
                assert waits == (sum(sizes) < tenant.minimum)
                assert not waits or not sizes
        else:
            # no node beyond the one that covers the share
            assert not sizes or sum(sizes) - sizes[-1] < found.shares.nodes[tenant.name]
    if moves is Moves.FEWEST and sharer.wastes_nothing and sharer.keeps_minima:
        for node in found.handed.free:
            for tenant in asked.pipelines:
                held = found.nodes[tenant.name]
                assert held < tenant.minimum or held + asked.size(node) > tenant.desired


def test_large_nodes_go_to_those_who_lack_much_and_small_ones_fill_up() -> None:
    # 8 + 4 + 2 + 1 + 1 = 16 standard nodes of 2 slots; shares 9, 5 and 2
    asked = Tenants.of(sized_nodes(2, 2, 4, 8, 16), [Tenant("a", 9, 9), Tenant("b", 5, 5), Tenant("c", 2, 2)], slots=2)
    found = share_cluster(asked, SHARERS.create("fair-priority"))
    assert found.nodes == {"a": 9, "b": 5, "c": 2}
    assert found.handed is not None
    assert {name: holding.nodes for name, holding in found.handed.holdings.items()} == {
        "a": ("n1", "n5"),
        "b": ("n2", "n4"),
        "c": ("n3",),
    }
    # the published allocator takes them as they stand: 1 + 1 + 2 + 4 + 8 for the 9 of the first
    published = share_cluster(asked, SHARERS.create("static-priority"), Moves.PUBLISHED)
    assert published.nodes == {"a": 16, "b": 0, "c": 0}
    assert "differ in size" in published.waiting["b"]


def test_minima_that_fit_the_sum_but_not_the_nodes_are_said_to_wait() -> None:
    asked = Tenants.of(sized_nodes(4, 4), [Tenant("a", 3, 3), Tenant("b", 3, 3), Tenant("c", 2, 2)], slots=1)
    found = share_cluster(asked, SHARERS.create("fair-priority"))
    assert found.nodes == {"a": 4, "b": 4, "c": 0}
    assert found.must_wait
    assert "differ in size" in found.waiting["c"]


def layouts(nodes: Sequence[Node], workers: int, threads: int) -> Iterator[dict[Slot, int]]:
    """Every even layout, as threads per slot."""
    evenly = Counter(slot.node for slot in worker_slots(nodes, workers))
    counts = [evenly[node.name] for node in nodes]
    spreads = {
        spread for spread in product(*[range(node.slots + 1) for node in nodes]) if sorted(spread) == sorted(counts)
    }
    for spread in spreads:
        for choice in product(
            *[combinations(range(node.slots), count) for node, count in zip(nodes, spread, strict=True)]
        ):
            slots = [Slot(node.name, number) for node, numbers in zip(nodes, choice, strict=True) for number in numbers]
            share, odd = divmod(threads, len(slots))
            for more in combinations(range(len(slots)), odd):
                yield {slot: share + (position in more) for position, slot in enumerate(slots)}


@patiently
@given(data=st.data())
def test_no_even_layout_moves_fewer_threads(data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, 2))
    nodes = [Node(f"n{number}", "r", slots, {}) for number in range(4)]
    before_nodes = data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique_by=lambda n: n.name))
    after_nodes = data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique_by=lambda n: n.name))
    workers, threads = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 7))
    before: Mapping[Slot, tuple[int, ...]] = dealt(before_nodes, workers, threads)
    layout, moved = moved_least(before, after_nodes, workers, threads)
    stayed = sum(len(set(row) & set(before.get(slot, ()))) for slot, row in layout.items())
    assert moved == threads - stayed
    most = max(
        sum(min(count, len(before.get(slot, ()))) for slot, count in option.items())
        for option in layouts(after_nodes, workers, threads)
    )
    assert stayed == most


def test_more_threads_than_before_start_without_moving_others() -> None:
    asked = running(2, Tenant("a", 2, workers=4, threads=4, current=("n1", "n2")))
    after = handed("isolation", asked).after(asked)
    grown = replace(after, pipelines=(replace(after.pipelines[0], threads=8),))
    found = handed("isolation", grown)
    assert found.moved_threads == 0
    assert sorted(len(row) for row in found.holdings["a"].layout.values()) == [2, 2, 2, 2]


def held(policy: str, asked: Tenants, moves: Moves) -> dict[str, list[str]]:
    return {name: list(holding.nodes) for name, holding in handed(policy, asked, moves).holdings.items()}


@pytest.mark.parametrize("moves", Moves)
def test_who_takes_nodes_first(moves: Moves) -> None:
    """Isolation goes by submission, max-min by rising fairness degree, the priority schedulers level by level."""
    asked = running(3, Tenant("low", 1, 1, 3), Tenant("high", 1, 1, 1), Tenant("late", 1, 1, 2, fairness=0.5))
    assert held("isolation", asked, moves) == {"low": ["n1"], "high": ["n2"], "late": ["n3"]}
    assert held("max-min", asked, moves) == {"late": ["n1"], "low": ["n2"], "high": ["n3"]}
    assert held("dynamic-priority", asked, moves) == {"high": ["n1"], "late": ["n2"], "low": ["n3"]}
