"""The fewest threads of the lowest priorities give way, and nobody else moves."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from place_builders import node, pipeline

from effort import tries
from penstock.base.errors import BadInputError
from penstock.cluster.topology import Cluster, Slot
from penstock.planning.placement.contract import PlacementRequest, Room
from penstock.planning.placement.placers.compact import Compact
from penstock.planning.replanning import priorities as eviction
from penstock.planning.replanning.priorities import Candidate, Level, fewest, key, queue
from penstock.planning.replanning.replan_cluster import place_again
from penstock.planning.whole_cluster import place_all


def candidates(*given: tuple[int, int]) -> list[Candidate]:
    return [Candidate(f"c{k}", Level(False, priority), threads) for k, (priority, threads) in enumerate(given)]


def names(group: tuple[Candidate, ...] | None) -> set[str] | None:
    return None if group is None else {each.pipeline for each in group}


def test_the_least_important_give_way_first() -> None:
    # Ten threads must go. c1 of priority 3 has ten; c0 of priority 2 has ten too, and stays.
    rows = candidates((2, 10), (3, 10))
    freed = {each.pipeline: each.threads for each in rows}
    assert names(fewest(rows, lambda gone: sum(freed[name] for name in gone) >= 10)) == {"c1"}


def test_of_one_priority_the_fewest_threads_give_way() -> None:
    rows = candidates((3, 7), (3, 6), (3, 5), (3, 20))
    freed = {each.pipeline: each.threads for each in rows}
    assert names(fewest(rows, lambda gone: sum(freed[name] for name in gone) >= 11)) == {"c1", "c2"}


def test_nobody_gives_way_for_nothing() -> None:
    assert fewest(candidates((3, 7), (3, 6)), lambda _: False) is None
    assert fewest([], lambda _: True) is None


@tries(4)
@given(
    rows=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=6),
    needed=st.integers(1, 30),
    enumerated=st.booleans(),
)
def test_the_set_is_minimal_by_enumeration(rows: list[tuple[int, int]], needed: int, enumerated: bool) -> None:
    """Every subset is tried. Beyond `ENUMERATED` pipelines the answer is only irreducible: nobody in it can stay."""
    given_ = candidates(*rows)
    freed = {each.pipeline: each.threads for each in given_}

    def fits(gone: frozenset[str]) -> bool:
        return sum(freed[name] for name in gone) >= needed

    levels = sorted({each.level for each in given_})
    subsets = chain.from_iterable(combinations(given_, size) for size in range(1, len(given_) + 1))
    good = [group for group in subsets if fits(frozenset(each.pipeline for each in group))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eviction, "ENUMERATED", 10 if enumerated else 0)
        found = fewest(given_, fits)
    assert (found is None) == (not good)
    if found is not None:
        assert fits(frozenset(each.pipeline for each in found))
        for left_out in found:
            assert not fits(frozenset(each.pipeline for each in found if each is not left_out))
        if enumerated:
            assert key(found, levels) == min(key(group, levels) for group in good)


def three_on_two_nodes() -> tuple[Cluster, list[tuple[PlacementRequest, int]], dict[str, dict[Slot, dict[str, int]]]]:
    """Two nodes of 400 points; low takes 300 of a, middle 300 of b; small 100 of a."""
    cluster = Cluster((node("a"), node("b")))
    requests = [
        (pipeline([(3, 100, 10)], name="low"), 9),
        (pipeline([(3, 100, 10)], name="middle"), 5),
        (pipeline([(1, 100, 10)], name="small"), 9),
    ]
    current = {
        "low": {Slot("a", 0): {"o0": 3}},
        "middle": {Slot("b", 0): {"o0": 3}},
        "small": {Slot("a", 1): {"o0": 1}},
    }
    return cluster, requests, current


def test_a_higher_priority_gets_in_and_everything_else_stays() -> None:
    cluster, requests, current = three_on_two_nodes()
    urgent = pipeline([(2, 100, 10)], name="urgent")  # 100 points are free on b: 100 more are needed, `small` has them
    result = place_again(cluster, [*requests, (urgent, 1)], Compact(), current, 0.5)
    assert set(result.placements) == {"low", "middle", "urgent"}
    assert list(result.evicted) == ["small"]
    assert "gave way to 'urgent'" in str(result.refused["small"])
    for name in ("low", "middle"):
        assert result.placements[name].by_slot() == current[name]
        assert result.moves[name].moved == 0


def test_nobody_is_evicted_where_it_would_not_help() -> None:
    cluster, requests, current = three_on_two_nodes()
    huge = pipeline([(1, 500, 10)], name="huge")
    result = place_again(cluster, [*requests, (huge, 1)], Compact(), current, 0.5)
    assert list(result.refused) == ["huge"]
    assert not result.evicted
    assert all(result.placements[name].by_slot() == current[name] for name in current)


def test_equals_and_betters_are_not_evicted() -> None:
    cluster, requests, current = three_on_two_nodes()
    late = pipeline([(4, 100, 10)], name="late")
    result = place_again(cluster, [*requests, (late, 9)], Compact(), current, 0.5)
    assert list(result.refused) == ["late"]
    # Of priority 7 it may take the place of those of 9, and not of `middle`.
    result = place_again(cluster, [*requests, (late, 7)], Compact(), current, 0.5)
    assert set(result.placements) >= {"late", "middle"}
    assert result.placements["middle"].by_slot() == current["middle"]


@tries(2)
@given(st.data())
def test_eviction_on_small_clusters_by_enumeration(data: st.DataObject) -> None:
    """Who gives way is the smallest key of all sets whose going lets the newcomer in, tried one by one."""
    cluster = Cluster(tuple(node(name) for name in "abc"[: data.draw(st.integers(1, 3))]))
    running = [
        (pipeline([(data.draw(st.integers(1, 4)), 100, 10)], name=f"p{k}"), data.draw(st.integers(2, 4)))
        for k in range(data.draw(st.integers(1, 4)))
    ]
    before = place_all(cluster, running, Compact())
    kept = [(request, priority) for request, priority in running if request.pipeline in before.placements]
    current = {name: placement.by_slot() for name, placement in before.placements.items()}
    newcomer = pipeline([(data.draw(st.integers(1, 6)), 100, 10)], name="new")

    def fits(without: tuple[str, ...]) -> bool:
        room = Room(cluster, slot_memory_shared=False)
        for request, _ in kept:
            if request.pipeline not in without:
                room.take(before.placements[request.pipeline], {"o0": (100.0, 10.0)})
        return not hasattr(Compact().place(newcomer, room), "shortages")

    result = place_again(cluster, [*kept, (newcomer, 1)], Compact(), current, 0.5)
    all_names = [request.pipeline for request, _ in kept]
    good = [set(g) for size in range(len(all_names) + 1) for g in combinations(all_names, size) if fits(g)]
    assert ("new" in result.placements) == bool(good)
    priority = {request.pipeline: (level, request.threads) for request, level in kept}
    levels = [2, 3, 4]

    def cost(group: set[str]) -> list[int]:
        return [sum(priority[name][1] for name in group if priority[name][0] == level) for level in levels]

    if good:
        best = min(cost(group) for group in good)
        moved = {
            name for name in all_names if name in result.refused or result.placements[name].by_slot() != current[name]
        }
        assert cost(moved) <= best  # some that gave way found all their slots free again
    threads = {name: sum(n for row in rows.values() for n in row.values()) for name, rows in current.items()}
    for name, moves in result.moves.items():
        if name in threads:
            assert moves.kept + moves.moved == threads[name]


# The queue.


def owned(name: str, owner: str, cpu: float) -> PlacementRequest:

    return replace(pipeline([(1, cpu, 10)], name=name), owner=owner)


def test_guarantees_go_before_priorities() -> None:
    # ada is guaranteed 100 points: her first pipeline is within, her second beyond; bob's is beyond his 50.
    guarantees = {"ada": {"cpu": 100.0, "memory_mb": 1000.0}, "bob": {"cpu": 50.0, "memory_mb": 1000.0}}
    requests = [(owned("b", "bob", 60), 0), (owned("a2", "ada", 60), 5), (owned("a1", "ada", 60), 3)]
    line = queue(requests, Cluster((node("n"),)), guarantees)
    assert [entry.request.pipeline for entry in line] == ["a1", "b", "a2"]
    assert [entry.level.beyond_guarantee for entry in line] == [False, True, True]
    assert [round(entry.share, 2) for entry in line] == [0.6, 1.2, 1.2]
    result = place_all(Cluster((node("n", cpu=100),)), requests, Compact(), guarantees)
    assert list(result.placements) == ["a1"]


def test_an_owner_without_guarantee_is_bad_input() -> None:
    with pytest.raises(BadInputError, match="owner 'eve' has no guarantee; known: ada"):
        queue([(owned("x", "eve", 1), 1)], Cluster((node("n"),)), {"ada": {"cpu": 1.0}})
    with pytest.raises(BadInputError, match="pipeline 'p': it has no owner"):
        queue([(pipeline([(1, 1, 1)]), 1)], Cluster((node("n"),)), {"ada": {"cpu": 1.0}})


def test_without_guarantees_priorities_order_the_queue() -> None:
    requests = [(pipeline([(1, 1, 1)], name=name), priority) for name, priority in [("x", 3), ("y", 1), ("z", 1)]]
    assert [entry.request.pipeline for entry in queue(requests, Cluster((node("n"),)), {})] == ["y", "z", "x"]
