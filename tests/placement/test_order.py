from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from place_builders import cases

from penstock.planning.placement.placers.r_storm import breadth_first, thread_order


def graph(case: dict[str, Any]) -> tuple[list[str], list[int], list[tuple[int, int]], list[int]]:
    """Names, threads, streams and sources; sources are those nobody sends to, unless the case names them."""
    names = [component["name"] for component in case["components"]]
    threads = [component["tasks"] for component in case["components"]]
    streams = [(names.index(a), names.index(b)) for a, b in case["edges"]]
    unfed = [name for name in names if all(names[b] != name for _, b in streams)]
    return names, threads, streams, [names.index(name) for name in case.get("spouts", unfed)]


@pytest.mark.parametrize(("case", "expected"), cases("bfs"))
def test_breadth_first(case: dict[str, Any], expected: list[str]) -> None:
    names, _, streams, sources = graph(case)
    assert [names[operator] for operator in breadth_first(len(names), streams, sources)] == expected


@pytest.mark.parametrize(("case", "expected"), cases("task_order"))
def test_thread_order(case: dict[str, Any], expected: list[str]) -> None:
    names, threads, streams, sources = graph(case)
    numbered, seen = [], [0] * len(names)
    for operator in thread_order(breadth_first(len(names), streams, sources), threads):
        seen[operator] += 1
        numbered.append(f"{names[operator]}#{seen[operator]}")
    assert numbered == expected


def test_streams_are_followed_in_declared_order() -> None:
    # 0 sends to 2 first, then to 1; 3 is reached by nobody and 4 only by 3.
    assert breadth_first(5, [(0, 2), (0, 1), (3, 4)], [0]) == [0, 2, 1, 3, 4]


@given(st.data())
def test_every_operator_comes_once_and_every_thread_too(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    position = st.integers(0, count - 1)
    streams = data.draw(st.lists(st.tuples(position, position), max_size=12))
    sources = data.draw(st.lists(position, max_size=3))
    threads = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    order = breadth_first(count, streams, sources)
    assert sorted(order) == list(range(count))
    taken = thread_order(order, threads)
    assert [taken.count(operator) for operator in range(count)] == threads
