"""Requests that cannot be planned: what is refused for want of room, and what is bad input."""

from __future__ import annotations

import math
from typing import Any

import pytest

import penstock
from adapters import SLOT_MEMORY_MB, chain, cluster, declared, model, source
from penstock.base.errors import BadInputError, Refusal, RefusedError
from penstock.cluster.file import parse_cluster
from penstock.dataflow.pipeline import Operator, Pipeline
from penstock.modelling.library import ModelLibrary
from penstock.planning.registry import ALLOCATORS, PLACERS


def refusal(pipeline: Pipeline, offer: Any, placer: str, library: ModelLibrary | None = None) -> Refusal:
    with pytest.raises(RefusedError) as caught:
        penstock.plan(pipeline, 10, cluster=offer, placer=placer, models=library)
    assert str(caught.value) == str(caught.value.refusal)
    return caught.value.refusal


LARGE = {"threads": 1, "cpu": 50, "memory_mb": 2 * SLOT_MEMORY_MB}
"""One thread that needs the memory of two slots."""


@pytest.mark.parametrize("placer", [name for name in PLACERS.names() if name != "round-robin"])
def test_a_thread_that_fits_no_node(placer: str) -> None:
    found = refusal(declared(**LARGE), cluster([2, 2]), placer)
    (shortage,) = found.shortages
    assert shortage.operator == "A"
    assert "memory" in shortage.resource
    # in megabytes or in slots, twice what there is
    assert shortage.needed == pytest.approx(2 * shortage.offered)
    assert shortage.closest.removeprefix("node ").removeprefix("slot ").startswith("v")
    assert f"needs {shortage.needed:g} {shortage.resource}, closest is {shortage.closest}" in str(found)
    assert found.by == placer
    # more slots of the same kind would not help
    assert not found.more_slots_may_help


@pytest.mark.parametrize("placer", [name for name in PLACERS.names() if name != "round-robin"])
def test_a_thread_that_fits_no_rented_machine_is_refused_without_growing(placer: str) -> None:
    with pytest.raises(RefusedError, match=f"{placer}: operator 'A' needs"):
        penstock.plan(declared(**LARGE), 10, placer=placer)


@pytest.mark.parametrize("placer", PLACERS.names())
def test_a_cluster_that_is_too_small(placer: str) -> None:
    with pytest.raises(
        RefusedError, match="pipeline 'linear' needs 14 slots, closest is the whole cluster with 4"
    ) as caught:
        penstock.plan("linear", 200, cluster=cluster([4]), placer=placer)
    assert caught.value.refusal.by == "mba"
    assert caught.value.refusal.more_slots_may_help


def test_a_full_bundle_without_an_empty_slot() -> None:
    # A fills the one slot exactly; the source has no room left: 0.10 cpu, 0.15 memory
    library = ModelLibrary.of([model("A", (1, 10, 0.5, 0.5))])
    found = refusal(chain(source(), Operator(name="A")), cluster([1]), "sam", library)
    assert [shortage.operator for shortage in found.shortages] in (["A"], ["source"])


