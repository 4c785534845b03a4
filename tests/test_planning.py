"""From a pipeline and a rate to a plan: the published figures, growth, refusals, capacity, and bad requests."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import penstock
from adapters import SLOT_MEMORY_MB, chain, cluster, model, sink, source
from penstock import api
from penstock.allocation.contract import slots_needed
from penstock.allocation.registry import ALLOCATORS
from penstock.cluster.catalogue import find_catalogue
from penstock.cluster.file import parse_cluster
from penstock.dataflow.pipeline import Operator, Pipeline
from penstock.errors import BadInputError, Refusal, RefusedError, Shortage
from penstock.modelling.library import ModelLibrary
from penstock.modelling.model import MeasuredOn, Model, Point
from penstock.placement.registry import PLACERS
from penstock.planning.growth import grow
from penstock.planning.planner import Planner

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.placement.contract import Placement, Request, Room

# -------------------------------------------------------------------------------- published figures


@pytest.mark.parametrize(("rate", "lsa", "mba", "mba_with_ends"), [(50, 7, 4, 4), (100, 13, 7, 7), (200, 25, 14, 15)])
def test_slots_of_linear(rate: float, lsa: int, mba: int, mba_with_ends: int) -> None:
    assert api.plan("linear", rate, allocator="lsa").document()["slots"]["allocated"] == lsa
    slots = api.plan("linear", rate, allocator="mba").document()["slots"]
    assert (slots["allocated"], slots["allocated_with_ends"]) == (mba, mba_with_ends)
    # machines are asked for with room for source and sink
    assert slots["placed"] >= mba_with_ends


def test_capacity_of_twenty_slots() -> None:
    found = api.capacity("linear", cluster([4] * 5))
    assert found["mba+sam"].allocated == 280
    assert found["lsa+rsm"].allocated == 160


def test_capacity_says_what_can_be_placed_and_what_that_will_do() -> None:
    for pair, found in api.capacity("linear", cluster([4] * 5)).items():
        assert 0 <= found.placed <= found.allocated, pair
        assert found.predicted >= 0
    best = api.capacity("linear", cluster([4] * 5), allocator="mba", placer="sam")["mba+sam"]
    # a plan at that rate exists on this cluster, and supports it
    plan = api.plan("linear", best.placed, cluster=cluster([4] * 5))
    assert plan.prediction.slot_aware.rate == best.predicted
    assert best.predicted >= best.placed


def test_capacity_of_too_small_a_cluster_is_nothing() -> None:
    # linear at 10/s: blob alone takes 0.26 memory, table 0.1, pi 0.086 cpu; below that one slot would do, but one
    # slot of 100/s steps would need 7
    found = api.capacity("linear", cluster([1]), step=100, allocator="mba", placer="sam")["mba+sam"]
    assert (found.allocated, found.placed, found.predicted) == (0, 0, 0)


# one thread of 100/s takes a whole slot: 3 slots do 300/s, 30 steps of 10
def test_capacity_by_hand() -> None:
    library = ModelLibrary.of([model("A", (1, 100, 1.0, 0.5))])
    pipeline = chain(source(), Operator(name="A"))
    found = api.capacity(pipeline, cluster([2, 1]), models=library)
    assert found["mba+round-robin"].allocated == 300
    assert found["lsa+rsm"].allocated == 300
    # three threads and the source by turns on three slots: one each, 3 * 100/s
    assert found["mba+round-robin"].predicted == pytest.approx(300)


@pytest.mark.parametrize("step", [0, -10, math.nan, math.inf])
def test_a_step_that_is_none(step: float) -> None:
    with pytest.raises(BadInputError, match="step: expected a finite number of tuples/s above 0"):
        api.capacity("linear", cluster([4]), step=step)


def declared(**fields: Any) -> Pipeline:
    return chain(source(), Operator(name="A", **fields), sink())


def test_capacity_where_nothing_grows_with_the_rate() -> None:
    fixed = declared(threads=1, cpu=50, memory_mb=100)
    with pytest.raises(BadInputError, match=r"no operator with a model .* any rate"):
        api.capacity(fixed, cluster([4]), allocator="mba", placer="sam")


# -------------------------------------------------------------------------------------------- growth


# Two operators of 0.6 memory and 0.3 cpu: 1.2 of memory is 2 slots; one of 0.6 and one of 0.6 need a slot each: fits.
# Three of them: 1.8 is 2 slots, but no slot takes two: one slot is added. Four: 2.4 is 3 slots, and the machine of 4
# that covers them has one to spare.
@pytest.mark.parametrize(("operators", "allocated", "placed", "growth"), [(2, 2, 2, 0), (3, 2, 3, 1), (4, 3, 3, 0)])
def test_growth_by_one_slot(operators: int, allocated: int, placed: int, growth: int) -> None:
    names = [f"o{number}" for number in range(operators)]
    library = ModelLibrary.of(model(name, (1, 100, 0.3, 0.6)) for name in names)
    pipeline = chain(source("o", model=names[0]), *(Operator(name=name) for name in names[1:]))
    plan = api.plan(pipeline, 100 * (1 - 1e-6), allocator="lsa", models=library)
    slots = plan.document()["slots"]
    assert (slots["allocated_with_ends"], slots["placed"], plan.growth) == (allocated, placed, growth)


class Never:
    """A placer that refuses everything and counts how often it was asked."""

    name: ClassVar[str] = "never"
    whole_cluster: ClassVar[bool] = False
    keeps_resources: ClassVar[bool] = False

    def __init__(self, *, more_slots_may_help: bool) -> None:
        self.more_slots_may_help = more_slots_may_help
        self.slots: list[int] = []

    def place(self, request: Request, room: Room) -> Placement | Refusal:
        self.slots.append(len(room.cluster.slots))
        shortage = Shortage(request.operators[0].name, "luck", 1, 0, "nowhere")
        return Refusal(self.name, (shortage,), self.more_slots_may_help)


def test_growth_ends() -> None:
    # source, A and sink: three threads of 0.1 + 0.5 + 0.1 cpu ask for 1 slot; a slot more each time, up to one per
    # thread on top: 1, 2, 3, 4
    library = ModelLibrary.of([model("A", (1, 10, 0.5, 0.1))])
    planner = Planner(chain(source(), Operator(name="A"), sink()), library, find_catalogue("azure-d"))
    hopeful, hopeless = Never(more_slots_may_help=True), Never(more_slots_may_help=False)
    assert isinstance(planner.plan(5, ALLOCATORS.create("lsa"), hopeful), Refusal)
    # machines of 1, 2, 4 (for 3) and 4 slots; the same machines need not be tried twice
    assert list(dict.fromkeys(hopeful.slots)) == [1, 2, 4]
    assert isinstance(planner.plan(5, ALLOCATORS.create("lsa"), hopeless), Refusal)
    assert hopeless.slots == [1]


def test_growth_takes_a_refusal_at_its_word() -> None:
    asked: list[int] = []

    def attempt(slots: int) -> int | Refusal:
        # 50 are enough; a refusal knows half of what is missing
        asked.append(slots)
        missing = 50 - slots
        return slots if missing <= 0 else Refusal("one", (), slots_missing=max(1, missing // 2))

    assert grow(10, 100, attempt) == (50, 50)
    assert asked == [10, 30, 40, 45, 47, 48, 49, 50]


def test_the_price_is_that_of_the_machines() -> None:
    # 7 slots of D machines by the published rule: one of 8 covers them, 8 * 0.098
    plan = api.plan("linear", 100)
    assert plan.slots_asked == 7
    assert [node.size for node in plan.cluster.nodes] == ["D4"]
    assert plan.document()["price_per_hour"] == pytest.approx(8 * 0.098)
    exact = api.plan("linear", 100, acquisition="exact")
    assert exact.document()["price_per_hour"] == pytest.approx(exact.slots_asked * 0.098)


def test_slots_needed_forgives_rounding() -> None:
    # 0.1 * 3 is 0.30000000000000004: ten times that is not four slots
    assert slots_needed(sum([0.1] * 30), 0) == 3
    assert slots_needed(3.0001, 0) == 4
    assert slots_needed(0, 2.5) == 3
    assert slots_needed(0, 0) == 0


# -------------------------------------------------------------------------------------------- refusals


def refusal(pipeline: Pipeline, offer: Any, placer: str, library: ModelLibrary | None = None) -> Refusal:
    with pytest.raises(RefusedError) as caught:
        api.plan(pipeline, 10, cluster=offer, placer=placer, models=library)
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
        api.plan(declared(**LARGE), 10, placer=placer)


@pytest.mark.parametrize("placer", PLACERS.names())
def test_a_cluster_that_is_too_small(placer: str) -> None:
    with pytest.raises(
        RefusedError, match="pipeline 'linear' needs 14 slots, closest is the whole cluster with 4"
    ) as caught:
        api.plan("linear", 200, cluster=cluster([4]), placer=placer)
    assert caught.value.refusal.by == "mba"
    assert caught.value.refusal.more_slots_may_help


def test_a_full_bundle_without_an_empty_slot() -> None:
    # A fills the one slot exactly; the source has no room left: 0.10 cpu, 0.15 memory
    library = ModelLibrary.of([model("A", (1, 10, 0.5, 0.5))])
    found = refusal(chain(source(), Operator(name="A")), cluster([1]), "sam", library)
    assert [shortage.operator for shortage in found.shortages] in (["A"], ["source"])


def test_more_threads_than_one_plan_holds() -> None:
    with pytest.raises(RefusedError, match=r"pipeline 'linear' needs .* threads, closest is the limit of one plan"):
        api.plan("linear", 1e12)


# -------------------------------------------------------------------------------------------- bad requests


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf])
def test_rates(rate: float) -> None:
    with pytest.raises(BadInputError, match="rate: expected a finite number of tuples/s above 0, found"):
        api.plan("linear", rate)


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
        api.plan("linear", 50, **options)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("liner", r"unknown pipeline 'liner'; did you mean 'linear'\? known: app-finance, .*or give a file"),
        ("nothing.yaml", "nothing.yaml: cannot be read: No such file"),
        ("no_such_module:p", "pipeline 'no_such_module:p': ModuleNotFoundError: No module named 'no_such_module'"),
        ("json:nothing", "pipeline 'json:nothing': .*no attribute 'nothing'"),
        ("json:loads", "pipeline 'json:loads': expected a Pipeline or a builder, found function"),
        (":p", "unknown pipeline ':p'"),
        ("json:", "unknown pipeline 'json:'"),
        (".json:p", "pipeline '.json:p': "),
        ("a" * 5000, "unknown pipeline 'aaa"),
    ],
)
def test_unknown_pipelines(name: str, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        api.find_pipeline(name)


def test_a_pipeline_from_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_pipelines.py").write_text(
        "import penstock\n"
        "built = penstock.pipeline('mine').source('s').then('a', model='pi').build()\n"
        "builder = penstock.pipeline('mine').source('s').then('a', model='pi')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert api.find_pipeline("my_pipelines:built") == api.find_pipeline("my_pipelines:builder")
    assert api.find_pipeline("my_pipelines:built").name == "mine"


def test_an_operator_without_a_model() -> None:
    with pytest.raises(BadInputError, match="operator 'A': no model named 'A'; known: parse_xml"):
        api.plan(chain(source(), Operator(name="A")), 10)


def test_a_resource_no_node_offers() -> None:
    wants = declared(threads=1, cpu=1, memory_mb=1, resources={"gpu": 1})
    with pytest.raises(BadInputError, match="operator 'A' demands 'gpu', which no node offers under resources"):
        api.plan(wants, 10, placer="r-storm", cluster=cluster([2]))


@pytest.mark.parametrize("rate", [1e300, 1e308])
@pytest.mark.parametrize("allocator", ALLOCATORS.names())
def test_rates_beyond_counting(rate: float, allocator: str) -> None:
    # 1e300 / 1e-10 is beyond the largest float
    library = ModelLibrary.of([model("A", (1, 1e-10, 0.1, 0.1))])
    with pytest.raises(BadInputError, match=r"operator 'A': .* tuples/s is too much to count in threads"):
        api.plan(chain(source(), Operator(name="A")), rate, allocator=allocator, models=library)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"nodes": []}, "c.yaml: nodes: expected at least one node"),
        ({}, "c.yaml: nodes: Field required"),
        ([], "c.yaml: expected a mapping with the keys of a clusterfile, found list"),
        ({"nodes": [{"slots": 0}]}, r"c.yaml: nodes\[0\].slots: .*equal to 1, found 0"),
        ({"nodes": [{"slots": 2.5}]}, r"c.yaml: nodes\[0\].slots: .*valid integer, found 2.5"),
        ({"nodes": [{"slots": 1, "count": 0}]}, r"c.yaml: nodes\[0\].count: .*equal to 1, found 0"),
        ({"nodes": [{"slots": 1, "count": 10**9}]}, "c.yaml: nodes: 1000000000 nodes in all, expected at most 1000000"),
        ({"nodes": [{"slots": 10**8}]}, "c.yaml: nodes: 100000000 slots in all, expected at most"),
        ({"nodes": [{"slots": 10**6, "count": 10**5}]}, "c.yaml: nodes: 100000000000 slots in all, expected at most"),
        ({"nodes": [{"slots": 1, "memory_mb": 0}]}, r"c.yaml: nodes\[0\].memory_mb: .*greater than 0, found 0"),
        ({"nodes": [{"slots": 1, "cpu": 0}]}, r"c.yaml: nodes\[0\].cpu: .*greater than 0, found 0"),
        ({"nodes": [{"slots": 1, "cpu": math.nan}]}, r"c.yaml: nodes\[0\].cpu: .*, found nan"),
        ({"nodes": [{"slots": 1, "price": -1}]}, r"c.yaml: nodes\[0\].price: .*equal to 0, found -1"),
        ({"nodes": [{"slots": 1, "resources": {"gpu": -1}}]}, r"c.yaml: nodes\[0\].resources.gpu: .*found -1"),
        ({"nodes": [{"slots": 1, "resources": {"cpu": 1}}]}, "c.yaml: nodes: give 'cpu' as a key of the node"),
        ({"nodes": [{"slots": 1, "rak": "r"}]}, r"c.yaml: nodes\[0\]: unknown key 'rak'; did you mean 'rack'"),
        ({"nodes": [{"slots": 1, "name": "a"}] * 2}, r"c.yaml: nodes\[1\].name: node 'a' is declared twice"),
        ({"nodes": [{"slots": 1, "name": "n2"}, {"slots": 1}]}, r"c.yaml: nodes\[1\].*: node 'n2' is declared twice"),
        ({"nodes": [{"slots": 1}], "dimensions": {"gpu": {}}}, "c.yaml: dimensions.gpu: no node offers 'gpu'"),
        (
            {"nodes": [{"slots": 1}], "dimensions": {"cpu": {"weight": -1}}},
            "c.yaml: dimensions.cpu.weight: .*equal to 0, found -1",
        ),
    ],
)
def test_bad_cluster_files(data: object, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint) as caught:
        parse_cluster(data, "c.yaml")
    assert "\n" not in str(caught.value)


def test_a_cluster_file() -> None:
    found = parse_cluster(
        {
            "nodes": [
                {"count": 2, "slots": 4, "rack": "r1", "memory_mb": 14336, "size": "D3"},
                {"name": "big", "slots": 8, "rack": "r2", "cpu": 1600, "resources": {"gpu": 2}},
                {"name": "pair", "count": 2, "slots": 1},
            ],
            "dimensions": {"gpu": {"hard": False, "weight": 0.5}},
        },
        "c.yaml",
    )
    assert [node.name for node in found.nodes] == ["n1", "n2", "big", "pair-1", "pair-2"]
    # 100 points and 3584 MB a slot where nothing is said; a node that does not name a resource has none of it
    assert [dict(node.capacity) for node in found.nodes[1:4]] == [
        {"cpu": 400, "memory_mb": 14336, "gpu": 0},
        {"cpu": 1600, "memory_mb": 8 * 3584, "gpu": 2},
        {"cpu": 100, "memory_mb": 3584, "gpu": 0},
    ]
    assert [(d.name, d.hard, d.weight) for d in found.dimensions][-1] == ("gpu", False, 0.5)
    assert len(found.slots) == 4 + 4 + 8 + 1 + 1
    same_slot, same_node, same_rack, other = (found.slots[0], found.slots[1], found.slots[4], found.slots[8])
    assert [int(found.distance(same_slot, to)) for to in (same_slot, same_node, same_rack, other)] == [0, 1, 2, 3]


# -------------------------------------------------------------------------------------------- what a plan says


def test_every_pair_of_policies_answers() -> None:
    rows = [row.document() for row in api.compare("diamond", 100)]
    assert [(row["allocator"], row["placer"]) for row in rows] == [
        (allocator, placer) for allocator in ALLOCATORS.names() for placer in PLACERS.names()
    ]
    json.dumps(rows, allow_nan=False)
    assert [row for row in rows if "refused" not in row]


def test_explanations_are_there_when_asked_for() -> None:
    plain, explained = api.plan("linear", 100), api.plan("linear", 100, explain=True)
    assert plain.document() == explained.document()
    assert all(bundle.reason for bundle in explained.placement.bundles)
    assert all(operator.reason for operator in explained.allocation.operators)
    # 100/s of blob at 30/s a slot: 3 full, then 10/s by 20 threads
    assert "3 full slots for 90/s, then 20 threads for the remaining 10/s" in explained.allocation.operator("B").reason


def test_warnings() -> None:
    # measured on slots of 4096 MB, offered 3584
    measured = Model("A", (Point(threads=1, rate=10, cpu=0.1, memory=0.1),), MeasuredOn(slot_memory_mb=4096))
    library = ModelLibrary.of([measured])
    plan = api.plan(chain(source(), Operator(name="A")), 10, models=library, cluster=cluster([2]))
    assert [warning for warning in plan.warnings if "measured on slots of 4096 MB" in warning]
    # without a model nobody knows what it can do
    plan = api.plan(declared(threads=1, cpu=1, memory_mb=1), 10)
    assert "no model for A: assumed to keep up at any rate" in plan.warnings
    # one thread does it all, 10/s of 100
    funnel = chain(source(), Operator(name="P", model="pi"), grouping="global")
    plan = api.plan(funnel, 200)
    assert [warning for warning in plan.warnings if "with the groupings as declared only 105/s" in warning]


def test_declared_threads_are_placed_as_declared() -> None:
    # 4 threads of 0.5 cpu and 0.25 memory: 2 slots of cpu
    plan = api.plan(declared(threads=4, cpu=50, memory_mb=SLOT_MEMORY_MB / 4), 10)
    row = plan.document()["operators"]["A"]
    assert row == {"rate": 10, "threads": 4, "cpu": pytest.approx(2.0), "memory": pytest.approx(1.0)}
    assert plan.allocation.slots == 2


def test_an_operator_that_gets_no_tuples_has_one_idle_thread() -> None:
    quiet = chain(source(), Operator(name="P", model="pi"), selectivity=0)
    for allocator in ALLOCATORS.names():
        row = api.plan(quiet, 100, allocator=allocator).document()["operators"]["P"]
        assert row == {"rate": 0, "threads": 1, "cpu": 0, "memory": 0}


@pytest.mark.parametrize("allocator", ALLOCATORS.names())
def test_an_operator_that_gets_next_to_nothing_has_a_thread_too(allocator: str) -> None:
    # 100/s x 1e-15 is far less than a billionth of what one thread does
    faint = chain(source(), Operator(name="P", model="pi"), selectivity=1e-15)
    plan = api.plan(faint, 100, allocator=allocator)
    assert plan.document()["operators"]["P"]["threads"] == 1
    assert plan.prediction.slot_aware.rate >= 100


def test_init_writes_a_project_that_can_be_planned(tmp_path: Path) -> None:
    written = penstock.init(tmp_path / "project")
    assert {path.name for path in written} == {"README.md", "cluster.yaml", "pipeline.yaml"}
    assert penstock.plan(tmp_path / "project" / "pipeline.yaml", 50).slots_used >= 1
    found = penstock.capacity(
        tmp_path / "project" / "pipeline.yaml", tmp_path / "project" / "cluster.yaml", allocator="mba", placer="sam"
    )
    assert found["mba+sam"].placed > 0


def test_init_writes_nothing_where_something_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text("mine")
    with pytest.raises(BadInputError, match=r"pipeline.yaml: already there"):
        penstock.init(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]
    with pytest.raises(BadInputError, match="expected a folder, found a file"):
        penstock.init(tmp_path / "pipeline.yaml")
    assert (tmp_path / "pipeline.yaml").read_text() == "mine"


def test_a_planner_can_be_asked_again() -> None:
    planner = Planner(api.find_pipeline("linear"), api.models(), cluster([4] * 5))
    allocator, placer = ALLOCATORS.create("mba"), PLACERS.create("sam")
    first, again = planner.plan(100, allocator, placer), planner.plan(100, allocator, placer)
    assert first == again


@pytest.mark.parametrize("placer", PLACERS.names())
@pytest.mark.parametrize("amount", [1e-12, 1e-300, 1e-310])
def test_amounts_next_to_nothing(placer: str, amount: float) -> None:
    # 100/s by threads of 5/s: 20 threads of each, that need next to nothing
    library = ModelLibrary.of(model(name, (1, 5, amount, amount)) for name in "AB")
    faint = chain(source(), Operator(name="A"), Operator(name="B"))
    rows = api.plan(faint, 100, allocator="lsa", placer=placer, models=library).document()["operators"]
    assert {name: row["threads"] for name, row in rows.items()} == {"source": 1, "A": 20, "B": 20}


def test_a_refusal_says_that_slots_are_taken_for_themselves() -> None:
    # A fills the only slot; the idle thread of B needs nothing of cpu or memory, but a slot that is not exclusive
    library = ModelLibrary.of([model("A", (1, 10, 0.5, 0.5)), model("B", (1, 10, 0.5, 0.5))])
    idle = chain(source("A", model="A"), Operator(name="B"), selectivity=0)
    found = refusal(idle, cluster([1]), "sam", library)
    assert [shortage.operator for shortage in found.shortages] == ["B"]
    assert found.shortages[0].needed > found.shortages[0].offered


# ------------------------------------------------------------------------------- resources beyond cpu and memory

GPU_CLUSTER = {"nodes": [{"name": "plain", "slots": 4}, {"name": "gpu", "slots": 4, "resources": {"gpu": 2}}]}


@pytest.mark.parametrize("placer", ["r-storm", "compact", "random", "packing"])
def test_threads_go_where_the_gpus_are(placer: str) -> None:
    wants = declared(threads=2, cpu=10, memory_mb=100, resources={"gpu": 1})
    plan = api.plan(wants, 10, placer=placer, cluster=parse_cluster(GPU_CLUSTER, "c"))
    assert {slot.node for slot, threads in plan.placement.by_slot().items() if "A" in threads} == {"gpu"}
    three = declared(threads=3, cpu=10, memory_mb=100, resources={"gpu": 1})
    with pytest.raises(RefusedError, match="gpu"):
        api.plan(three, 10, placer=placer, cluster=parse_cluster(GPU_CLUSTER, "c"))


@pytest.mark.parametrize("placer", ["sam", "rsm", "round-robin"])
def test_placers_that_know_no_gpus_say_so(placer: str) -> None:
    wants = declared(threads=2, cpu=10, memory_mb=100, resources={"gpu": 1})
    with pytest.raises(BadInputError, match=f"demands gpu, and placer '{placer}' knows only cpu and memory"):
        api.plan(wants, 10, placer=placer, cluster=parse_cluster(GPU_CLUSTER, "c"))


def test_a_node_with_less_cpu_than_cores_is_warned_about() -> None:
    plan = api.plan("linear", 100, cluster=parse_cluster({"nodes": [{"slots": 8, "cpu": 10}]}, "c"))
    assert any("10 points for 8 slots" in warning for warning in plan.warnings)


def test_a_dimension_entry_changes_only_what_it_says() -> None:
    nodes = [{"slots": 4}]
    plain = parse_cluster({"nodes": nodes}, "c").dimensions
    for entry in ({}, {"hard": False}, {"weight": 1e-4}):
        assert parse_cluster({"nodes": nodes, "dimensions": {"cpu": entry}}, "c").dimensions == plain


def test_the_gap_counts_the_slots_used_and_is_unknown_below_the_bound() -> None:
    spread = api.plan("linear", 50, placer="round-robin", cluster=cluster([4] * 5))
    assert spread.gap == pytest.approx(spread.slots_used / spread.fewest_slots - 1)
    # lsa takes 67 threads of a third of a percent each into one slot; a slot peaks at 40/s, so 200/s need 5
    library = ModelLibrary.of([model("A", (1, 3, 0.01, 0.01), (60, 40, 0.6, 0.6))])
    dreamt = api.plan(chain(source(), Operator(name="A")), 200, allocator="lsa", models=library)
    assert (dreamt.slots_asked, dreamt.fewest_slots, dreamt.gap) == (1, 5, None)


def test_capacity_of_a_large_cluster_and_of_models_that_need_nothing() -> None:
    large = api.capacity("linear", cluster([8] * 1000), allocator="mba", placer="sam")["mba+sam"]
    assert large.allocated >= large.placed > 100_000
    nothing = ModelLibrary.of([model("A", (1, 10, 0.0, 0.0))])
    with pytest.raises(BadInputError, match="any rate fits"):
        api.capacity(chain(source(), Operator(name="A")), cluster([2]), allocator="lsa", placer="sam", models=nothing)


def test_threads_of_more_than_half_a_slot_count_one_each_in_the_bound() -> None:
    # three threads of 0.6 cores: 1.8 in all, but no two share a slot
    large = Operator(name="d", threads=3, cpu=60, memory_mb=1)
    assert api.plan(chain(source(), large, sink()), 1).fewest_slots == 3
