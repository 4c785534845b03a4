"""The rounds of a deployment: pure with readings made by hand, and whole in simulated time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import BadInputError, ClusterError, RunError
from penstock.cluster.contract import NodeRequest
from penstock.cluster.simulated import SimulatedCluster
from penstock.cluster.simulated import equal_nodes as simulated_nodes
from penstock.control.contracts import NodeOffer, ProvidedNode, ProviderError
from penstock.control.deployment import (
    DeployPlan,
    DeployTarget,
    InterruptedRoundError,
    MeasuredCosts,
    OperatorReading,
    PublishedCosts,
    RoundReading,
    ShortOf,
    StopReason,
    analyse,
    deploy_in_rounds,
)
from penstock.control.executors import spark_rounds
from penstock.dataflow.pipeline import Kind
from penstock.modelling.library import read_models_and_profiles
from penstock.report.report import OperatorObservation

TARGET = DeployTarget(1000.0, 500.0, 6)


def reading(rate: float, latency: float | None = 100.0, busy: float = 1.0, **more: float) -> RoundReading:
    return RoundReading(rate, latency, stable=False, operators={"a": OperatorReading(rate, busy, 2)}, node_cpu=more)


class TestAnalysis:
    @pytest.mark.parametrize(
        ("found", "shortage", "evidence"),
        [
            (reading(1000), ShortOf.NOTHING, "1000 rows/s"),
            (reading(1000, 900), ShortOf.LATENCY, "900 ms of 500"),
            (reading(1000, None), ShortOf.LATENCY, "inf ms of 500"),
            (reading(700), ShortOf.OPERATOR, "it does 700 rows/s and 1000 are wanted"),
            (reading(700, busy=0.5, n1=0.95), ShortOf.NODE, "node 'n1' uses 95% of its CPU"),
            (reading(700, busy=0.5, n1=0.5), ShortOf.ENGINE, "nothing is at its limit"),
            # all that arrives is done: 690 of 700
            (replace(reading(690), offered=700.0), ShortOf.SOURCE, "the source gives 700 rows/s"),
            # a queue grows: 500 of 700
            (replace(reading(500), offered=700.0), ShortOf.OPERATOR, "operator 'a'"),
            (replace(reading(700), machine_cpu=0.93), ShortOf.MACHINE, "93% of this machine"),
            (replace(reading(1000), lost_nodes=("n2",)), ShortOf.LOST_NODE, "node 'n2' died during the round"),
        ],
    )
    def test_what_is_short_is_named_with_its_evidence(
        self, found: RoundReading, shortage: ShortOf, evidence: str
    ) -> None:
        answer = analyse(found, TARGET, {"a": 1.0})
        assert answer.shortage is shortage
        assert evidence in answer.evidence
        assert answer.met == (shortage is ShortOf.NOTHING)

    @pytest.mark.parametrize(
        ("kind", "shortage"),
        [(Kind.SOURCE, ShortOf.SOURCE), (Kind.SINK, ShortOf.SINK), (Kind.OPERATOR, ShortOf.OPERATOR)],
    )
    def test_a_source_or_sink_that_is_always_at_work_is_named_as_such(self, kind: Kind, shortage: ShortOf) -> None:
        found = replace(reading(700), operators={"a": OperatorReading(700, 0.97, 1, kind)})
        answer = analyse(found, TARGET, {"a": 1.0})
        assert (answer.shortage, answer.evidence.split(" at work")[0]) == (shortage, f"{shortage} 'a' is")

    def test_a_full_process_is_short_with_all_its_operators(self) -> None:
        # one process, 0.96 of a core, of which a's code has 0.6 and b's 0.36: neither alone is at its limit
        both = {
            "a": OperatorReading(700, 0.3, 2, process=0.96, process_part=0.6),
            "b": OperatorReading(700, 0.2, 2, process=0.96, process_part=0.36),
        }
        answer = analyse(replace(reading(700), operators=both), TARGET, {"a": 1.0, "b": 1.0})
        assert (answer.shortage, set(answer.short)) == (ShortOf.OPERATOR, {"a", "b"})
        assert "fills 96% of the core of its process: it does 729.2 rows/s" in answer.evidence
        # by its part of the core: 700 / 0.6
        assert both["a"].true_rate == pytest.approx(1166.7, abs=0.1)


class TestCosts:
    def test_measured_is_planned_over_true_and_published_a_tenth(self) -> None:
        plan = DeployPlan(1, {"a": 2}, {"a": 1200.0})
        found = reading(700, busy=0.8)
        answer = analyse(found, TARGET, {"a": 1.0})
        # true rate 700 / 0.8 = 875, planned 1200
        assert MeasuredCosts().next_costs({"a": 1.0}, plan, found, answer)["a"] == pytest.approx(1200 / 875)
        assert PublishedCosts().next_costs({"a": 1.0}, plan, found, answer)["a"] == pytest.approx(1.1)


def rounds(true_cost: float, planner: object, budget: int = 16, **more: object) -> penstock.types.Deployment:
    """One operator: a node does 200 tuples/s by its model, 200 / true_cost in truth."""

    def plan_for(costs: dict[str, float]) -> DeployPlan:
        nodes = int(-(-1000 * costs["a"] // 200))
        return DeployPlan(nodes, {"a": nodes}, {"a": nodes * 200 / costs["a"]})

    def execute(plan: DeployPlan) -> RoundReading:
        most = plan.nodes * 200 / true_cost
        rate = min(1200.0, most)
        return RoundReading(rate, 100.0, most >= 1200, {"a": OperatorReading(rate, rate / most, plan.nodes)})

    target = DeployTarget(1000.0, 500.0, budget)
    return deploy_in_rounds(target, {"a": 1.0}, planner, plan_for, execute, **more)  # type: ignore[arg-type]


class TestRounds:
    def test_measured_needs_two_and_published_more(self) -> None:
        # 5 nodes do 1000 / 1.5 = 667; 8 do 1067
        found = rounds(1.5, MeasuredCosts())
        assert found.reason is StopReason.MET
        assert [done.plan.nodes for done in found.rounds] == [5, 8]
        slowly = rounds(1.5, PublishedCosts())
        assert slowly.met
        assert [done.plan.nodes for done in slowly.rounds] == [5, 6, 7, 8]

    def test_a_budget_is_not_exceeded_and_the_best_is_kept(self) -> None:
        found = rounds(1.5, MeasuredCosts(), budget=6)
        assert found.reason is StopReason.BUDGET
        assert "8 nodes, the budget is 6" in found.why
        assert found.best is not None
        assert found.best.plan.nodes == 5

    def test_the_listener_hears_of_every_round(self) -> None:
        class Heard(penstock.Listener):
            def __init__(self) -> None:
                self.lines: list[str] = []

            def on_message(self, text: str) -> None:
                self.lines.append(text)

        listener = Heard()
        rounds(1.5, MeasuredCosts(), listener=listener)
        assert [line.split(";")[0] for line in listener.lines] == [
            "round 1: 666.7 rows/s on 5 nodes",
            "round 2: 1,067 rows/s on 8 nodes",
        ]

    def test_it_ends_after_so_many_rounds(self) -> None:
        found = rounds(3.0, PublishedCosts(), most_rounds=3)
        assert found.reason is StopReason.ROUNDS
        assert len(found.rounds) == 3

    @pytest.mark.parametrize(
        ("error", "reason", "why"),
        [
            (ProviderError("no money"), StopReason.PROVIDER, "no money"),
            (RunError("a row killed it"), StopReason.FAILED, "round 2 failed: a row killed it"),
            (InterruptedRoundError("interrupted"), StopReason.INTERRUPTED, "interrupted in round 2"),
            (KeyboardInterrupt(), StopReason.INTERRUPTED, "interrupted in round 2"),
        ],
    )
    def test_what_goes_wrong_ends_the_rounds_and_keeps_the_best(
        self, error: BaseException, reason: StopReason, why: str
    ) -> None:
        def provide(costs: object, plan: DeployPlan) -> DeployPlan:
            if plan.nodes > 5:
                raise error
            return plan

        found = rounds(1.5, MeasuredCosts(), provide=provide)
        assert (found.reason, found.why) == (reason, why)
        assert found.best is not None
        assert found.best.number == 1

    def test_a_round_that_lost_a_node_is_made_again(self) -> None:
        lost = iter([("n3",), ()])

        def execute(plan: DeployPlan) -> RoundReading:
            return replace(reading(1000.0), lost_nodes=next(lost))

        found = deploy_in_rounds(
            TARGET, {"a": 1.0}, MeasuredCosts(), lambda _: DeployPlan(3, {"a": 3}, {"a": 1e6}), execute
        )
        assert found.met
        assert [done.analysis.shortage for done in found.rounds] == [ShortOf.LOST_NODE, ShortOf.NOTHING]

    def test_the_same_plan_twice_ends_with_what_is_short(self) -> None:
        found = deploy_in_rounds(
            TARGET, {"a": 1.0}, MeasuredCosts(), lambda _: DeployPlan(3, {"a": 3}, {"a": 1.0}), lambda _: reading(700.0)
        )
        assert found.reason is StopReason.SAME_PLAN
        assert "operator 'a' is at work 100%" in found.why


class TestInSimulatedTime:
    def test_measured_reaches_the_target_in_two_rounds(self) -> None:
        found = penstock.deploy("linear", 100, budget=16, simulated=True, truth={"P": 1.4})
        assert found.met
        assert len(found.rounds) == 2
        assert "operator 'P'" in found.rounds[0].analysis.evidence

    def test_what_tuples_cost_is_profiled_in_every_round(self) -> None:
        found = penstock.deploy("linear", 100, budget=16, simulated=True, truth={"P": 1.4})
        first, second = (done["profiles"]["P"] for done in found.document()["rounds"])
        # by its model a thread does 105 a second, two of a slot 110; here all takes 1.4 times as long
        assert first["sojourn_seconds"] == pytest.approx(1.4 / 105, rel=0.05)
        assert first["processing_cpu"] == pytest.approx(140 / 105, rel=0.05)
        assert first["memory_mb"] > 0
        assert second["sojourn_seconds"] == pytest.approx(2 * 1.4 / 110, rel=0.05)

    def test_a_target_no_number_of_nodes_meets_ends_with_what_is_short(self) -> None:
        found = penstock.deploy("linear", 50, latency_ms=1.0, budget=64, simulated=True)
        assert not found.met
        assert "ms of 1" in found.why
        # a second round with more nodes is as slow: a third with more still would be too
        assert found.reason is StopReason.LATENCY
        assert len(found.rounds) == 2
        assert found.best == found.rounds[0]

    def test_a_budget_below_the_smallest_plan_is_said_before_anything_runs(self) -> None:
        found = penstock.deploy("linear", 200, budget=2, simulated=True)
        assert found.reason is StopReason.BUDGET
        assert found.rounds == ()

    @pytest.mark.parametrize(
        ("given", "why"),
        [
            ({"rate": float("nan")}, "rate"),
            ({"budget": 0}, "budget"),
            ({"latency_ms": -1.0}, "latency"),
            ({"planner": "guess"}, "unknown planner 'guess'"),
            ({"truth": {"nobody": 2.0}}, "no operator 'nobody'"),
            ({"simulated": False, "truth": {"*": 2.0}}, "simulated=True"),
        ],
    )
    def test_bad_input_is_one_line(self, given: dict[str, object], why: str) -> None:
        with pytest.raises(BadInputError, match=why):
            penstock.deploy("linear", **{"rate": 100.0, "simulated": True, **given})  # type: ignore[arg-type]

    @pytest.mark.parametrize("rate", [0.0, -5.0, float("inf"), float("nan")])
    def test_a_target_must_be_a_rate(self, rate: float) -> None:
        with pytest.raises(BadInputError, match="rate"):
            penstock.deploy("linear", rate, simulated=True)

    def test_an_operator_without_a_model_is_refused_by_name(self) -> None:
        pipeline = penstock.pipeline("own").source("in").then("odd", threads=2, cpu=10.0, memory_mb=64.0).sink("out")
        with pytest.raises(BadInputError, match=r"operator 'odd' was not measured.*penstock profile PIPELINE"):
            penstock.deploy(pipeline, 10, simulated=True)


class Cloud:
    """A provider of nodes for a simulated cluster. `slots` of the nodes it gives; the rest is what goes wrong."""

    def __init__(self, cluster: SimulatedCluster, slots: int = 2, fails_after: int = 99) -> None:
        self.cluster, self.slots, self.fails_after = cluster, slots, fails_after
        self.given: list[str] = []
        self.released: list[str] = []

    def load(self, _name: str) -> Cloud:
        return self

    def offer(self, _options: str) -> NodeOffer:
        return NodeOffer(2, 0.1)

    def make(self, _options: str, _setting: object) -> Cloud:
        return self

    def acquire(self, count: int, size: str | None) -> list[ProvidedNode]:
        if len(self.given) >= self.fails_after:
            raise ProviderError("no more machines")
        (made,) = self.cluster.add_nodes(NodeRequest(count, size))
        self.given.append(made.name)
        return [ProvidedNode(made.name, made.slots or 1)]

    def release(self, name: str) -> None:
        self.cluster.remove_node(name)
        self.released.append(name)


Ran = Callable[[Any, float], Any]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cloud]:
    """A simulated cluster, a provider for it, and runs in simulated time in the place of Spark's."""

    def make(before: int = 1, slots: int = 2, ran: Ran | None = None, **cloud: Any) -> Cloud:
        cluster = SimulatedCluster(simulated_nodes(before, slots))
        made = Cloud(cluster, slots, **cloud)

        def run(rounds: Any, plan: DeployPlan, rate: float, _listener: object) -> Any:
            if ran is not None:
                ran(cluster, rate)
            report = penstock.simulate(plan.made, rate, seconds=20, warm_up=5).report
            operators = {
                name: OperatorObservation(seen.received, seen.sent, 0, 0, seen.busy_seconds)
                for name, seen in report.operators.items()
            }
            done = replace(report, operators=operators)
            return type("Result", (), {"report": done, "interrupted": False, "places": (), "slots": 2})()

        monkeypatch.setattr(spark_rounds, "open_cluster", lambda *_, **__: cluster)
        monkeypatch.setattr(spark_rounds, "NODE_PROVIDERS", made)
        monkeypatch.setattr(spark_rounds.SparkRounds, "_run", run)
        return made

    return make


