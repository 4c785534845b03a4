"""From a pipeline and a rate to a plan: the published figures, growth, prices, and what a plan says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

import pytest

import penstock
from adapters import SLOT_MEMORY_MB, chain, cluster, declared, model, sink, source
from penstock.base.errors import Refusal, Shortage
from penstock.cli.main import run as run_command
from penstock.cluster.file import parse_cluster
from penstock.cluster.topology import find_catalogue
from penstock.dataflow.aggregate import Aggregate
from penstock.dataflow.logic import Per
from penstock.dataflow.pipeline import Operator, Pipeline
from penstock.modelling.library import ModelLibrary
from penstock.modelling.model import MeasuredOn, Model, Point
from penstock.planning.allocation.contract import slots_needed
from penstock.planning.planner import Planner, grow
from penstock.planning.registry import ALLOCATORS, PLACERS

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.planning.placement.contract import Placement, PlacementRequest, Room


@pytest.mark.parametrize(("rate", "lsa", "mba", "mba_with_ends"), [(50, 7, 4, 4), (100, 13, 7, 7), (200, 25, 14, 15)])
def test_slots_of_linear(rate: float, lsa: int, mba: int, mba_with_ends: int) -> None:
    assert penstock.plan("linear", rate, allocator="lsa").document()["slots"]["allocated"] == lsa
    slots = penstock.plan("linear", rate, allocator="mba").document()["slots"]
    assert (slots["allocated"], slots["allocated_with_ends"]) == (mba, mba_with_ends)
    # machines are asked for with room for source and sink
    assert slots["placed"] >= mba_with_ends


# Two operators of 0.6 memory and 0.3 cpu: 1.2 of memory is 2 slots; one of 0.6 and one of 0.6 need a slot each: fits.
# Three of them: 1.8 is 2 slots, but no slot takes two: one slot is added. Four: 2.4 is 3 slots, and the machine of 4
# that covers them has one to spare.
@pytest.mark.parametrize(("operators", "allocated", "placed", "growth"), [(2, 2, 2, 0), (3, 2, 3, 1), (4, 3, 3, 0)])
def test_growth_by_one_slot(operators: int, allocated: int, placed: int, growth: int) -> None:
    names = [f"o{number}" for number in range(operators)]
    library = ModelLibrary.of(model(name, (1, 100, 0.3, 0.6)) for name in names)
    pipeline = chain(source("o", model=names[0]), *(Operator(name=name) for name in names[1:]))
    plan = penstock.plan(pipeline, 100 * (1 - 1e-6), allocator="lsa", models=library)
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

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
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
    plan = penstock.plan("linear", 100)
    assert plan.slots_asked == 7
    assert [node.size for node in plan.cluster.nodes] == ["D4"]
    assert plan.document()["price_per_hour"] == pytest.approx(8 * 0.098)
    exact = penstock.plan("linear", 100, acquisition="exact")
    assert exact.document()["price_per_hour"] == pytest.approx(exact.slots_asked * 0.098)


def test_slots_needed_forgives_rounding() -> None:
    # 0.1 * 3 is 0.30000000000000004: ten times that is not four slots
    assert slots_needed(sum([0.1] * 30), 0) == 3
    assert slots_needed(3.0001, 0) == 4
    assert slots_needed(0, 2.5) == 3
    assert slots_needed(0, 0) == 0


def test_a_pipeline_from_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_pipelines.py").write_text(
        "import penstock\n"
        "built = penstock.pipeline('mine').source('s').then('a', model='pi').build()\n"
        "builder = penstock.pipeline('mine').source('s').then('a', model='pi')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert penstock.find_pipeline("my_pipelines:built") == penstock.find_pipeline("my_pipelines:builder")
    assert penstock.find_pipeline("my_pipelines:built").name == "mine"


def test_every_pair_of_policies_answers() -> None:
    rows = [row.document() for row in penstock.compare("diamond", 100)]
    assert [(row["allocator"], row["placer"]) for row in rows] == [
        (allocator, placer) for allocator in ALLOCATORS.names() for placer in PLACERS.names()
    ]
    json.dumps(rows, allow_nan=False)
    assert [row for row in rows if "refused" not in row]


def test_explanations_are_there_when_asked_for() -> None:
    plain, explained = penstock.plan("linear", 100), penstock.plan("linear", 100, explain=True)
    assert plain.document() == explained.document()
    assert all(bundle.reason for bundle in explained.placement.bundles)
    assert all(operator.reason for operator in explained.allocation.operators)
    # 100/s of blob at 30/s a slot: 3 full, then 10/s by 20 threads
    assert "3 full slots for 90/s, then 20 threads for the remaining 10/s" in explained.allocation.operator("B").reason


def test_warnings() -> None:
    # measured on slots of 4096 MB, offered 3584
    measured = Model("A", (Point(threads=1, rate=10, cpu=0.1, memory=0.1),), MeasuredOn(slot_memory_mb=4096))
    library = ModelLibrary.of([measured])
    plan = penstock.plan(chain(source(), Operator(name="A")), 10, models=library, cluster=cluster([2]))
    assert [warning for warning in plan.warnings if "measured on slots of 4096 MB" in warning]
    # without a model nobody knows what it can do
    plan = penstock.plan(declared(threads=1, cpu=1, memory_mb=1), 10)
    assert "no model for A: their highest rate is unknown" in plan.warnings
    # one thread does it all, 10/s of 100
    funnel = chain(source(), Operator(name="P", model="pi"), grouping="global")
    plan = penstock.plan(funnel, 200)
    assert [warning for warning in plan.warnings if "with the groupings as declared only 105/s" in warning]


def test_code_that_was_not_measured_is_to_be_measured() -> None:
    of_ones_own = penstock.pipeline("p").source("s").then("look", logic=lambda row: row).sink("o").build()
    named = chain(source(), Operator(name="look", run="somewhere:code"))
    for pipeline in (of_ones_own, named):
        with pytest.raises(penstock.BadInputError) as raised:
            penstock.plan(pipeline, 10)
        assert str(raised.value) == (
            "operator 'look' was not measured: penstock profile PIPELINE -o models.json measures it, then "
            "--models models.json"
        )
    # without code it is one of those that are known, or a slip
    with pytest.raises(penstock.BadInputError, match="no model named 'pie'; did you mean"):
        penstock.plan(chain(source(), Operator(name="pie")), 10)


def in_python() -> Pipeline:
    built = penstock.pipeline("p").source("s").then("own", logic=lambda frame: frame, per="dataframe")
    return built.sink("o").build()


COUNTED = Aggregate(key="k", outputs={"n": "count"}, fields="k string")
OWN = {
    "a file": chain(source(), Operator(name="own", run="somewhere:code", per=Per.DATAFRAME)),
    "Python": in_python(),
    "an aggregate": chain(source(), Operator(name="own", aggregate=COUNTED)),
}


@pytest.mark.parametrize("made", OWN)
def test_sparks_own_without_a_model_is_planned_with_a_warning(made: str) -> None:
    plan = penstock.plan(OWN[made], 10_000_000)
    assert plan.warnings == (
        "no model for own: planned with one thread, whose rate is unknown; penstock profile measures it",
    )
    assert plan.allocation.operator("own").threads == 1
    assert plan.forecast.meets_target is None
    assert plan.forecast.unknown == ("operator 'own' was not measured: penstock profile measures it",)
    document = plan.document()
    assert document["verdict"]["unmeasured"] == ["own"]
    assert document["verdict"]["meets_target"] is None
    assert set(document["prediction"]["rate"].values()) == {None}


def test_a_plan_says_what_cannot_run_placed() -> None:
    fused_only, keyed = penstock.plan(in_python(), 10), penstock.plan(OWN["an aggregate"], 10)
    assert fused_only.verdict["cannot_run_placed"] == ["own"]
    assert "cannot run placed: own is a function of DataFrames" in str(fused_only)
    assert "upper_bound" not in fused_only.document()["prediction"]
    # an aggregation runs placed: what limits it is only not known
    assert keyed.verdict["cannot_run_placed"] == []
    assert "unknown: own not measured" in str(keyed)
    assert "upper_bound" in keyed.document()["prediction"]


def test_the_text_of_a_plan_has_no_rate_of_what_was_not_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "declared.yaml"
    file.write_text(
        "name: d\noperators:\n  s: {kind: source}\n  a: {threads: 2, cpu: 20, memory_mb: 100}\n  o: {kind: sink}\n"
        "streams:\n  - {from: s, to: a}\n  - {from: a, to: o}\n"
    )
    assert run_command(["plan", str(file), "--rate", "100"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "predicted an unknown rate placed: a not measured" in text
    assert "verdict unknown: operator 'a' was not measured" in text


def test_a_deployment_refuses_what_was_not_measured() -> None:
    with pytest.raises(penstock.BadInputError, match="operator 'own' was not measured, and a plan with it is never"):
        penstock.deploy(OWN["an aggregate"], 10, simulated=True)


def test_declared_threads_are_placed_as_declared() -> None:
    # 4 threads of 0.5 cpu and 0.25 memory: 2 slots of cpu
    plan = penstock.plan(declared(threads=4, cpu=50, memory_mb=SLOT_MEMORY_MB / 4), 10)
    row = plan.document()["operators"]["A"]
    assert row == {"rate": 10, "threads": 4, "cpu": pytest.approx(2.0), "memory": pytest.approx(1.0)}
    assert plan.allocation.slots == 2


def test_an_operator_that_gets_no_tuples_has_one_idle_thread() -> None:
    quiet = chain(source(), Operator(name="P", model="pi"), selectivity=0)
    for allocator in ALLOCATORS.names():
        row = penstock.plan(quiet, 100, allocator=allocator).document()["operators"]["P"]
        assert row == {"rate": 0, "threads": 1, "cpu": 0, "memory": 0}


@pytest.mark.parametrize("allocator", ALLOCATORS.names())
def test_an_operator_that_gets_next_to_nothing_has_a_thread_too(allocator: str) -> None:
    # 100/s x 1e-15 is far less than a billionth of what one thread does
    faint = chain(source(), Operator(name="P", model="pi"), selectivity=1e-15)
    plan = penstock.plan(faint, 100, allocator=allocator)
    assert plan.document()["operators"]["P"]["threads"] == 1
    assert plan.prediction.slot_aware.rate >= 100


def test_a_planner_can_be_asked_again() -> None:
    planner = Planner(penstock.find_pipeline("linear"), penstock.models(), cluster([4] * 5))
    allocator, placer = ALLOCATORS.create("mba"), PLACERS.create("sam")
    first, again = planner.plan(100, allocator, placer), planner.plan(100, allocator, placer)
    assert first == again


@pytest.mark.parametrize("placer", PLACERS.names())
@pytest.mark.parametrize("amount", [1e-12, 1e-300, 1e-310])
def test_amounts_next_to_nothing(placer: str, amount: float) -> None:
    # 100/s by threads of 5/s: 20 threads of each, that need next to nothing
    library = ModelLibrary.of(model(name, (1, 5, amount, amount)) for name in "AB")
    faint = chain(source(), Operator(name="A"), Operator(name="B"))
    rows = penstock.plan(faint, 100, allocator="lsa", placer=placer, models=library).document()["operators"]
    assert {name: row["threads"] for name, row in rows.items()} == {"source": 1, "A": 20, "B": 20}


def test_a_node_with_less_cpu_than_cores_is_warned_about() -> None:
    plan = penstock.plan("linear", 100, cluster=parse_cluster({"nodes": [{"slots": 8, "cpu": 10}]}, "c"))
    assert any("10 points for 8 slots" in warning for warning in plan.warnings)


def test_the_gap_counts_the_slots_used_and_is_unknown_below_the_bound() -> None:
    spread = penstock.plan("linear", 50, placer="round-robin", cluster=cluster([4] * 5))
    assert spread.gap == pytest.approx(spread.slots_used / spread.fewest_slots - 1)
    # lsa takes 67 threads of a third of a percent each into one slot; a slot peaks at 40/s, so 200/s need 5
    library = ModelLibrary.of([model("A", (1, 3, 0.01, 0.01), (60, 40, 0.6, 0.6))])
    dreamt = penstock.plan(chain(source(), Operator(name="A")), 200, allocator="lsa", models=library)
    assert (dreamt.slots_asked, dreamt.fewest_slots, dreamt.gap) == (1, 5, None)


def test_threads_of_more_than_half_a_slot_count_one_each_in_the_bound() -> None:
    # three threads of 0.6 cores: 1.8 in all, but no two share a slot
    large = Operator(name="d", threads=3, cpu=60, memory_mb=1)
    assert penstock.plan(chain(source(), large, sink()), 1).fewest_slots == 3


def test_what_python_prints_of_a_plan() -> None:
    first, predicted, *warnings = str(penstock.plan("linear", rate=100)).splitlines()
    assert first == "linear at 100 tuples/s, by mba and sam: 7 slots on 1 machine, 0.784 USD per hour"
    assert predicted.startswith("predicted  100 tuples/s placed, limited by B; ")
    assert predicted.endswith(" tuples/s fused")
    assert all(line.startswith("warning    ") for line in warnings)
