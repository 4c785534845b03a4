"""What holds for every pipeline, cluster and policy.

A new allocator or placer joins these tests by being registered.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from effort import tries
from penstock.base.errors import BadInputError, Refusal
from penstock.base.files import parse_json, parse_yaml
from penstock.cluster.file import parse_cluster
from penstock.cluster.topology import CPU, MEMORY, Acquisition, Catalogue, acquire
from penstock.dataflow.code import parse_pipeline, pipeline_document
from penstock.dataflow.pipeline import Grouping, Pipeline, gains, stream_rates
from penstock.modelling.library import parse_models, profiles_of
from penstock.planning.files import parse_whole_cluster, read_plan, write_plan
from penstock.planning.placement.placers.packing import Packing
from penstock.planning.plan import Plan
from penstock.planning.planner import SINGLE_STEPS
from penstock.planning.registry import ALLOCATORS, PLACERS
from strategies import Asked, models, pipelines, requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.cluster.topology import Slot
    from penstock.modelling.model import Model
    from penstock.planning.allocation.contract import ThreadBundle
    from penstock.planning.placement.contract import Placement, PlacementRequest, Room

patiently = tries(1, picky=True)  # requests for hundreds of threads are thrown away while they are drawn
turns = st.integers(0, len(ALLOCATORS.names()) - 1)


def pairs(turn: int, *placers: str) -> Iterator[tuple[str, str]]:
    """Every placer (all, unless said) with one allocator, and the next allocator for the next placer.

    Over all turns these are all pairs. An example takes one turn, so that for the price of planning one request with
    every pair several requests are planned, which finds more.
    """
    allocators = ALLOCATORS.names()
    for position, placer in enumerate(placers or PLACERS.names()):
        yield allocators[(position + turn) % len(allocators)], placer


def answer(asked: Asked, allocator: str, placer: str) -> Plan | Refusal:
    note(f"{allocator}+{placer}")
    return asked.planner().plan(asked.rate, ALLOCATORS.create(allocator), PLACERS.create(placer))


def plans(asked: Asked, pairs: Iterable[tuple[str, str]]) -> Iterator[Plan]:
    """Of these pairs, where there is a plan."""
    for pair in pairs:
        found = answer(asked, *pair)
        if isinstance(found, Plan):
            yield found


def with_every_allocator(placer: str) -> Iterator[tuple[str, str]]:
    return product(ALLOCATORS.names(), [placer])


def placed_bundles(plan: Plan) -> Iterator[tuple[Slot, ThreadBundle]]:
    """Where each bundle of the allocation went, for placers that place them whole and in order."""
    waiting = {
        operator.name: [bundle for count, bundle in operator.bundles for _ in range(count)]
        for operator in plan.allocation.operators
    }
    for operator, threads, slot, _ in plan.placement.bundles:
        bundle = waiting[operator].pop(0)
        assert bundle.threads == threads
        yield slot, bundle
    assert not any(waiting.values())


def demands_placed(plan: Plan) -> Iterator[tuple[Slot, float, float]]:
    """(slot, cpu, memory) of every placed bundle, by the average demand of its operator's threads."""
    for operator, threads, slot, _ in plan.placement.bundles:
        wanted = plan.allocation.operator(operator)
        yield slot, threads * wanted.cpu / wanted.threads, threads * wanted.memory / wanted.threads


def cpu_packed(asked: Asked, plan: Plan) -> dict[str, float]:
    """Points of CPU on every node by Eq. 3, thread by thread: what it needs in any case, and what it has to move to and
    from the threads that are not on its node."""
    threads: dict[str, Counter[str]] = {node.name: Counter() for node in plan.cluster.nodes}
    for operator, count, slot, _ in plan.placement.bundles:
        threads[slot.node][operator] += count
    allocated = {operator.name: operator for operator in plan.allocation.operators}
    costs = profiles_of(asked.pipeline, asked.library)
    rates = dict(zip(map(id, asked.pipeline.streams), stream_rates(asked.pipeline, plan.rate), strict=True))
    points: dict[str, float] = {}
    for node, row in threads.items():
        points[node] = 0.0
        for name, count in row.items():
            own = allocated[name]
            streams = [*asked.pipeline.inputs(name), *asked.pipeline.outputs(name)]
            others = [stream.sender if stream.receiver == name else stream.receiver for stream in streams]
            moved = sum(
                rates[id(stream)] / own.threads * (1 - row[other] / allocated[other].threads)
                for stream, other in zip(streams, others, strict=True)
            )
            moving = moved * costs[name].moving_cpu if name in costs else 0.0
            points[node] += count * (100 * (own.cpu - own.moving_cpu) / own.threads + moving)
    return points