GIVEN: dict[str, Any] = {"master": "simulated", "provider": "cloud", "stabilise_seconds": 1.0, "read_seconds": 2.0}


class TestNodes:
    def test_the_nodes_of_a_plan_are_acquired_and_released(self, site: Callable[..., Cloud]) -> None:
        cloud = site()
        found = penstock.deploy("linear", 50, budget=8, **GIVEN)
        assert found.met
        # linear needs 6 slots at 50 a second: one node was there, the others were acquired
        assert len(cloud.given) == found.rounds[-1].plan.nodes - 1 > 0
        assert sorted(cloud.released) == sorted(cloud.given)
        assert {row["node"] for row in found.document()["rounds"][0]["placement"]} <= {"n1", *cloud.given}

    def test_smaller_nodes_than_asked_for_mean_more_of_them(self, site: Callable[..., Cloud]) -> None:
        site()
        usual = penstock.deploy("linear", 50, budget=8, **GIVEN)
        cloud = site(slots=1)
        found = penstock.deploy("linear", 50, budget=12, **GIVEN)
        assert found.met
        assert found.rounds[0].plan.nodes > usual.rounds[0].plan.nodes
        assert sorted(cloud.released) == sorted(cloud.given)

    def test_nodes_too_small_for_the_budget_are_refused_and_released(self, site: Callable[..., Cloud]) -> None:
        cloud = site(slots=1)
        found = penstock.deploy("linear", 50, budget=3, **GIVEN)
        assert (found.reason, found.rounds) == (StopReason.BUDGET, ())
        assert cloud.cluster.topology().find("n1") is not None
        assert sorted(cloud.released) == sorted(cloud.given)

    def test_a_provider_that_fails_ends_the_rounds(self, site: Callable[..., Cloud]) -> None:
        cloud = site(slots=1, fails_after=1)
        found = penstock.deploy("linear", 50, budget=8, **GIVEN)
        assert (found.reason, found.why) == (StopReason.PROVIDER, "no more machines")
        assert cloud.released == cloud.given == ["n2"]

    def test_a_node_that_dies_in_a_round_is_replaced(self, site: Callable[..., Cloud]) -> None:
        victims = iter(["n2"])

        def ran(cluster: SimulatedCluster, _rate: float) -> None:
            for name in victims:
                cluster.lose_node(name)
                raise RunError("nowhere to go")

        cloud = site(ran=ran)
        found = penstock.deploy("linear", 50, budget=8, **GIVEN)
        assert found.met
        assert [done.analysis.shortage for done in found.rounds] == [ShortOf.LOST_NODE, ShortOf.NOTHING]
        assert found.rounds[0].reading.lost_nodes == ("n2",)
        assert sorted(cloud.released) == sorted(cloud.given)

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), RunError("a row killed it"), ClusterError("no answer")])
    def test_whatever_ends_a_round_no_node_is_left(self, site: Callable[..., Cloud], error: BaseException) -> None:
        def ran(_cluster: SimulatedCluster, _rate: float) -> None:
            raise error

        cloud = site(ran=ran)
        found = penstock.deploy("linear", 50, budget=8, **GIVEN)
        assert found.reason in {StopReason.INTERRUPTED, StopReason.FAILED}
        assert cloud.given
        assert sorted(cloud.released) == sorted(cloud.given)

    def test_without_a_provider_the_free_nodes_are_all_there_are(self, site: Callable[..., Cloud]) -> None:
        site(before=2, slots=1)
        found = penstock.deploy("linear", 50, budget=8, **{**GIVEN, "provider": None})
        assert found.reason is StopReason.PROVIDER
        assert "2 are free, and no provider adds any" in found.why

    @pytest.mark.parametrize(
        ("given", "why"),
        [
            ({"master": None, "provider": "command:x.json"}, "name the cluster that its nodes join"),
            ({"master": "local[2]", "provider": None}, "not embedded"),
            ({"engine": "simulated"}, "expected auto, placed or fused"),
            ({"sample_every": 0}, "sample_every"),
            ({"read_seconds": float("nan")}, "read_seconds"),
            ({"stabilise_seconds": -1.0}, "stabilise_seconds"),
            ({"simulated": True}, "leave out master="),
        ],
    )
    def test_bad_input_is_one_line(self, site: Callable[..., Cloud], given: dict[str, Any], why: str) -> None:
        cloud = site()
        with pytest.raises(BadInputError, match=why):
            penstock.deploy("linear", 50, **{**GIVEN, **given})
        assert cloud.given == []

    def test_profiles_become_a_file_that_plans_read(self, site: Callable[..., Cloud], tmp_path: Path) -> None:
        site()
        file = tmp_path / "profiles.json"
        penstock.deploy("linear", 50, budget=8, profiles=file, **GIVEN)
        _, profiles = read_models_and_profiles(file)
        # operators that name the model of a reference task are known by its name
        assert {"parse_xml", "pi", "batch_file_write", "azure_blob", "azure_table"} <= {it.name for it in profiles}
        assert json.loads(file.read_text())["about"] == "Task profiles of linear, measured while it ran"
        made = penstock.plan("linear", 50, models=file, allocator="profiled", placer="packing")
        assert not any("no task profile" in warning for warning in made.warnings)
