"""The experiments themselves: their cases, some results by hand, and what they say of results."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from penstock.base.errors import BadInputError, InterruptedWorkError
from penstock.modelling.task_profile import Bound
from penstock_lab import sweep
from penstock_lab.contract import Agreement, Case, CaseResult, Experiment, Line, Measures, Results
from penstock_lab.experiments import p_deployer
from penstock_lab.experiments.model_driven import ModelDrivenEvaluation
from penstock_lab.experiments.model_driven_cases import PAIRS, policies, run_slots, without_ends
from penstock_lab.experiments.own_policies import Ours
from penstock_lab.experiments.p_deployer import BUDGET, PROFILES, PDeployerEvaluation, fewest_nodes, library, pipelines
from penstock_lab.page import PagePart, cell, head, write_page
from penstock_lab.published_values import read_published
from penstock_lab.registry import EXPERIMENTS, LIVE
from penstock_lab.spark_sweep import SweepOutcome
from penstock_lab.sweep import CaseStore, Finding, code_version, key_of

NAMES = EXPERIMENTS.names()


@pytest.mark.parametrize("name", NAMES)
def test_cases_are_plain_and_different(name: str) -> None:
    experiment = EXPERIMENTS.create(name)
    assert experiment.name == name
    for quick in (True, False):
        cases = list(experiment.cases(quick=quick))
        assert cases
        assert len({key_of(case) for case in cases}) == len(cases)
        assert json.loads(json.dumps(cases)) == cases


def test_an_unknown_experiment_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="unknown experiment 'model-drivn'; did you mean 'model-driven'"):
        sweep.sweep(["model-drivn"], folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_five_pairs() -> None:
    assert [policies(pair) for pair in PAIRS] == [
        ("lsa", "round-robin"),
        ("lsa", "rsm"),
        ("mba", "round-robin"),
        ("mba", "rsm"),
        ("mba", "sam"),
    ]


def test_diamond_at_100_is_what_section_841_describes() -> None:
    # 160 Table threads in bundles of 60 + 60 + 40 support 40 + 40 + 20. Dealt evenly, 40 of 160 threads get a quarter
    # of the stream: 20 / (1/4) = 80 tuples/s.
    found = run_slots({"part": "slots", "pipeline": "diamond", "rate": 100, "pair": "mba+sam", "seconds": 60})
    assert found["operators"]["T"]["threads"] == 160
    assert found["predicted_shuffle"] == pytest.approx(80)
    assert found["actual"] == 80
    assert found["slot_aware_reaches_the_rate"]


def test_sums_leave_out_source_and_sink() -> None:
    row = {"threads": 1, "cpu": 0.5, "memory": 0.25}
    assert without_ends({"source": row, "A": row, "B": row, "sink": row}) == {"threads": 2, "cpu": 1.0, "memory": 0.5}


def test_linear_of_cpu_bound_operators_is_planned_as_section_72_says() -> None:
    # 2,000 x 0.05 points fill a core; two such threads and the stream into them need more than a node's 200 points
    found = fewest_nodes("linear", 2000, "packing")
    assert found["threads"] == {"op1": 1, "op2": 1, "op3": 1, "op4": 1}
    assert found["nodes"] == 3


def test_a_target_nobody_reaches_within_the_budget() -> None:
    # 3 operators x 100,000 x 0.05 points = 150 cores; the budget has 32
    assert BUDGET == 16
    assert fewest_nodes("linear", 100_000, "packing") == {"nodes": None}


def test_under_metis_a_sojourn_thread_stands_for_five() -> None:
    assert library(for_metis=False).profiles["sojourn"].sojourn_seconds == pytest.approx(0.01)
    assert library(for_metis=True).profiles["sojourn"].sojourn_seconds == pytest.approx(0.002)
    assert [one.bound for one in PROFILES if one.name in ("cpu", "sojourn")] == [Bound.CPU, Bound.SOJOURN]
    assert list(pipelines()) == ["word-count", "linear", "diamond", "star"]


@cache
def result_of_p_deployer(case: str) -> Measures:
    """Return P-Deployer's result of a case, given as JSON: each is run once for all tests."""
    return PDeployerEvaluation().run_case(json.loads(case))


def stored(tmp_path: Path) -> PDeployerEvaluation:
    """Write a folder with P-Deployer's results."""
    experiment, store = PDeployerEvaluation(), CaseStore(tmp_path, "p-deployer")
    cases = list(experiment.cases(quick=True))
    store.begin(cases, quick=True)
    for case in cases:
        store.keep(case, result_of_p_deployer(json.dumps(case)), 0.0)
    return experiment


def test_the_page_has_a_table_and_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    stored(tmp_path)
    page = tmp_path / "results.md"
    written = write_page([tmp_path], page)
    assert [path.name for path in written] == ["results.md", "result-p-deployer-nodes.png"]
    assert all(path.is_file() for path in written)
    text = page.read_text()
    assert (
        "| nodes of the first plan | 3 nodes | 3 nodes | **not comparable** | the CPU-bound profile was chosen" in text
    )
    assert "](pictures/result-p-deployer-nodes.png)" in text
    assert "### What could not be reproduced, and why" in text
    assert "`--quick`): p-deployer." in text
    assert write_page([tmp_path], page) == written
    assert page.read_text() == text