def test_more_threads_than_one_plan_holds() -> None:
    with pytest.raises(RefusedError, match=r"pipeline 'linear' needs .* threads, closest is the limit of one plan"):
        penstock.plan("linear", 1e12)


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf])
def test_rates(rate: float) -> None:
    with pytest.raises(BadInputError, match="rate: expected a finite number of tuples/s above 0, found"):
        penstock.plan("linear", rate)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"allocator": "mbaa"}, r"unknown allocator 'mbaa'; did you mean 'mba'\? known: lsa, mba"),
        ({"allocator": ""}, "unknown allocator ''; known: lsa, mba"),
        ({"placer": "sma"}, r"unknown placer 'sma'; did you mean 'sam'\? known: round-robin, rsm, sam"),
        ({"placer": "rsm:weight=1"}, "placer 'rsm': unknown option 'weight'; .*known: demand, cpu_weight"),
        ({"placer": "rsm:cpu_weight"}, "placer 'rsm': expected option=value, found 'cpu_weight'"),
        ({"placer": "rsm:cpu_weight=much"}, "placer 'rsm': cpu_weight: .*number"),
        ({"placer": "rsm:demand=two"}, "placer 'rsm': demand: .*'average' or 'single-thread'"),
        ({"catalogue": "azur-d"}, r"unknown catalogue 'azur-d'; did you mean 'azure-d'\? known: aws-m5"),
        ({"catalogue": "none.yaml"}, "none.yaml: cannot be read: No such file"),
        ({"cluster": "none.yaml"}, "none.yaml: cannot be read: No such file"),
        ({"models": "none.json"}, "none.json: cannot be read: No such file"),
        ({"acquisition": "covr"}, r"unknown acquisition 'covr'; did you mean 'cover'\? known: cover, exact"),
        ({"routing": "shuffel"}, r"unknown routing 'shuffel'; did you mean 'shuffle'\? known: shuffle, slot-aware"),
        ({"batch_interval_ms": -1}, "batch interval: expected milliseconds of at least 0, found -1"),
        ({"batch_interval_ms": math.nan}, "batch interval: expected milliseconds of at least 0, found nan"),
        ({"batch_interval_ms": math.inf}, "batch interval: expected milliseconds of at least 0, found inf"),
    ],
)
def test_unknown_names_list_the_known(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        penstock.plan("linear", 50, **options)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("liner", r"unknown pipeline 'liner'; did you mean 'linear'\? known: app-finance, .*or give a file"),
        ("nothing.yaml", "nothing.yaml: cannot be read: No such file"),
        ("no_such_module:p", "pipeline 'no_such_module:p': ModuleNotFoundError: No module named 'no_such_module'"),
        ("json:nothing", "pipeline 'json:nothing': .*no attribute 'nothing'"),
        ("json:loads", "'json:loads': expected a Pipeline, a builder, or a function that makes one .* found function"),
        ("micro-linear:bound=disk", "pipeline 'micro-linear': bound: "),
        (":p", "unknown pipeline ':p'"),
        ("json:", "unknown pipeline 'json:'"),
        (".json:p", "pipeline '.json:p': "),
        ("a" * 5000, "unknown pipeline 'aaa"),
    ],
)
def test_unknown_pipelines(name: str, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        penstock.find_pipeline(name)


def test_an_operator_without_a_model() -> None:
    with pytest.raises(BadInputError, match="operator 'A': no model named 'A'; known: parse_xml"):
        penstock.plan(chain(source(), Operator(name="A")), 10)


def test_a_resource_no_node_offers() -> None:
    wants = declared(threads=1, cpu=1, memory_mb=1, resources={"gpu": 1})
    with pytest.raises(BadInputError, match="operator 'A' demands 'gpu', which no node offers under resources"):
        penstock.plan(wants, 10, placer="r-storm", cluster=cluster([2]))


@pytest.mark.parametrize("rate", [1e300, 1e308])
@pytest.mark.parametrize("allocator", ALLOCATORS.names())
def test_rates_beyond_counting(rate: float, allocator: str) -> None:
    # 1e300 / 1e-10 is beyond the largest float
    library = ModelLibrary.of([model("A", (1, 1e-10, 0.1, 0.1))])
    with pytest.raises(BadInputError, match=r"operator 'A': .* tuples/s is too much to count in threads"):
        penstock.plan(chain(source(), Operator(name="A")), rate, allocator=allocator, models=library)


def test_a_refusal_says_that_slots_are_taken_for_themselves() -> None:
    # A fills the only slot; the idle thread of B needs nothing of cpu or memory, but a slot that is not exclusive
    library = ModelLibrary.of([model("A", (1, 10, 0.5, 0.5)), model("B", (1, 10, 0.5, 0.5))])
    idle = chain(source("A", model="A"), Operator(name="B"), selectivity=0)
    found = refusal(idle, cluster([1]), "sam", library)
    assert [shortage.operator for shortage in found.shortages] == ["B"]
    assert found.shortages[0].needed > found.shortages[0].offered


GPU_CLUSTER = {"nodes": [{"name": "plain", "slots": 4}, {"name": "gpu", "slots": 4, "resources": {"gpu": 2}}]}


@pytest.mark.parametrize("placer", ["r-storm", "compact", "random", "packing"])
def test_threads_go_where_the_gpus_are(placer: str) -> None:
    wants = declared(threads=2, cpu=10, memory_mb=100, resources={"gpu": 1})
    plan = penstock.plan(wants, 10, placer=placer, cluster=parse_cluster(GPU_CLUSTER, "c"))
    assert {slot.node for slot, threads in plan.placement.by_slot().items() if "A" in threads} == {"gpu"}
    three = declared(threads=3, cpu=10, memory_mb=100, resources={"gpu": 1})
    with pytest.raises(RefusedError, match="gpu"):
        penstock.plan(three, 10, placer=placer, cluster=parse_cluster(GPU_CLUSTER, "c"))


@pytest.mark.parametrize("placer", ["sam", "rsm", "round-robin"])
def test_placers_that_know_no_gpus_say_so(placer: str) -> None:
    wants = declared(threads=2, cpu=10, memory_mb=100, resources={"gpu": 1})
    with pytest.raises(BadInputError, match=f"demands gpu, and placer '{placer}' knows only cpu and memory"):
        penstock.plan(wants, 10, placer=placer, cluster=parse_cluster(GPU_CLUSTER, "c"))
