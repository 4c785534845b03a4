"""`penstock.simulate`: plans in, results out, and everything that can be wrong about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import BadInputError, InterruptedWorkError
from penstock.engines.rate_search import highest_stable
from penstock.engines.simulated.preparation import parse_network, parse_outage, parse_switch
from penstock.planning.files import write_plan
from penstock.report.simulated_result import Measured, read_measured
from penstock.simulation.scenario import Outage

LINEAR = penstock.plan("linear", 100)
"""7 slots: 80 tuples/s with shuffle routing, 100 with slot-aware."""
STAR = penstock.plan("star", 60)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("plans")
    for name, plan in (("linear", LINEAR), ("star", STAR), ("linear-200", penstock.plan("linear", 200))):
        write_plan(plan, folder / f"{name}.json")
    return {file.stem: file for file in folder.iterdir()}


def test_a_plan_at_its_own_rate_does_what_was_predicted() -> None:
    result = penstock.simulate(LINEAR, seconds=40)
    assert result.stable
    assert result.report.sustained_rate == pytest.approx(100, rel=0.01)
    assert result.predicted_rate == pytest.approx(100)
    for slot, (cpu, memory) in result.report.slots.items():
        predicted_cpu, predicted_memory = result.first.predicted_slots[slot]
        assert cpu == pytest.approx(predicted_cpu, rel=0.05)
        assert memory == pytest.approx(predicted_memory, rel=0.05)
    assert result.report.audit.lost == 0


def test_a_plan_object_and_its_file_are_the_same(files: dict[str, Path]) -> None:
    options: dict[str, Any] = {"seconds": 10, "arrivals": "poisson", "seed": 3}
    from_file = penstock.simulate(files["linear"], **options).document()
    assert penstock.simulate(LINEAR, **options).document() == from_file
    assert penstock.simulate(LINEAR, **{**options, "seed": 4}).document() != from_file


@pytest.mark.parametrize(("routing", "most"), [("shuffle", 80), ("slot-aware", 100)])
def test_the_highest_stable_rate_is_the_predicted_one(routing: str, most: float) -> None:
    result = penstock.simulate(LINEAR, routing=routing, find_max=True, seconds=30)
    assert result.predicted_rate == pytest.approx(most)
    assert result.highest_rate == pytest.approx(most, rel=0.02)
    assert result.rate_error == pytest.approx(0, abs=0.02)
    assert {trial.stable for trial in result.tried} == {True, False}


def test_bisection() -> None:
    asked: list[float] = []

    def stable(rate: float) -> bool:
        asked.append(rate)
        return rate <= 317

    # 100, 125, 156, 195, 244, 305 are stable, 381 is not; then halves of the rest, to within 1 %
    found = highest_stable(stable, 100)
    assert found == pytest.approx(317, rel=0.01)
    assert found is not None
    assert found <= 317
    assert asked[:3] == [100, 125, 156.25]
    assert highest_stable(lambda rate: rate <= 3, 100) == pytest.approx(3, rel=0.01)
    assert highest_stable(lambda _rate: False, 100) is None


def test_an_overload_is_unstable_and_names_its_bottleneck() -> None:
    result = penstock.simulate(LINEAR, 200, seconds=20)
    assert not result.stable
    assert result.report.backlog > 1000
    assert result.first.bottleneck is not None
    document = result.document()
    assert document["stable"] is False
    assert document["bottleneck"].startswith("'")
    json.dumps(document, allow_nan=False)


def test_a_closed_loop_is_limited_by_itself() -> None:
    one, two = (penstock.simulate(LINEAR, 90, in_flight=count, seconds=24, warm_up=8) for count in (50, 100))
    assert not one.stable
    assert one.first.bottleneck is not None
    assert one.first.bottleneck.startswith("the loop of 50 tuples in flight")
    # nothing queues, so a tuple takes as long with either, and twice as many in flight do twice as much
    assert two.report.sustained_rate == pytest.approx(2 * one.report.sustained_rate, rel=0.1)


def test_plans_that_name_the_same_nodes_share_them() -> None:
    alone = penstock.simulate(STAR, seconds=20)
    both = penstock.simulate([LINEAR, STAR], seconds=20)
    assert alone.stable
    # both are placed on slots of n1, which cannot do both
    assert not both.stable
    assert both.pipelines[1].report.sustained_rate < 0.9 * alone.report.sustained_rate
    document = both.document()
    assert [one["pipeline"] for one in document["pipelines"]] == ["linear", "star"]
    assert document["fairness"][-1][1] < 0.95
    # CPU of a shared slot is not one pipeline's, so it does not stand beside a prediction for one
    assert "cpu" not in document["pipelines"][0]["comparison"]


def test_each_plan_may_have_its_load() -> None:
    result = penstock.simulate([LINEAR, STAR], ["10", "steps:5x5,5x8"], seconds=20)
    assert result.stable
    assert result.pipelines[0].report.offered_rate == pytest.approx(10, rel=0.02)
    assert result.pipelines[1].load.peak_rate == 8


def test_an_outage_loses_tuples_and_a_drained_switch_none(files: dict[str, Path]) -> None:
    lost = penstock.simulate(LINEAR, 50, seconds=30, outages=["n1@10-12"]).report.audit.lost
    assert lost is not None
    assert lost > 0
    load = "steps:15x90,15x150"
    switches = [f"{files['linear-200']}@15"]
    switched = penstock.simulate(LINEAR, load, seconds=60, switches=switches, pause_seconds=1).report
    assert switched.audit.lost == 0
    assert any("a switch" in note for note in switched.notes)
    # the first plan does 100 of 150 tuples/s: 45 s later 2,250 more wait; the second does 200 and catches up
    stayed = penstock.simulate(LINEAR, load, seconds=60).report
    assert stayed.backlog > 2250
    assert switched.backlog < stayed.backlog / 2
    dropped = penstock.simulate(LINEAR, load, seconds=60, switches=switches, drain=False).report
    assert dropped.audit.lost


def test_fused_has_one_server_so_an_overload_shows_the_most_it_does() -> None:
    result = penstock.simulate(LINEAR, 500, mode="fused", seconds=60)
    assert not result.stable
    assert result.document()["mode"] == "fused"
    # the formula counts every begun round of threads as a full one, so it errs on the low side
    assert result.rate_error is not None
    assert -0.3 < result.rate_error < 0.02
    # a tuple waits for the batch under way, and for its own
    stable = penstock.simulate(LINEAR, 20, mode="fused", seconds=60)
    assert stable.stable
    assert stable.report.latency_ms["p50"] > 1000 * stable.report.seconds / stable.report.batches / 2


def measured(**changes: Any) -> dict[str, Any]:
    return {
        "pipeline": "linear",
        "mode": "placed",
        "offered_rate": 100.0,
        "sustained_rate": 90.0,
        "stable": False,
        "latency_ms": {"p50": 1000.0, "p95": 4000.0},
        "slots": [{"node": "n1", "slot": 0, "cpu": 0.5, "memory_mb": 100.0}],
        **changes,
    }


def test_measured_stands_beside_simulated(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(measured()))
    result = penstock.simulate(LINEAR, seconds=20, measured=file)
    rate = result.first.comparison["rate"]
    assert rate["measured"] == 90
    assert rate["simulated_error"] == pytest.approx(result.report.sustained_rate / 90 - 1)
    latency = result.first.comparison["latency_p50_ms"]
    assert latency["measured"] == 1000
    assert result.first.comparison["latency_p99_ms"]["measured"] is None
    assert not result.notes
    other = penstock.simulate(LINEAR, 50, seconds=20, measured=read_measured(file))
    assert other.notes == ("'linear' was offered 100 tuples/s when it was measured, and 50 here: give the same load",)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "run.json: expected what penstock run --json printed, found list"),
        ({"pipeline": "linear"}, "it has no 'mode'"),
        (measured(sustained_rate="many"), "could not convert"),
        (measured(pipeline="star"), "a run of 'star', which is not simulated"),
        (measured(mode="fused"), "'linear' was run fused; simulate it so: mode='fused'"),
    ],
)
def test_bad_measured_files(tmp_path: Path, document: Any, complaint: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(document))
    with pytest.raises(BadInputError, match=complaint):
        penstock.simulate(LINEAR, measured=file)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"load": -5}, "load: expected a finite number of tuples/s above 0, found -5"),
        ({"load": "waves:5"}, "expected a rate, steps"),
        ({"load": [1, 2]}, "one for each of the 1, found 2"),
        ({"seconds": 0}, "seconds: .* above 0, found 0"),
        ({"seconds": -1}, "seconds: .* above 0, found -1"),
        ({"seconds": float("nan")}, "seconds"),
        ({"seconds": 5, "warm_up": 5}, "warm_up=: .*less than the 5 s, found 5"),
        ({"warm_up": -1}, "warm_up=: .*found -1"),
        ({"arrivals": "poison"}, "unknown arrivals 'poison'; did you mean 'poisson'?"),
        ({"service": "normal"}, "unknown service 'normal'"),
        ({"routing": "random"}, "unknown routing 'random'"),
        ({"mode": "segmented"}, "unknown mode 'segmented'"),
        ({"queue_limit": 0}, "queue_limit: expected at least 1"),
        ({"in_flight": -3}, "in_flight: expected at least 1"),
        ({"skew": -1}, "skew: expected at least 0"),
        ({"batch_interval_ms": 0}, "batch interval: .*above 0"),
        ({"network": "bandwidth=0"}, "bandwidth_mbps: .*above 0, found 0"),
        ({"network": "bandwith=5"}, "unknown 'bandwith'; did you mean 'bandwidth'?"),
        ({"network": "same-rack=-1"}, "same_rack_ms: expected at least 0"),
        ({"outages": ["n9@5"]}, "outage: unknown node 'n9'; .*known: n1"),
        ({"outages": ["n1@9-5"]}, "an end after it"),
        ({"replay_seconds": 0}, "replay_seconds: .*above 0"),
        ({"switches": [(STAR, 5)]}, "a switch to a plan of 'star', which is not simulated"),
        ({"switches": [(LINEAR, -5)]}, "expected a time and a pause of at least 0"),
        ({"find_max": True, "load": 5}, "no load="),
        ({"slots": 2}, "slots=: only for mode='fused'"),
        ({"mode": "fused", "in_flight": 5, "outages": ["n1@5"]}, "in_flight=, outages=: not for mode='fused'"),
        ({"mode": "fused", "slots": 0}, "slots=: expected 1 to 1000, found 0"),
        ({"mode": "fused", "batch_overhead_ms": 0}, "batch overhead: expected 0.001 to"),
        ({"mode": "fused", "batch_interval_ms": -1}, "batch interval: expected 0.001 to"),
        ({"mode": "fused", "seconds": 1e12}, "seconds: expected 0.001 to"),
        ({"mode": "fused", "slots": 10**9}, "slots=: expected 1 to 1000"),
        ({"mode": "fused", "load": 1e9}, "simulate fewer seconds"),
    ],
)
def test_bad_options(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        penstock.simulate(LINEAR, **options)


def test_bad_plans(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="linear: a pipeline, not a plan of one: make one with `plan`"):
        penstock.simulate("linear")
    with pytest.raises(BadInputError, match="at least one plan"):
        penstock.simulate([])
    with pytest.raises(BadInputError, match="pipeline 'linear' is given twice"):
        penstock.simulate([LINEAR, files["linear-200"]], cluster=penstock.plan("linear", 200).cluster)
    with pytest.raises(BadInputError, match="node 'n1' has 1 slots in rack 'r1', in plan 8"):
        penstock.simulate([LINEAR, penstock.plan("diamond", 10)])
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("nodes: [{name: m1, slots: 8}]\n")
    with pytest.raises(BadInputError, match=r"the cluster has no node 'n1', which it uses; .*m1"):
        penstock.simulate(files["linear"], cluster=cluster)
    cluster.write_text("nodes: [{name: n1, slots: 2}]\n")
    with pytest.raises(BadInputError, match=r"it uses slot n1/., and the node has slots 0 to 1"):
        penstock.simulate(files["linear"], cluster=cluster)
    document = json.loads(files["linear"].read_text())
    document["definition"]["operators"]["X"] = {"model": "home_made"}
    strange = tmp_path / "strange.json"
    strange.write_text(json.dumps(document))
    with pytest.raises(BadInputError, match=r"strange.json: operator 'X': no model named 'home_made'"):
        penstock.simulate(strange)
    document["operators"]["Y"] = document["operators"].pop("X")
    strange.write_text(json.dumps(document))
    with pytest.raises(BadInputError, match=r"strange.json"):
        penstock.simulate(strange)


def test_a_cluster_file_knows_speeds(files: dict[str, Path], tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("nodes: [{name: n1, slots: 8, speed: 0.5}]\n")
    assert not penstock.simulate(files["linear"], 80, cluster=cluster, seconds=20).stable
    assert penstock.simulate(files["linear"], 80, seconds=20).stable


def test_what_strings_say() -> None:
    assert parse_outage("n1@5") == Outage("n1", 5, None)
    assert parse_outage("rack@1-n@5.5-9") == Outage("rack@1-n", 5.5, 9)
    assert parse_switch("a@b.json@12") == ("a@b.json", 12)
    network = parse_network("same-rack=2,bandwidth=100")
    assert (network.same_rack_ms, network.bandwidth_mbps) == (2, 100)
    for text in ("n1", "@5", "n1@", "n1@five"):
        with pytest.raises(BadInputError, match="expected NODE@START"):
            parse_outage(text)
    for text in ("plan.json", "@5", "plan.json@soon"):
        with pytest.raises(BadInputError, match="expected PLAN@SECONDS"):
            parse_switch(text)


def test_a_search_that_is_interrupted_says_what_it_found() -> None:
    class Impatient(penstock.Listener):
        def on_message(self, text: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedWorkError, match="highest stable rate so far: 100 tuples/s"):
        penstock.simulate(LINEAR, find_max=True, seconds=15, listener=Impatient())


def test_measured_is_a_value() -> None:
    assert Measured("p", "fused", 1, 1, True, {}, {}).cpu is None