def test_a_page_has_only_what_its_folders_have(tmp_path: Path) -> None:
    """A section without a file for its cases is not kept: nobody could check it."""
    pytest.importorskip("matplotlib")
    stored(tmp_path / "simulated")
    page = tmp_path / "results.md"
    write_page([tmp_path / "simulated"], page)
    text = page.read_text()
    page.write_text(text + "\n## priority-live\n\nOn Spark.\n")
    write_page([tmp_path / "simulated"], page)
    assert page.read_text() == text
    stored(tmp_path / "again")
    with pytest.raises(BadInputError, match="another folder has results of the experiment 'p-deployer'"):
        write_page([tmp_path / "simulated", tmp_path / "again"], page)


def test_own_policies_do_not_count_as_agreement(tmp_path: Path) -> None:
    """On top stand the sums over the sections that repeat a publication."""
    agrees, tie = (Line("", "", "", "", verdict) for verdict in (Agreement.AGREES, Agreement.TIE))
    results, nothing = Results(()), read_published(None)
    parts = [
        PagePart(Finding(PDeployerEvaluation(), False, results, nothing, (agrees, agrees), tmp_path), ""),
        PagePart(Finding(Ours(), False, results, nothing, (tie,), tmp_path), ""),
    ]
    text = head(parts)
    assert "has 2 agrees, 0 differs, 0 better, 0 tie, 0 worse, 0 not comparable now" in text
    assert "| [ours](#ours) | the axes of all documents | 0 | 0 | 0 | 1 | 0 | 0 |" in text


def test_a_page_has_cases_on_spark_as_far_as_they_are_done(tmp_path: Path) -> None:
    """Eight that take minutes each: two are done, one of them by other code, and both is said."""
    pytest.importorskip("matplotlib")
    experiment = LIVE.create("priority")
    store, cases = CaseStore(tmp_path, experiment.name), list(experiment.cases(quick=False))
    store.begin(cases, quick=False)
    seconds = {"TT high": 5.0, "TT low": 1.0, "O": None}
    measures = {**seconds, "nodes_off": [3, 2], "nodes_on": [3, 2], "lost": 0, "simulated": seconds}
    second = {case["policy"]: case for case in cases if case["use"] == 2}
    page = tmp_path / "results.md"
    with pytest.raises(BadInputError, match="no case of the experiment 'priority-live' is done"):
        write_page([tmp_path], page)
    for policy, high in (("static-priority", 7.0), ("dynamic-priority", 6.0)):
        store.keep(second[policy], {**measures, "TT high": high}, 1.0)
    older = store.path_of(second["static-priority"])
    older.write_text(older.read_text().replace(code_version(), "another"))
    write_page([tmp_path], page)
    text = page.read_text()
    assert "| Fig 35, rate=40 | TT, higher priority, seconds |" in text
    assert "Fig 10" not in text.partition("## priority-live")[2].partition("cases.")[2]
    assert "- 6 of 8 cases were not run." in text
    assert "- Made by an earlier version of the code, and not run again: policy static-priority." in text


def test_a_page_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no results here"):
        write_page([tmp_path], tmp_path / "results.md")


def test_text_cannot_break_a_table() -> None:
    assert cell("a|b\nc") == "a\\|b c"


def test_a_finished_sweep_needs_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path)
    told: list[tuple[int, int]] = []
    found = sweep.sweep(["p-deployer"], quick=True, folder=tmp_path, progress=lambda *count: told.append(count))
    total = len(found[0].results.all)
    assert told == [(total, total)]
    assert found[0].document()["verdicts"]["not comparable"] >= 2


@pytest.mark.parametrize(
    ("ended", "error", "message"),
    [
        (
            SweepOutcome(interrupted=True),
            InterruptedWorkError,
            r"29 of 30 cases are kept in .*; the same command goes on",
        ),
        (SweepOutcome(failed={}), BadInputError, "1 of 30 cases are missing"),
    ],
)
def test_a_sweep_that_does_not_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: SweepOutcome, error: type[Exception], message: str
) -> None:
    pytest.importorskip("pymetis")  # for its 15 cases
    experiment = stored(tmp_path)
    CaseStore(tmp_path, "p-deployer").path_of(experiment.cases(quick=True)[0]).unlink()
    monkeypatch.setattr("penstock_lab.spark_sweep.run_tasks", lambda *_given: ended)
    with pytest.raises(error, match=message):
        sweep.sweep(["p-deployer"], quick=True, folder=tmp_path, session=object())


def test_a_case_that_raises_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = stored(tmp_path)
    CaseStore(tmp_path, "p-deployer").path_of(experiment.cases(quick=True)[0]).unlink()
    monkeypatch.setattr(
        "penstock_lab.spark_sweep.run_tasks",
        lambda _session, _work, tasks, _tell: SweepOutcome(failed={tasks[0]: "ValueError: odd"}),
    )
    with pytest.raises(sweep.CasesFailedError, match=r"1 of \d+ cases.*'target': 2000.*ValueError: odd"):
        sweep.sweep(["p-deployer"], quick=True, folder=tmp_path, session=object())