# ------------------------------------------------------------------------------ every allocator and placer


def test_the_registered_policies_take_part() -> None:
    assert {"lsa", "mba", "joint", "profiled", "per-node"} <= set(ALLOCATORS.names())
    assert {"round-robin", "rsm", "sam", "joint", "exact", "even-split"} <= set(PLACERS.names())
    assert {"r-storm", "compact", "random", "packing", "eft", "balanced-eft"} <= set(PLACERS.names())


@tries(2, picky=True)
@given(requests(), turns)
def test_what_every_plan_and_every_refusal_keeps(asked: Asked, turn: int) -> None:
    """Planning takes long: one planning serves all checks. The pair noted last is the one at fault."""
    for allocator, placer in pairs(turn):
        found = answer(asked, allocator, placer)
        if isinstance(found, Refusal):
            check_refusal(asked, found)
        else:
            check_threads(asked, found)
            check_prediction(found)
            check_bound(asked, found)
            check_file(asked, found)


def check_refusal(asked: Asked, refusal: Refusal) -> None:
    """It says what is short, of which operator, and by how much."""
    assert refusal.shortages
    for shortage in refusal.shortages:
        assert shortage.operator in asked.pipeline.operators or shortage.kind == "pipeline"
        assert shortage.closest
        assert shortage.needed >= shortage.offered
    assert str(refusal).startswith(f"{refusal.by}: ")


def check_threads(asked: Asked, plan: Plan) -> None:
    """Every thread once, on slots that exist."""
    threads: Counter[str] = Counter()
    for operator, count, slot, _ in plan.placement.bundles:
        assert count >= 1
        assert 0 <= slot.number < plan.cluster.node(slot.node).slots
        threads[operator] += count
    assert threads == {operator.name: operator.threads for operator in plan.allocation.operators}
    assert set(threads) == set(asked.pipeline.operators)


def check_prediction(plan: Plan) -> None:
    """Its parts do not contradict each other."""
    found = plan.prediction
    assert 0 <= found.shuffle.rate <= found.slot_aware.rate * (1 + 1e-9)
    assert -1e-9 <= found.network_cost <= 3
    assert 0 <= found.latency_ms["p50"] <= found.latency_ms["p95"] <= found.latency_ms["p99"]
    assert all(used.cpu >= 0 and used.memory >= 0 for used in found.slots.values())
    assert set(found.slots) == {bundle.slot for bundle in plan.placement.bundles}


def check_bound(asked: Asked, plan: Plan) -> None:
    """No plan within its slots beats the bound: a slot asked for more than it can do, or above 1.0, does not carry
    what the bound counts."""
    carried = plan.prediction.slot_aware.rate >= asked.rate
    within = all(used.cpu <= 1 and used.memory <= 1 for used in plan.prediction.slots.values())
    if carried and within:
        assert plan.fewest_slots <= plan.slots_used


def check_file(asked: Asked, plan: Plan) -> None:
    """Written and read back, it says the same."""
    document = plan.document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        write_plan(plan, path)
        saved = read_plan(path)
    assert saved.threads_by_slot() == plan.placement.by_slot()
    assert parse_pipeline(saved.definition, "plan.json") == asked.pipeline


@patiently
@given(requests(), turns)
def test_same_input_same_plan(asked: Asked, turn: int) -> None:
    for pair in pairs(turn):
        once, again = answer(asked, *pair), answer(asked, *pair)
        if isinstance(once, Refusal) or isinstance(again, Refusal):
            assert once == again
        else:
            assert once.document() == again.document()


# -------------------------------------------------------------------------------------- limits of the placers


@patiently
@given(requests())
def test_sam_keeps_slots_within_limits_and_exclusive_ones_exclusive(asked: Asked) -> None:
    for plan in plans(asked, with_every_allocator("sam")):
        held: dict[Slot, list[ThreadBundle]] = {}
        for slot, bundle in placed_bundles(plan):
            held.setdefault(slot, []).append(bundle)
        for bundles in held.values():
            assert sum(bundle.cpu for bundle in bundles) <= 1 + 1e-6
            assert sum(bundle.memory for bundle in bundles) <= 1 + 1e-6
            if any(bundle.exclusive for bundle in bundles):
                assert len(bundles) == 1


