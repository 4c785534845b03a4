"""Re-planning what runs: what stays, what moves, and when moving pays."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import penstock
from adapters import cluster
from penstock.base.errors import BadInputError, Refusal
from penstock.cluster.topology import Cluster, Node, Slot
from penstock.modelling.library import ModelLibrary
from penstock.modelling.task_profile import TaskProfile
from penstock.planning.files import parse_placement, read_plan, write_plan
from penstock.planning.placement.contract import OperatorRequest, Placement, PlacementRequest, Room
from penstock.planning.placement.placers.compact import Compact
from penstock.planning.replanning.plan_changes import ThreadMoves, moves
from penstock.planning.replanning.replan_cluster import place_again
from penstock.planning.whole_cluster import place_all

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = Slot("n1", 0), Slot("n1", 1), Slot("n2", 0)


def test_moves_are_counted_by_operator() -> None:
    before = {A: {"x": 3, "y": 1}, B: {"x": 2}}
    after = {A: {"x": 1}, C: {"x": 4, "z": 2}, B: {"y": 1}}
    # x: 5 before and after, 1 stays; y: 1 moves; z: 2 start
    assert moves(before, before, after) == ThreadMoves(kept=1, moved=5, started=2, stopped=0)
    # without node n1's first slot nothing of it stays
    assert moves(before, {B: before[B]}, after) == ThreadMoves(kept=0, moved=6, started=2, stopped=0)


@pytest.mark.parametrize("pair", [("mba", "sam"), ("joint", "joint"), ("lsa", "rsm")])
def test_nothing_moves_when_nothing_changes(pair: tuple[str, str]) -> None:
    policies = {"allocator": pair[0], "placer": pair[1]}
    current = penstock.plan("diamond", 100, **policies)  # type: ignore[arg-type]
    again = penstock.plan("diamond", 100, **policies, current=current)  # type: ignore[arg-type]
    assert again.moves is not None
    assert again.moves.moved == again.moves.stopped == again.moves.started == 0


@pytest.mark.parametrize("rate", [60, 95, 105, 150, 200])
@pytest.mark.parametrize("pair", [("mba", "sam"), ("joint", "joint")])
def test_fewer_threads_move_than_in_a_fresh_plan(pair: tuple[str, str], rate: float) -> None:
    policies = {"allocator": pair[0], "placer": pair[1]}
    current = penstock.plan("linear", 100, **policies)  # type: ignore[arg-type]
    fresh = penstock.plan("linear", rate, **policies)  # type: ignore[arg-type]
    plan = penstock.plan("linear", rate, **policies, current=current)  # type: ignore[arg-type]
    assert plan.moves is not None
    assert plan.moves.moved <= penstock.diff(current, fresh).threads_moved
    assert plan.moves.moved == penstock.diff(current, plan).threads_moved
    # what is kept and what starts is all there is
    assert plan.moves.kept + plan.moves.moved + plan.moves.started == sum(o.threads for o in plan.allocation.operators)
    assert plan.prediction.slot_aware.rate >= rate * (1 - 1e-6)
    paid = len(plan.cluster.slots) + 0.01 * plan.moves.moved
    assert paid <= len(fresh.cluster.slots) + 0.01 * penstock.diff(current, fresh).threads_moved + 1e-9


def test_moving_pays_when_it_costs_nothing() -> None:
    current = penstock.plan("linear", 100)
    # at 50 the rate fits a machine of four slots instead of eight: every thread moves, or none
    cheap = penstock.plan("linear", 50, current=current, move_cost=0.01)
    assert cheap.moves is not None
    assert len(cheap.cluster.slots) == 4
    assert cheap.moves.kept == 0
    dear = penstock.plan("linear", 50, current=current, move_cost=1.0)
    assert dear.moves is not None
    assert dear.moves.moved == 0
    assert (dear.allocation.allocator, dear.placement.placer) == ("mba", "sam")
    assert [plan.name for plan in dear.considered if plan.chosen] == ["fewest moves"]


def test_the_plan_that_keeps_the_rate_wins_over_the_one_that_moves_less() -> None:
    # with the groupings declared: 165 tuples/s fresh, 150 if no thread moves
    plan = penstock.plan("linear", 200, current=penstock.plan("linear", 100))
    rates = {considered.name: considered.rate for considered in plan.considered}
    assert rates == {"fewest moves": pytest.approx(150), "fresh": pytest.approx(165)}
    assert plan.predicted_rate == pytest.approx(165)
    assert not plan.keeps_rate


def test_policies_default_to_those_that_made_the_current_plan() -> None:
    current = penstock.plan("linear", 100, allocator="lsa", placer="rsm")
    again = penstock.plan("linear", 120, current=current)
    assert (again.allocation.allocator, again.placement.placer) == ("lsa", "rsm")


def test_a_node_that_is_gone() -> None:
    current = penstock.plan("linear", 100, cluster=cluster([4, 4, 4]))
    left = Cluster(tuple(node for node in cluster([4, 4, 4]).nodes if node.name != current.cluster.nodes[0].name))
    plan = penstock.plan("linear", 100, cluster=left, current=current)
    gone = current.cluster.nodes[0].name
    assert plan.moves is not None
    assert all(bundle.slot.node != gone for bundle in plan.placement.bundles)
    stayed = sum(b.threads for b in current.placement.bundles if b.slot.node != gone)
    assert 0 < plan.moves.kept <= stayed


def test_plan_files_carry_the_moves(tmp_path: Path) -> None:
    current = penstock.plan("linear", 100)
    write_plan(current, tmp_path / "now.json")
    plan = penstock.plan("linear", 120, current=tmp_path / "now.json")
    write_plan(plan, tmp_path / "next.json")
    assert plan.moves is not None
    assert read_plan(tmp_path / "next.json").moves == plan.moves.document()


def test_where_moving_costs_slots_are_exchanged_within_their_node_only() -> None:
    # two nodes of two slots; a and b move for half a core, so they must stay with the threads they talk to
    costs = {"sojourn_seconds": 0.001, "processing_cpu": 0.5, "memory_mb": 1, "moving_cpu": 0.25}
    library = ModelLibrary.of([], [TaskProfile.model_validate({"name": name, **costs}) for name in "ab"])
    pipe = penstock.pipeline("p").source("s").then("a").then("b").sink("k").build()
    asked: dict[str, Any] = {
        "allocator": "profiled",
        "placer": "packing",
        "models": library,
        "cluster": cluster([2, 2]),
    }
    current = penstock.plan(pipe, 100, **asked)
    fresh = penstock.plan(pipe, 120, **asked)
    again = penstock.plan(pipe, 120, **asked, current=current)
    assert again.placement.placer == "packing"
    assert by_node(again) == by_node(fresh)


def by_node(plan: penstock.Plan) -> dict[str, Counter[str]]:
    threads: dict[str, Counter[str]] = {}
    for bundle in plan.placement.bundles:
        threads.setdefault(bundle.slot.node, Counter())[bundle.operator] += bundle.threads
    return threads


def test_bad_requests() -> None:
    current = penstock.plan("linear", 100)
    with pytest.raises(BadInputError, match="a move cost means something only with what runs now"):
        penstock.plan("linear", 100, move_cost=1)
    with pytest.raises(BadInputError, match="placer 'balanced-eft' weighs moves by its own rule"):
        penstock.plan("linear", 100, placer="balanced-eft", current=current, move_cost=1)
    with pytest.raises(BadInputError, match="it is of pipeline 'linear', and 'diamond' is to be planned"):
        penstock.plan("diamond", 100, current=current)
    with pytest.raises(BadInputError, match="move cost: expected a number of at least 0, found -1"):
        penstock.plan("linear", 100, current=current, move_cost=-1)


# ----------------------------------------------------------------------------------------- whole clusters

CLUSTER = Cluster(tuple(Node(f"n{n}", f"r{n // 2}", 4, {"cpu": 400.0, "memory_mb": 4000.0}) for n in range(4)))


def request(name: str, threads: int, cpu: float = 100.0) -> tuple[PlacementRequest, int]:
    operators = (OperatorRequest("a", threads, (cpu, 500.0)), OperatorRequest("b", threads, (cpu, 500.0)))
    return PlacementRequest(name, operators, ((0, 1),), (0,)), 1


def running(
    placements: dict[str, dict[Slot, dict[str, int]]], *, grown: int = 2, move_cost: float = 0.5
) -> ThreadMoves:
    requests = [request("p", grown), request("q", 2)]
    answer = place_again(CLUSTER, requests, Compact(), placements, move_cost)
    assert not answer.refused
    assert answer.usage.hard_violations == 0
    assert sum(answer.usage.soft_overload.values()) == 0
    return answer.moves["p"]


def test_pipelines_stay() -> None:
    first = place_all(CLUSTER, [request("p", 2), request("q", 2)], Compact())
    current = {name: placement.by_slot() for name, placement in first.placements.items()}
    assert running(current) == ThreadMoves(kept=4, moved=0, started=0, stopped=0)
    # its node is full, so further threads go to another rack unless moving all of it pays
    assert running(current, grown=3, move_cost=8.0) == ThreadMoves(kept=4, moved=0, started=2, stopped=0)
    assert running(current, grown=1) == ThreadMoves(kept=2, moved=0, started=0, stopped=2)


def test_a_pipeline_moves_where_that_pays() -> None:
    # a and b in different racks: 3 hops; together on one slot 0. Two of four threads move: 3 > 0.5 * 2 / 4, and
    # 3 < 8 * 2 / 4
    apart = {"p": {Slot("n0", 0): {"a": 2}, Slot("n2", 0): {"b": 2}}}
    assert running(apart).moved == 2
    assert running(apart, move_cost=8.0).moved == 0


@dataclass(frozen=True)
class Remembers:
    """Notes what it is told to run, and places as compact does."""

    told: list[dict[str, dict[Slot, int]]]

    name: ClassVar[str] = "remembers"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        self.told.append({name: dict(row) for name, row in request.current.items()})
        return Compact().place(request, room)


def test_a_placer_is_told_what_runs() -> None:
    placer = Remembers([])
    rows = {Slot("n0", 0): {"a": 2}, Slot("n2", 0): {"b": 2}}
    place_again(CLUSTER, [request("p", 2)], placer, {"p": rows}, 0.5)
    assert placer.told == [{"a": {Slot("n0", 0): 2}, "b": {Slot("n2", 0): 2}}]


def test_a_pipeline_of_higher_priority_displaces_others() -> None:
    low = PlacementRequest("low", (OperatorRequest("a", 16, (100.0, 500.0)),), (), (0,))
    high = PlacementRequest("high", (OperatorRequest("a", 8, (100.0, 500.0)),), (), (0,))
    first = place_all(CLUSTER, [(low, 2)], Compact())
    current = {"low": first.placements["low"].by_slot()}
    answer = place_again(CLUSTER, [(low, 2), (high, 1)], Compact(), current, 0.5)
    assert set(answer.placements) == {"high"}
    assert set(answer.refused) == {"low"}


def test_placement_files() -> None:
    row = {"node": "n1", "slot": 0, "threads": {"a": 2}}
    assert parse_placement({"placer": "x", "placement": {"p": [row]}}, "f") == {"p": {Slot("n1", 0): {"a": 2}}}
    with pytest.raises(
        BadInputError, match="f: placement: expected what `penstock cluster place --json --full` prints"
    ):
        parse_placement({"placer": "x"}, "f")
    with pytest.raises(BadInputError, match="slot n1/0 is held by 'p' already"):
        parse_placement({"placement": {"p": [row], "q": [row]}}, "f")