def test_without_metis_the_lines_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoMetis:
        def names(self) -> list[str]:
            return ["packing"]

    monkeypatch.setattr(p_deployer, "PLACERS", NoMetis())
    experiment = stored(tmp_path)
    found = sweep.finding("p-deployer", tmp_path)
    skipped = [line for line in found.lines if line.verdict is Agreement.NOT_COMPARABLE]
    assert skipped
    why = "Metis is not installed: pip install 'penstock[metis]'"
    assert {line.why for line in skipped if line.where == "Fig 12"} == {why}
    assert experiment.charts(found.results, found.published)[0].note == why


def measured(case: Case) -> Measures:
    """Results as they could come out; the numbers mean nothing."""
    pair, seed = case["pair"], len(case["pipeline"]) + PAIRS.index(case["pair"])
    operators = {name: {"threads": seed, "cpu": 0.5, "memory": 0.25} for name in ("source", "B", "T", "sink")}
    plan = {
        "allocated": 3 + seed,
        "placed": 4 + seed,
        "extra": 1,
        "growth": 0,
        "bound": 1,
        "operators": operators,
        "predicted_shuffle": 30.0,
        "predicted": 40.0,
    }
    if case["part"] == "slots":
        return {**plan, "actual": 35, "slot_aware_reaches_the_rate": pair == "mba+sam"}
    nodes = {"n1": {"cpu": 0.1 * seed, "memory": 0.2}, "n2": {"cpu": 0.2, "memory": 0.1 * seed}}
    latency = {"p5": 1.0, "p25": 2.0, "p50": 3.0, "p75": 4.0, "p95": 5.0, "p99": 6.0}
    more = {"planned": 50 + seed, "allocated_rate": 60, "actual": 10 * seed, "predicted_nodes": nodes}
    return {**plan, **more, "actual_nodes": nodes, "latency_ms": latency, "latency_mean_ms": 3.0 * seed}


def test_model_driven_judges_any_results() -> None:
    experiment, published = ModelDrivenEvaluation(), read_published("model-driven")
    results = Results(tuple(CaseResult(case, measured(case)) for case in experiment.cases(quick=True)))
    lines = experiment.lines(results, published)
    assert all(line.why for line in lines if line.verdict is Agreement.NOT_COMPARABLE)
    # predicted and simulated from the same numbers: R2 is 1 by construction here
    cpu = [line for line in lines if line.what == "R2 of predicted and actual cpu per node"]
    assert [line.ours for line in cpu] == ["1"] * 3
    assert [chart.name for chart in experiment.charts(results, published)] == [
        "slots",
        "stable-rate",
        "rates",
        "use",
        "latency",
    ]


def test_slots_that_follow_from_figures_of_the_models_are_no_evidence() -> None:
    """623 % memory by LSA at 50 tuples/s, from which Table's model was derived, are 7 slots, 13 at twice and 25 at four
    times the rate, and 160 tuples/s are the most that fit 20 slots. Table does 3 tuples/s a thread: 160 / 3 is 54."""
    assert [-(-(623 * rate) // 5000) for rate in (50, 100, 200)] == [7, 13, 25]
    published = read_published("model-driven")
    for rate in (50, 100, 200):
        assert published[f"fig7.linear.{rate}.lsa.slots"].not_evidence
    for name in (
        "fig7.linear.50.mba.slots",
        "fig7.lsa-more",
        "fig9.linear.lsa+dsm.planned",
        "fig9.linear.lsa.table.threads",
    ):
        assert published[name].not_evidence
    assert not published["fig7.star.100.lsa.slots"].not_evidence


def asked_for(experiment: Experiment, results: Results) -> tuple[set[str], set[str]]:
    """The ids of published values an experiment asks for, and all there are."""
    published = read_published(experiment.published)
    asked: set[str] = set()

    class Watched:
        values = published.values

        def __getitem__(self, wanted: str) -> object:
            asked.add(wanted)
            return published[wanted]

        def get(self, wanted: str) -> object:
            asked.add(wanted)
            return published.get(wanted)

    experiment.lines(results, Watched())  # type: ignore[arg-type]
    return asked, {value.id for value in published.values}


def test_every_published_value_is_judged_by_model_driven() -> None:
    experiment = ModelDrivenEvaluation()
    results = Results(tuple(CaseResult(case, measured(case)) for case in experiment.cases(quick=True)))
    asked, known = asked_for(experiment, results)
    # threads, CPU and memory are found by the shape of their id, not by name
    assert all(one.rpartition(".")[2] in {"threads", "cpu", "memory"} for one in known - asked)


def test_every_published_value_is_judged_by_p_deployer(tmp_path: Path) -> None:
    pytest.importorskip("pymetis")
    experiment = stored(tmp_path)
    asked, known = asked_for(experiment, sweep.finding("p-deployer", tmp_path).results)
    assert asked == known
