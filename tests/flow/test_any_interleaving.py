"""Any graph, any interleaving, any faults: every delivery exactly once, no deadlock, bounded queues."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import World
from world_parts import LINK_HOLDS, Graph, lay_out

from effort import tries
from penstock.cluster.topology import Slot
from penstock.engines.placed.flow.layout import Layout

NODES = ("n1", "n2", "n3")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A few sources, operators that each read one or two of what stands before them; only sinks have no reader."""
    sources = tuple(f"s{n}" for n in range(draw(st.integers(1, 2))))
    before = list(sources)
    streams: list[tuple[str, str]] = []
    for number in range(draw(st.integers(1, 4))):
        name = f"o{number}"
        senders = draw(st.lists(st.sampled_from(before), min_size=1, max_size=2, unique=True))
        streams += [(sender, name) for sender in senders]
        before.append(name)
    # a source nobody reads would be a sink as well
    unread = [source for source in sources if all(sender != source for sender, _ in streams)]
    streams += [(source, before[-1]) for source in unread]
    if draw(st.booleans()):
        streams.append(streams[0])  # a parallel stream
    return Graph(tuple(streams), sources)


def layouts(graph: Graph, plan: str, nodes: tuple[str, ...]) -> st.SearchStrategy[Layout]:
    slots = st.lists(st.builds(Slot, st.sampled_from(nodes), st.integers(0, 1)), min_size=1, max_size=2, unique=True)
    one = st.lists(st.builds(Slot, st.sampled_from(nodes), st.integers(0, 1)), min_size=1, max_size=1)
    where = st.fixed_dictionaries({op: one if op in graph.sources else slots for op in graph.operators})
    return where.map(lambda found: lay_out(graph, found, plan))


@given(st.data(), graphs(), st.integers(0, 2**32 - 1), st.integers(0, 40), st.sampled_from([10, 50, 200]))
@tries(4)
def test_every_delivery_exactly_once(data: st.DataObject, graph: Graph, seed: int, faults: int, between: int) -> None:
    home = data.draw(layouts(graph, "home", NODES))
    others = [data.draw(layouts(graph, "other", NODES)), data.draw(layouts(graph, "small", NODES[:1]))]
    world = World(graph, home, seed, others)
    for _ in range(faults):
        for _ in range(between):
            if not world.step() or world.dice.random() < 0.05:
                world.pass_time()
        world.fault()
    for _ in range(300):
        if not world.step():
            world.pass_time()
    world.finish()
    check_exactly_once(world)
    assert world.longest_link <= LINK_HOLDS


def check_exactly_once(world: World) -> None:
    graph, offsets = world.graph, world.commits[-1].offsets
    for sink, rows in world.visible().items():
        seen = Counter(row[:3] for row in rows)
        assert max(seen.values(), default=1) == 1, "delivered twice"
        expected = sum(offsets.get(source, 0) * graph.paths(sink, source) for source in graph.sources)
        assert len(seen) == expected
        assert all(number < offsets[source] for source, number, _ in seen)
    for operator in graph.operators:
        expected = sum(offsets.get(source, 0) * graph.paths(operator, source) for source in graph.sources)
        assert world.kept(operator) == expected, "its state has seen other tuples than it got"


def test_a_calm_run_moves_tuples() -> None:
    """What the property counts is not always nothing."""
    graph = Graph((("s0", "a"), ("s0", "b"), ("a", "c"), ("b", "c")), ("s0",))
    home = lay_out(graph, {op: [Slot("n1", 0)] for op in graph.operators}, "home")
    world = World(graph, home, 1, [])
    for _ in range(2000):
        if not world.step() or world.dice.random() < 0.01:
            world.pass_time()
    world.finish()
    check_exactly_once(world)
    assert world.commits[-1].offsets["s0"] > 50
    assert world.commits[-1].epoch > 5


def test_the_check_can_fail() -> None:
    """A sink that shows what was staged for an epoch that never committed is found out."""
    graph = Graph((("s0", "a"),), ("s0",))
    home = lay_out(graph, {op: [Slot("n1", 0)] for op in graph.operators}, "home")
    world = World(graph, home, 2, [])
    for _ in range(1500):
        if not world.step() or world.dice.random() < 0.02:
            world.pass_time()
    world.finish()
    shown = next(one for one in world.commits if one.outputs)
    world.commits.insert(0, shown)
    with pytest.raises(AssertionError, match="delivered twice"):
        check_exactly_once(world)
