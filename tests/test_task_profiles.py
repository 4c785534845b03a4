"""What a tuple costs: classes of operators, conversion, files, and what a plan makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from adapters import SLOT_MEMORY_MB, chain, cluster, model, source
from effort import tries
from penstock.base.errors import BadInputError, RefusedError
from penstock.dataflow.pipeline import Operator
from penstock.modelling.library import (
    ModelLibrary,
    models_document,
    parse_models_and_profiles,
    read_models_and_profiles,
)
from penstock.modelling.task_profile import (
    MOST_THREADS,
    Bound,
    TaskProfile,
    bound_of,
    model_of,
    profile_of,
    threads_per_tuple,
)
from strategies import models, profiles

EXAMPLES = Path(__file__).parents[1] / "examples"


def costs(name: str = "A", **given: Any) -> TaskProfile:
    nothing = {"sojourn_seconds": 0, "processing_cpu": 0, "moving_cpu": 0, "memory_mb": 0}
    return TaskProfile.model_validate({"name": name, **nothing, **given})


# -------------------------------------------------------------------------------------------------- classes


@pytest.mark.parametrize(
    ("given_costs", "bound"),
    [
        # threads per tuple/s: cpu 0.25/100 = .0025, io 0.01/10 = .001, sojourn .001, memory 1/512 = .00195
        ({"processing_cpu": 0.25, "moving_cpu": 0.01, "sojourn_seconds": 0.001, "memory_mb": 1}, Bound.CPU),
        ({"processing_cpu": 0.25, "moving_cpu": 0.04, "sojourn_seconds": 0.001, "memory_mb": 1}, Bound.IO),
        ({"processing_cpu": 0.25, "moving_cpu": 0.01, "sojourn_seconds": 0.01, "memory_mb": 1}, Bound.SOJOURN),
        ({"processing_cpu": 0.25, "moving_cpu": 0.01, "sojourn_seconds": 0.001, "memory_mb": 2}, Bound.MEMORY),
        # what is said counts, whatever the costs are
        ({"processing_cpu": 0.25, "memory_mb": 0.001, "bound": "memory"}, Bound.MEMORY),
    ],
)
def test_what_binds_an_operator(given_costs: dict[str, Any], bound: Bound) -> None:
    assert bound_of(threads_per_tuple(costs(**given_costs))) is bound


def test_limits_of_a_thread_are_options() -> None:
    library = ModelLibrary.of([], [costs(moving_cpu=0.02, bound="io"), costs("B", memory_mb=1, bound="memory")])
    pipeline = chain(source(), Operator(name="A"), Operator(name="B"))
    # io: 1000 x 0.02 = 20 points, at 10 a thread 2, at 5 a thread 4; memory: 1000 MB, at 512 a thread 2, at 100 ten
    for allocator, threads in (("profiled", (2, 2)), ("profiled:io_share=0.05,memory_mb=100", (4, 10))):
        rows = penstock.plan(pipeline, 1000, allocator=allocator, placer="packing", models=library).document()[
            "operators"
        ]
        assert (rows["A"]["threads"], rows["B"]["threads"]) == threads
    with pytest.raises(BadInputError, match=r"allocator 'profiled': io_share: .*greater than 0"):
        penstock.plan(pipeline, 1000, allocator="profiled:io_share=0", models=library)


# ----------------------------------------------------------------------------------------------- conversion


def test_a_slot_model_becomes_the_costs_of_its_single_thread() -> None:
    # one thread: 10/s with 0.2 of a core and 0.1 of 3584 MB; the 4 threads that do only 20/s are not looked at
    found = profile_of(model("A", (1, 10, 0.2, 0.1), (4, 20, 0.9, 0.3)), SLOT_MEMORY_MB, handled=2)
    assert (found.sojourn_seconds, found.processing_cpu, found.moving_cpu) == (0.1, 2.0, 0.0)
    assert found.memory_mb == pytest.approx(0.1 * 3584 / 10 / 2)
    assert found.bound is Bound.SOJOURN
    assert found.provenance["moving_cpu"].startswith("unknown")


def test_costs_become_a_slot_that_rises_straight_to_its_limit() -> None:
    # a thread waits 0.1 s a tuple: 10/s; a core does 100 / 4 = 25/s, so 3 threads fill it
    found = model_of(costs(sojourn_seconds=0.1, processing_cpu=4, memory_mb=8), 4000, handled=2)
    assert [point.threads for point in found.points] == [1, 2, 3]
    assert [point.rate for point in found.points] == pytest.approx([10, 20, 25])
    assert [point.cpu for point in found.points] == pytest.approx([0.4, 0.8, 1.0])
    # 25/s x 2 tuples handled x 8 MB = 400 of 4000 MB
    assert found.memory(3) == pytest.approx(0.1)
    # with 100 MB a slot does 100 / 16 = 6.25/s
    assert model_of(costs(sojourn_seconds=0.1, memory_mb=8), 100, handled=2).peak_rate == pytest.approx(6.25)
    # nothing but waiting: as many threads as a slot is given
    assert model_of(costs(sojourn_seconds=0.1), 100).peak_rate == pytest.approx(10 * MOST_THREADS)


@pytest.mark.parametrize(
    ("profile", "complaint"),
    [
        (costs(), "profile 'A': every cost is 0, so nothing says what a thread can do"),
        (costs(processing_cpu=1, bound="sojourn"), "profile 'A': a cost of bound 'sojourn' is 0"),
        (costs(sojourn_seconds=1e-320), "profile 'A': its costs are too small or too large"),
    ],
)
def test_costs_that_make_no_slot(profile: TaskProfile, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        penstock.plan(chain(source(), Operator(name="A")), 10, models=ModelLibrary.of([], [profile]))


def test_a_model_too_slow_to_compute_costs_from() -> None:
    with pytest.raises(BadInputError, match="model 'A': 1e-310 tuples/s of one thread are too few"):
        profile_of(model("A", (1, 1e-310, 0.1, 0.1)), SLOT_MEMORY_MB)


@tries(4)
@given(models("m"), st.floats(1, 5))
def test_a_thread_costs_the_same_after_conversion(found: penstock.Model, handled: float) -> None:
    there = profile_of(found, SLOT_MEMORY_MB, handled)
    back = model_of(there, SLOT_MEMORY_MB, handled)
    assert back.rate(1) == pytest.approx(found.rate(1))
    assert back.cpu(1) == pytest.approx(found.cpu(1))
    assert back.memory(1) == pytest.approx(found.memory(1))


@tries(4)
@given(profiles("p"))
def test_threads_by_costs_and_by_the_slot_they_make_agree(found: TaskProfile) -> None:
    slot = model_of(found, SLOT_MEMORY_MB)
    per_tuple = max(threads_per_tuple(found).values())
    for point in slot.points[:-1]:
        assert point.rate * per_tuple == pytest.approx(point.threads)
        assert point.cpu <= 1 + 1e-9
        assert point.memory <= 1 + 1e-9


# ----------------------------------------------------------------------------------------------------- files


def test_profiles_read_back(tmp_path: Path) -> None:
    path = tmp_path / "both.json"
    both = [model("A", (1, 1, 0.1, 0.1))], [costs("A", sojourn_seconds=1), costs("B", memory_mb=1, bound="memory")]
    path.write_text(json.dumps(models_document(both[0], "why", both[1])))
    assert read_models_and_profiles(path) == both
    library = penstock.models(path)
    assert (set(library.profiles), "A" in library.models, "pi" in library.models) == ({"A", "B"}, True, True)


FULL = {"sojourn_seconds": 1, "processing_cpu": 1, "moving_cpu": 1, "memory_mb": 1}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"profiles": {"A": {}}}, "m: profiles.A.sojourn_seconds: Field required"),
        ({"profiles": {"A": {**FULL, "moving_cpu": -1}}}, "m: profiles.A.moving_cpu: .*greater than or equal to 0"),
        ({"profiles": {"A": {**FULL, "moving_cpu": "1"}}}, "m: profiles.A.moving_cpu: .*number"),
        ({"profiles": {"A": {**FULL, "bound": "disk"}}}, "m: profiles.A.bound: .*'cpu', 'io', 'sojourn' or 'memory'"),
        (
            {"profiles": {"A": {**FULL, "procesing_cpu": 1}}},
            "unknown key 'procesing_cpu'; did you mean 'process",
        ),
        ({"profiles": {"A": {**FULL, "name": "B"}}}, "unknown key 'name'; a profile is named by its key"),
        ({"profiles": {"A": 3}}, "m: profiles.A: "),
        ({"profiles": [1]}, "m: profiles: "),
        ({"profiles": {}}, "m: models: expected at least one model or profile"),
    ],
)
def test_bad_profiles(data: Any, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        parse_models_and_profiles(data, "m")


def test_a_profile_given_twice(tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        (tmp_path / name).write_text(json.dumps({"profiles": {"A": FULL}}))
    with pytest.raises(BadInputError, match="profile 'A' is given twice"):
        penstock.models(tmp_path)


# ----------------------------------------------------------------------------------------------------- plans


def test_the_example_fits_two_small_machines() -> None:
    """The worked case of the packing, from files: split, counts and spout on one machine, both parses on the other."""
    two_cores = cluster([2] * 4)
    plan = penstock.plan(
        EXAMPLES / "word-count.yaml",
        1000,
        allocator="profiled",
        placer="packing",
        models=EXAMPLES / "profiles.json",
        cluster=two_cores,
    )
    # io 1000 x .01 / 10; parse 1000 x max(.12 / 100, .02 / 10); cpu 1000 x .05 / 100; memory 4000 x .3 / 512 = 2.3
    threads = {name: row["threads"] for name, row in plan.document()["operators"].items()}
    assert threads == {"spout": 1, "parse": 2, "split": 1, "count": 3}
    nodes: dict[str, set[str]] = {}
    for slot, row in plan.placement.by_slot().items():
        nodes.setdefault(slot.node, set()).update(row)
    assert nodes == {"v0": {"split", "count", "spout"}, "v1": {"parse"}}
    # v0: split 50 + its 1000/s from parse x .02 = 70, counts 80 all local, spout 20 + 1000 x .01 = 30: 180 of 200
    # v1: parse 120 + (1000 + 1000) x .02 = 160
    assert plan.prediction.nodes["v0"].cpu == pytest.approx(1.8)
    assert plan.prediction.nodes["v1"].cpu == pytest.approx(1.6)


def test_slots_are_counted_without_what_co_location_can_save() -> None:
    # processing 100 points each in any case; moving 1000 x 0.05 = 50 each when apart: 2 slots, not 3
    library = ModelLibrary.of([], [costs(name, processing_cpu=0.1, moving_cpu=0.05, bound="cpu") for name in "AB"])
    pipeline = chain(source("A"), Operator(name="B"))
    plan = penstock.plan(pipeline, 1000, allocator="profiled", placer="packing", models=library)
    assert (plan.allocation.slots, plan.slots_asked, len(plan.cluster.nodes)) == (2, 2, 1)
    assert plan.allocation.operator("A").cpu == pytest.approx(1.5)
    assert plan.prediction.nodes["n1"].cpu == pytest.approx(2.0)
    # apart, every tuple is moved
    apart = penstock.plan(
        pipeline, 1000, allocator="profiled", placer="round-robin", models=library, cluster=cluster([1, 1])
    )
    assert [used.cpu for used in apart.prediction.nodes.values()] == pytest.approx([1.5, 1.5])


def test_without_profiles_one_thread_of_the_slot_model_counts_and_the_plan_says_so() -> None:
    plan = penstock.plan("linear", 50, allocator="profiled", placer="packing")
    assert plan.allocation.operator("B").threads == 25  # 2/s a thread
    assert any(warning.startswith("no task profile for X, P, F, B, T: what a tuple costs") for warning in plan.warnings)
    assert not any("no task profile" in warning for warning in penstock.plan("linear", 50, placer="packing").warnings)


def test_more_slots_than_one_plan_holds() -> None:
    # one thread, as the profile says, but 1e9 cores of processing
    library = ModelLibrary.of([], [costs(processing_cpu=1e9, sojourn_seconds=1e-3, bound="sojourn")])
    for allocator in ("profiled", "per-node", "per-node:nodes=3"):
        with pytest.raises(RefusedError, match=r"needs .* slots, closest is the limit of one plan"):
            penstock.plan(chain(source(), Operator(name="A")), 1000, allocator=allocator, models=library)


def test_capacity_with_profiles() -> None:
    # A: 0.1 points a tuple; a machine of one core does 1000/s; at 1000/s the source's 10 points do not fit beside it
    library = ModelLibrary.of([], [costs(processing_cpu=0.1, bound="cpu")])
    found = penstock.capacity(
        chain(source(), Operator(name="A")), cluster([1]), allocator="profiled", placer="packing", models=library
    )["profiled+packing"]
    assert (found.allocated, found.placed) == (1000, 900)


# -------------------------------------------------------------------------------------------------- per node


def test_one_thread_for_every_node() -> None:
    for nodes in (1, 3):
        plan = penstock.plan("diamond", 20, allocator="per-node", placer="round-robin", cluster=cluster([8] * nodes))
        modelled = [operator for operator in plan.allocation.operators if not operator.is_end]
        assert {operator.threads for operator in modelled} == {nodes}
    # rented: 60 tuples/s of pi need 51 % of a core; a hundred times that 52 cores, 7 machines of 8
    pipeline = chain(source(), Operator(name="P", model="pi"))
    for rate, threads in ((60, 1), (6000, 7)):
        plan = penstock.plan(pipeline, rate, allocator="per-node", placer="round-robin")
        assert (plan.allocation.operator("P").threads, len(plan.cluster.nodes)) == (threads, threads)
    assert penstock.plan(pipeline, 60, allocator="per-node:nodes=5").allocation.operator("P").threads == 5
