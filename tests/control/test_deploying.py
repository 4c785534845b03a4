"""The rounds of a deployment: pure with readings made by hand, and whole in simulated time."""

from __future__ import annotations

import pytest

import penstock
from penstock.base.errors import BadInputError
from penstock.control.deployment import (
    DeployPlan,
    DeployTarget,
    MeasuredCosts,
    OperatorReading,
    PublishedCosts,
    RoundReading,
    ShortOf,
    StopReason,
    analyse,
    deploy_in_rounds,
)

TARGET = DeployTarget(1000.0, 500.0, 6)


def reading(rate: float, latency: float | None = 100.0, busy: float = 1.0, **more: float) -> RoundReading:
    return RoundReading(rate, latency, stable=False, operators={"a": OperatorReading(rate, busy, 2)}, node_cpu=more)


class TestAnalysis:
    @pytest.mark.parametrize(
        ("found", "shortage", "evidence"),
        [
            (reading(1000), ShortOf.NOTHING, "1000 tuples/s"),
            (reading(1000, 900), ShortOf.LATENCY, "900 ms of 500"),
            (reading(1000, None), ShortOf.LATENCY, "inf ms of 500"),
            (reading(700), ShortOf.OPERATOR, "it does 700 tuples/s and 1000 are wanted"),
            (reading(700, busy=0.5, n1=0.95), ShortOf.NODE, "node 'n1' uses 95% of its CPU"),
            (reading(700, busy=0.5, n1=0.5), ShortOf.ENGINE, "nothing is at its limit"),
        ],
    )
    def test_what_is_short_is_named_with_its_evidence(
        self, found: RoundReading, shortage: ShortOf, evidence: str
    ) -> None:
        answer = analyse(found, TARGET, {"a": 1.0})
        assert answer.shortage is shortage
        assert evidence in answer.evidence
        assert answer.met == (shortage is ShortOf.NOTHING)


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
            "round 1: 666.7 tuples/s on 5 nodes",
            "round 2: 1,067 tuples/s on 8 nodes",
        ]

    def test_it_ends_after_so_many_rounds(self) -> None:
        found = rounds(3.0, PublishedCosts(), most_rounds=3)
        assert found.reason is StopReason.ROUNDS
        assert len(found.rounds) == 3


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

    def test_on_spark_a_round_is_read_after_it_has_settled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[tuple[float, float, int]] = []

        def ran(pipeline: object, rate: float, *, slots: int, seconds: float, warm_up: float, **_: object) -> object:
            asked.append((seconds, warm_up, slots))
            return penstock.simulate(penstock.plan("linear", 50), rate, seconds=6, warm_up=1)

        monkeypatch.setattr("penstock.api.deployment.run", ran)
        found = penstock.deploy("linear", 50, budget=8, stabilise_seconds=60, read_seconds=30, most_rounds=1)
        assert asked == [(90, 60, 2 * found.rounds[0].plan.nodes)]

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
