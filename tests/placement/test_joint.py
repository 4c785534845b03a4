"""The joint allocator and placer: fewer slots than MBA with SAM, at the rate, with no slot above 100 %."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from place_builders import bench_module

import penstock
from adapters import chain, model, sink, source
from effort import tries
from penstock.cluster.topology import find_catalogue
from penstock.dataflow.pipeline import Operator
from penstock.modelling.library import ModelLibrary, profiles_of
from penstock.planning.allocation import joint as joint_module
from penstock.planning.allocation import joint_problem as joint_solver
from penstock.planning.allocation.contract import Need, OperatorAllocation, ThreadBundle
from penstock.planning.allocation.joint import JointPacking
from penstock.planning.allocation.joint_problem import Fixed, JointLayout, Problem, is_right, loads, use
from penstock.planning.allocation.joint_search import thinned
from penstock.planning.allocation.mba import ModelBased
from penstock.planning.placement.placers.joint import Joint as JointPlacer
from penstock.planning.placement.placers.sam import Sam
from penstock.planning.plan import Plan
from penstock.planning.planner import Planner
from penstock.planning.prediction.placement import moving_cpu
from strategies import Asked, requests

generated = bench_module("joint_quality").generated


def worst(plan: Plan) -> float:
    return max(max(used.cpu, used.memory) for used in plan.prediction.slots.values())


@pytest.mark.parametrize(
    ("pipeline", "rate", "mba", "slots"),
    [
        ("linear", 50, 4, 3),
        ("linear", 100, 7, 6),
        ("linear", 200, 15, 11),
        ("diamond", 50, 5, 4),
        ("diamond", 100, 10, 8),
        ("diamond", 200, 20, 15),
        ("star", 50, 5, 4),
        ("star", 100, 9, 7),
        ("star", 200, 18, 13),
    ],
)
def test_the_nine_micro_cases(pipeline: str, rate: float, mba: int, slots: int) -> None:
    assert penstock.plan(pipeline, rate).slots_asked == mba
    plan = penstock.plan(pipeline, rate, allocator="joint", placer="joint")
    assert plan.slots_asked == plan.slots_used == slots
    assert plan.prediction.slot_aware.rate >= rate * (1 - 1e-9)
    assert worst(plan) <= 1 + 1e-6
    for_shuffle = penstock.plan(pipeline, rate, allocator="joint:routing=shuffle", placer="joint", routing="shuffle")
    assert for_shuffle.prediction.shuffle.rate >= rate * (1 - 1e-9)
    assert worst(for_shuffle) <= 1 + 1e-6


def test_a_slot_that_mba_and_sam_overload() -> None:
    # diamond at 200: a one-thread partial bundle is charged for its rest and fed its whole peak
    assert worst(penstock.plan("diamond", 200)) > 1.3
    assert worst(penstock.plan("diamond", 200, allocator="joint", placer="joint")) <= 1 + 1e-6


def test_random_pipelines_against_the_bound_and_mba() -> None:
    draw = random.Random(0)  # noqa: S311 - the same pipelines every time
    gaps = []
    for _ in range(20):
        pipeline, library, rate = generated(draw)
        planner = Planner(pipeline, library, find_catalogue("azure-d"))
        plan = planner.plan(rate, JointPacking(solver_nodes=0), JointPlacer())
        published = planner.plan(rate, ModelBased(), Sam())
        assert isinstance(plan, Plan)
        assert isinstance(published, Plan)
        assert plan.slots_asked <= published.slots_asked
        assert plan.gap is not None
        gaps.append(plan.gap)
    # the bound is not always reachable; the bench proves the optimum where it is not
    assert np.mean(gaps) < 0.03


@tries(1, picky=True)
@given(requests())
def test_no_slot_above_one_and_the_rate_supported(asked: Asked) -> None:
    planner = asked.planner()
    plan = planner.plan(asked.rate, JointPacking(solver_nodes=0), JointPlacer())
    if not isinstance(plan, Plan):
        return
    assert plan.prediction.slot_aware.rate >= asked.rate * (1 - 1e-6)
    # what the placement makes tuples cost on their way comes on top: no slot model knows it
    profiles = profiles_of(asked.pipeline, asked.library)
    moving = moving_cpu(asked.pipeline, profiles, plan.placement.by_slot(), asked.rate)
    assert max(slot.cpu - moving.get(where, 0.0) for where, slot in plan.prediction.slots.items()) <= 1 + 1e-6
    assert max(slot.memory for slot in plan.prediction.slots.values()) <= 1 + 1e-6
    published = planner.plan(asked.rate, ModelBased(), Sam())
    if isinstance(published, Plan) and worst(published) <= 1:
        assert plan.slots_used <= published.slots_used


@pytest.mark.parametrize(("rate", "slots"), [(111.0, 23), (121.0, 25)])
def test_copies_lose_no_slot_by_rounding(rate: float, slots: int) -> None:
    # 5 tuples/s a slot: two equal parts of 121 / 2 need 13 slots each, the whole 25
    pipeline = chain(source("s"), Operator(name="a"), sink("k"))
    library = ModelLibrary.of([model("a", (1, 5.0, 0.0, 0.0))])
    planner = Planner(pipeline, library, find_catalogue("azure-d"))
    plan = planner.plan(rate, JointPacking(solver_nodes=0), JointPlacer())
    assert isinstance(plan, Plan)
    assert plan.slots_used == slots == math.ceil(rate / 5)


@pytest.mark.parametrize("routing", ["slot-aware", "shuffle"])
@pytest.mark.parametrize("rate", [1_000.0, 30_000.0])
def test_large_cases_are_copies_of_a_part(rate: float, routing: str) -> None:
    plan = penstock.plan("linear", rate, allocator=f"joint:routing={routing}", placer="joint", routing=routing)
    assert plan.slots_asked < penstock.plan("linear", rate).slots_asked
    assert plan.gap is not None
    assert plan.gap < 0.15
    assert worst(plan) <= 1 + 1e-6
    supported = plan.prediction.shuffle if routing == "shuffle" else plan.prediction.slot_aware
    assert supported.rate >= rate * (1 - 1e-9)
    assert len(plan.allocation.patterns) < 100


def test_it_plans_without_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_module, "solver_is_installed", lambda: False)
    assert penstock.plan("linear", 200, allocator="joint", placer="joint").slots_asked == 11


# ------------------------------------------------------------------------------------------------ by hand


def test_loads_and_use() -> None:
    # 1 thread does 10/s at 0.4 cpu; 15/s over 10 + 10 is a load of 0.75, so 0.3 on each slot, 0.5 beside a fixed 0.2
    problem = Problem([model("m", (1, 10, 0.4, 0.1))], [15.0], [Fixed(1, 0.2, 0.0)])
    layout = JointLayout(np.array([[1], [1]]), np.array([[1], [0]]))
    assert loads(problem, layout.choice).tolist() == [0.75]
    assert use(problem, layout)[:, 0].tolist() == pytest.approx([0.5, 0.3])
    assert is_right(problem, layout)
    assert not is_right(problem, JointLayout(np.array([[1], [0]]), layout.held))


def test_bundles_nobody_needs_are_dropped() -> None:
    problem = Problem([model("m", (1, 10, 0.4, 0.1))], [10.0], [])
    kept = thinned(problem, JointLayout(np.array([[1], [1], [1]]), np.zeros((3, 0), dtype=np.int64)))
    assert kept.slots == 1


def test_a_mixture_of_sizes_where_one_size_does_not_do() -> None:
    # 1 thread: 10/s at 0.2 cpu; 2 threads: 12/s at 1.0. 22/s on two slots: 10 + 12, not 12 + 12 nor 10 + 10
    operators, patterns = JointPacking().allocate_together(
        [Need("a", 22.0, model("m", (1, 10, 0.2, 0), (2, 12, 1.0, 0)))]
    )
    assert sum(count for count, _ in patterns) == 2
    assert sorted(bundle.threads for count, bundle in operators[0].bundles for _ in range(count)) == [1, 2]


def test_threads_too_large_for_a_slot_are_refused_by_the_placer() -> None:
    given_operator = OperatorAllocation("d", 1.0, ((2, ThreadBundle(1, 1.5, 0.0)),), "declared")
    operators, patterns = JointPacking().allocate_together([given_operator])
    assert operators == [given_operator]
    assert patterns == ((2, (("d", 1),)),)


@pytest.mark.parametrize(("slots", "possible"), [(1, False), (2, True)])
def test_the_solver_proves_what_is_impossible(slots: int, possible: bool) -> None:
    pytest.importorskip("scipy")
    problem = Problem([model("m", (1, 10, 0.4, 0.1))], [10.0], [Fixed(2, 0.45, 0.0)])
    # 0.45 + 0.45 + 0.4 is above one slot
    answer = joint_solver.solve(problem, slots, 1000)
    assert isinstance(answer, JointLayout) is possible
    if not possible:
        assert answer is joint_solver.NoLayout.IMPOSSIBLE


def test_patterns_cover_the_rates() -> None:
    pytest.importorskip("scipy")
    # a slot takes either one a and one b (0.6 + 0.4), or two of nothing else: 5 slots for 5 x 10/s of both
    problem = Problem([model("a", (1, 10, 0.6, 0)), model("b", (1, 10, 0.4, 0))], [50.0, 50.0], [])
    found = joint_solver.cover(problem, np.ones(2), 1000)
    assert found is not None
    assert sum(found[1]) == 5
