"""Random histories of requests, deaths, losses and time: what must hold after every step, and where it all comes to."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from effort import tries
from penstock.base.errors import PenstockError
from penstock.control.core.division import divide
from penstock.control.core.messages import (
    AddTrigger,
    Amend,
    Kill,
    NodeJoined,
    NodeLost,
    ReleaseNode,
    SetPolicy,
    SwitchTrigger,
)
from penstock.control.core.passes import taking_part
from penstock.control.core.records import NodePhase, PipelineState, Policy, Rescheduling, Trigger
from penstock.planning.registry import SHARERS
from penstock.planning.sharing.max_min import MaxMin
from penstock.testing.controller import ControllerBench as Bench
from penstock.testing.controller import asked, cluster, node

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ["a", "b", "c", "d"]
NODES = [f"n{number}" for number in range(1, 9)]
names, nodes = st.sampled_from(NAMES), st.sampled_from(NODES)


@st.composite
def submissions(draw: Callable[..., Any]) -> tuple[str, Any]:
    minimum = draw(st.integers(1, 3))
    return "tell", asked(
        draw(names),
        minimum + draw(st.integers(0, 4)),
        minimum,
        maximum=draw(st.one_of(st.none(), st.integers(3, 6))),
        priority=draw(st.one_of(st.none(), st.integers(1, 4))),
        load="5",
    )


actions = st.one_of(
    submissions(),
    names.map(lambda name: ("tell", Kill(name))),
    st.tuples(names, st.booleans()).map(lambda pair: ("tell", Amend(pair[0], paused=pair[1]))),
    st.tuples(names, st.integers(1, 4)).map(lambda pair: ("tell", Amend(pair[0], priority=pair[1]))),
    st.tuples(names, st.integers(1, 6)).map(lambda pair: ("tell", Amend(pair[0], minimum=pair[1]))),
    names.map(lambda name: ("tell", AddTrigger(name, Trigger(0, "arrival-rate", above=1e9)))),
    st.tuples(names, st.integers(1, 3), st.booleans()).map(lambda found: ("tell", SwitchTrigger(*found))),
    st.tuples(st.sampled_from(SHARERS.names()), st.sampled_from(list(Rescheduling))).map(
        lambda pair: ("tell", SetPolicy(Policy(*pair)))
    ),
    nodes.map(lambda name: ("lose", name)),
    nodes.map(lambda name: ("join", name)),
    nodes.map(lambda name: ("tell", ReleaseNode(name))),
    names.map(lambda name: ("die", name)),
    st.sampled_from([0.1, 0.5, 3.0, 15.0]).map(lambda seconds: ("run", seconds)),
)


def act(bench: Bench, action: tuple[str, Any]) -> None:
    """A request that is refused changes nothing."""
    kind, what = action
    if kind == "run":
        bench.run(what, every=0.25)
    elif kind == "die":
        bench.executors.kill_driver(what)
    elif kind == "lose":
        bench.executors.lose_node(what)
        bench.tell(NodeLost(what))
    elif kind == "join":
        bench.tell(NodeJoined(node(what)))
    else:
        before = bench.state
        try:
            bench.tell(what)
        except PenstockError:
            assert bench.state is before


def check(bench: Bench) -> None:
    state = bench.state
    really = bench.executors.held()
    assert {slot: who for slot, who in really.items() if len(who) > 1} == {}
    alive = {found.name for found in state.alive()}
    for what in ("assigned", "may_hold", "requested"):
        counts = Counter(slot for record in state.pipelines.values() for slot in getattr(record, what))
        assert [slot for slot, count in counts.items() if count > 1] == [], what
    minima = 0
    for record in state.pipelines.values():
        assert {slot.node for slot in record.assigned} <= alive
        assert len(record.assigned) <= max(record.desired, record.minimum)
        assert set(record.requested) <= set(record.assigned)
        minima += record.minimum if taking_part(record) else 0
    if SHARERS.create(state.policy.sharing).keeps_minima and minima <= state.capacity:
        for record in state.pipelines.values():
            assert len(record.assigned) >= record.minimum or not taking_part(record)
    # nobody is on a slot the controller does not know of
    for slot, who in really.items():
        assert slot in state.pipelines[who[0]].may_hold


@tries(4)
@given(st.lists(actions, min_size=1, max_size=25), st.sampled_from(SHARERS.names()), st.booleans())
def test_no_slot_twice_minima_kept_nothing_above_what_may_be(
    history: list[tuple[str, Any]], sharing: str, lag: bool
) -> None:
    bench = Bench(cluster(6, sharing=sharing), lag=lag)
    for action in history:
        act(bench, action)
        check(bench)


@tries(2)
@given(st.lists(actions, min_size=1, max_size=25))
def test_left_alone_it_comes_to_rest_with_what_was_decided(history: list[tuple[str, Any]]) -> None:
    bench = Bench(cluster(6))
    for action in history:
        act(bench, action)
    bench.run(400, every=1.0)
    check(bench)
    if bench.state.policy.sharing == MaxMin.name:
        return  # what cannot be divided evenly goes round, to who has had least so far: there is no rest
    resting = {
        PipelineState.ACTIVE,
        PipelineState.WAITING,
        PipelineState.PAUSED,
        PipelineState.FAILED,
        PipelineState.KILLED,
    }
    for record in bench.state.pipelines.values():
        assert record.state in resting
        assert set(record.held) == set(record.assigned)
        assert (record.state is PipelineState.ACTIVE) == bool(record.assigned)
        assert record.waiting is not None or record.state is not PipelineState.WAITING
    assert all(found.state is not NodePhase.LEAVING for found in bench.state.nodes.values())
    before = {name: record.serial for name, record in bench.state.pipelines.items()}
    bench.run(60, every=1.0)
    if SHARERS.create(bench.state.policy.sharing).keeps_minima is False or not any(
        record.waiting for record in bench.state.pipelines.values()
    ):
        # nobody waits for a turn: nothing is touched any more
        assert {name: record.serial for name, record in bench.state.pipelines.items()} == before


@tries(2)
@given(st.lists(actions, min_size=1, max_size=25), st.sampled_from(SHARERS.names()))
def test_every_pass_can_be_repeated_from_what_is_kept_of_it(history: list[tuple[str, Any]], sharing: str) -> None:
    bench = Bench(cluster(6, sharing=sharing))
    for action in history:
        act(bench, action)
    for found in bench.passes:
        again = divide(json.loads(json.dumps(found.inputs)))
        assert {name: len(slots) for name, slots in again.slots.items()} == dict(found.shares)
    by_pass = {found.number: found for found in bench.passes}
    for decision in bench.decisions:
        if decision.pass_number is not None:
            assert decision.after == by_pass[decision.pass_number].shares[decision.pipeline]


@tries(1)
@given(st.lists(actions, min_size=1, max_size=15))
def test_the_same_history_gives_the_same_decisions(history: list[tuple[str, Any]]) -> None:
    first, second = Bench(cluster(6)), Bench(cluster(6))
    for bench in (first, second):
        for action in history:
            act(bench, action)
    assert first.decisions == second.decisions
    assert replace(first.state, nodes={}) == replace(second.state, nodes={})