@patiently
@given(requests())
def test_rsm_keeps_memory_of_slots_and_cpu_of_nodes(asked: Asked) -> None:
    for plan in plans(asked, with_every_allocator("rsm")):
        memory_of_slots: dict[Slot, float] = {}
        cpu_of_nodes: dict[str, float] = {}
        for slot, cpu, memory in demands_placed(plan):
            memory_of_slots[slot] = memory_of_slots.get(slot, 0.0) + memory
            cpu_of_nodes[slot.node] = cpu_of_nodes.get(slot.node, 0.0) + cpu
        assert all(amount <= 1 + 1e-6 for amount in memory_of_slots.values())
        assert all(amount <= plan.cluster.node(name).slots + 1e-6 for name, amount in cpu_of_nodes.items())


def above(amount: float, limit: float) -> bool:
    return amount > limit * (1 + 1e-6) + 1e-6


@tries(2, picky=True)
@given(requests(), turns)
def test_hard_limits_of_nodes_and_slots(asked: Asked, turn: int) -> None:
    """For placers that look at every dimension; round-robin is blind to demands in a plan, as published."""
    aware = [name for name in PLACERS.names() if PLACERS.create(name).whole_cluster and name != "round-robin"]
    slot_memory = asked.planner().slot_memory_mb
    for plan in plans(asked, pairs(turn, *aware)):
        memory_of_slots: dict[Slot, float] = {}
        cpu_of_nodes: dict[str, float] = {}
        for slot, cpu, memory in demands_placed(plan):
            memory_of_slots[slot] = memory_of_slots.get(slot, 0.0) + slot_memory * memory
            cpu_of_nodes[slot.node] = cpu_of_nodes.get(slot.node, 0.0) + 100 * cpu
        for slot, amount in memory_of_slots.items():
            node = plan.cluster.node(slot.node)
            assert not above(amount, node.capacity[MEMORY] / node.slots)
        if plan.placement.placer == "packing":  # which counts what co-location saves
            cpu_of_nodes = cpu_packed(asked, plan)
        for node in plan.cluster.nodes:
            held = sum(amount for slot, amount in memory_of_slots.items() if slot.node == node.name)
            assert not above(held, node.capacity[MEMORY])
            if plan.placement.placer != "r-storm":  # whose rule lets cpu go above
                assert not above(cpu_of_nodes.get(node.name, 0.0), node.capacity[CPU])


class OneByOne:
    """`packing`, saying nothing of how many slots are missing."""

    name: ClassVar[str] = "packing"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        answer = Packing().place(request, room)
        return replace(answer, slots_missing=1) if isinstance(answer, Refusal) else answer


@patiently
@given(requests())
def test_growth_by_what_packing_says_is_missing_ends_where_growth_one_by_one_does(asked: Asked) -> None:
    assume(isinstance(asked.offer, Catalogue))
    for allocator in ("profiled", "lsa"):
        policy = ALLOCATORS.create(allocator)
        plan, slow = (asked.planner().plan(asked.rate, policy, placer) for placer in (Packing(), OneByOne()))
        if isinstance(plan, Plan) and isinstance(slow, Plan):
            assert plan.slots_asked <= slow.slots_asked
            if slow.growth <= SINGLE_STEPS:  # beyond, strides double and take it that more slots never hurt
                assert plan.slots_asked == slow.slots_asked
        else:
            assert isinstance(plan, Refusal) == isinstance(slow, Refusal)


@tries(4, picky=True)
@given(asked=requests())
def test_mba_and_sam_support_the_planned_rate(asked: Asked) -> None:
    plan = answer(asked, "mba", "sam")
    assume(isinstance(plan, Plan))
    assert isinstance(plan, Plan)
    assert plan.prediction.slot_aware.rate >= asked.rate * (1 - 1e-6)


@patiently
@given(asked=requests())
def test_shuffled_streams_support_the_shuffle_rate(asked: Asked) -> None:
    shuffled = Pipeline.of(
        "random",
        asked.pipeline.operators.values(),
        [stream.model_copy(update={"grouping": Grouping.SHUFFLE, "key": None}) for stream in asked.pipeline.streams],
    )
    again = Asked(shuffled, asked.library, asked.offer, asked.rate)
    for plan in plans(again, with_every_allocator("round-robin")):
        assert plan.prediction.declared.rate == pytest.approx(plan.prediction.shuffle.rate, rel=1e-6, abs=1e-6)


# ------------------------------------------------------------------------------------------------ the parts


@tries(4)
@given(pipelines())
def test_gains_are_the_sum_over_paths(pipeline: Pipeline) -> None:
    def factor(operator: str) -> float:
        """Of every path from a source the product of its selectivities, added up."""
        if operator in pipeline.sources:
            return 1.0
        return sum(stream.selectivity * factor(stream.sender) for stream in pipeline.inputs(operator))

    def constant(operator: str) -> float:
        return sum(s.selectivity * constant(s.sender) + s.constant for s in pipeline.inputs(operator))

    for name, gain in gains(pipeline).items():
        assert gain.factor == pytest.approx(factor(name))
        assert gain.constant == pytest.approx(constant(name))


@tries(4)
@given(pipelines())
def test_pipelines_read_back(pipeline: Pipeline) -> None:
    document = json.loads(json.dumps(pipeline_document(pipeline), allow_nan=False))
    assert parse_pipeline(document, "p.json") == pipeline


@tries(4)
@given(models("m"), st.integers(0, 80), st.floats(0, 400))
def test_models_answer_between_their_points(model: Model, threads: int, rate: float) -> None:
    rates = [point.rate for point in model.points]
    assert 0 <= model.rate(threads) <= max(rates)
    assert model.rate(model.peak_threads) == pytest.approx(max(rates), rel=1e-9)
    assert model.peak_rate == max(rates)
    forgiven = 1e-9 * max(rates)
    if rate <= max(rates) + forgiven:
        count = model.threads_for(rate)
        assert count == min(point.threads for point in model.points if point.rate >= rate - forgiven)
        assert model.rate(count) >= rate - forgiven
    else:
        with pytest.raises(BadInputError, match="one slot supports at most"):
            model.threads_for(rate)


@tries(4)
@given(st.integers(1, 300), st.lists(st.integers(1, 32), min_size=1, max_size=5))
def test_machines_cover_the_slots(slots: int, sizes: list[int]) -> None:
    cover, exact = acquire(slots, sizes), acquire(slots, sizes, Acquisition.EXACT)
    for taken in (cover, exact):
        assert set(taken) <= set(sizes)
        assert slots <= sum(taken) < slots + max(sizes)
        assert taken == sorted(taken, reverse=True)
    # without machines of one slot the greedy rule may buy more than the covering one: 13 of [3, 14] as 5 x 3
    if 1 in sizes:
        assert sum(exact) == slots


# ------------------------------------------------------------------------------- files nobody vouches for

KEYS = st.sampled_from(
    (
        *("name", "operators", "streams", "nodes", "pipelines", "models", "points", "threads", "rate", "cpu", "memory"),
        *("memory_mb", "kind", "from", "to", "slots", "count", "rack", "a", "dimensions", "resources", "selectivity"),
        *("profiles", "sojourn_seconds", "processing_cpu", "moving_cpu", "bound"),
    )
)
MARKS = st.sampled_from("ab1-:{}[],\"'\n &*!#|>?%@`~.<=\t\\é\x00\x85\ufeff")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["source", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def complaint(parse: Any, given: Any) -> str | None:
    """What is wrong with the input; None where nothing is. Any other error fails the test."""
    try:
        parse(given, "file")
    except BadInputError as error:
        return str(error)
    return None


def assert_one_line(message: str | None) -> None:
    if message is not None:
        assert message.startswith("file: ")
        assert "\n" not in message


@pytest.mark.parametrize("parse", [parse_pipeline, parse_cluster, parse_models, parse_whole_cluster])
@tries(4)
@given(data=st.dictionaries(KEYS, VALUES, max_size=4) | VALUES)
def test_any_contents_are_read_or_refused_in_one_line(parse: Any, data: Any) -> None:
    assert_one_line(complaint(parse, data))


@pytest.mark.parametrize("parse", [parse_yaml, parse_json])
@tries(4)
@given(text=st.text(alphabet=MARKS, max_size=25) | st.text())
def test_any_text_is_read_or_refused_in_one_line(parse: Any, text: str) -> None:
    assert_one_line(complaint(parse, text))
