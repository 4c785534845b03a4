"""`penstock simulate` as people and programs meet it."""

from __future__ import annotations

from pathlib import Path

import pytest
from outcome import Penstock

QUICK = ("--seconds", 12)


@pytest.fixture
def plan(penstock: Penstock, tmp_path: Path) -> Path:
    file = tmp_path / "linear.json"
    assert penstock("plan", "linear", "--rate", 50, "-o", file).code == 0
    return file


def test_predicted_beside_simulated(penstock: Penstock, plan: Path) -> None:
    outcome = penstock("simulate", plan, *QUICK)
    assert outcome.code == 0
    assert outcome.err == ""
    assert "linear simulated placed on" in outcome.out
    assert "(stable)" in outcome.out
    for text in ("cpu predicted", "latency p99, ms", "predicted  at most", "0 lost"):
        assert text in outcome.out


def test_json_is_that_of_a_run_and_more(penstock: Penstock, plan: Path) -> None:
    document = penstock("simulate", plan, *QUICK, "--json").document
    for key in ("sustained_rate", "stable", "latency_ms", "operators", "slots", "lost", "predicted_rate", "rate_error"):
        assert key in document
    assert document["comparison"]["rate"]["simulated"] == document["sustained_rate"]
    assert document == penstock("simulate", plan, *QUICK, "--json").document


def test_a_target_that_is_missed_is_exit_code_1_with_the_bottleneck(penstock: Penstock, plan: Path) -> None:
    outcome = penstock("simulate", plan, "--load", 300, *QUICK)
    assert outcome.code == 1
    assert "falls behind" in outcome.out
    assert "of 300 tuples/s: the bottleneck is '" in outcome.out


def test_several_plans(penstock: Penstock, plan: Path, tmp_path: Path) -> None:
    other = tmp_path / "star.json"
    penstock("plan", "star", "--rate", 40, "-o", other)
    outcome = penstock("simulate", plan, other, "--load", 5, *QUICK)
    assert outcome.code == 0
    assert "2 pipelines" in outcome.out
    assert "fairness   degree" in outcome.out


def test_the_highest_rate(penstock: Penstock, plan: Path) -> None:
    outcome = penstock("simulate", plan, "--find-max", *QUICK)
    assert outcome.code == 0
    assert outcome.out.startswith("highest stable rate: ")
    assert "falls behind" in outcome.out


def test_fused(penstock: Penstock, plan: Path) -> None:
    outcome = penstock("simulate", plan, "--mode", "fused", "--load", 5, *QUICK)
    assert outcome.code == 0
    assert "linear simulated fused on" in outcome.out


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture(penstock: Penstock, plan: Path, tmp_path: Path, ending: str) -> None:
    picture = tmp_path / f"simulated.{ending}"
    assert penstock("simulate", plan, *QUICK, "--plot", picture).code == 0
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--load", "-1"), "expected 0, or 1e-06 to 1e+12 tuples/s, found -1"),
        (("--load", "trace:none.csv"), "none.csv: cannot be read"),
        (("--seconds", "0"), "seconds: expected a finite number above 0"),
        (("--fail", "nowhere@5"), "outage: unknown node 'nowhere'"),
        (("--fail", "5"), "expected NODE@START"),
        (("--switch", "later"), "expected PLAN@SECONDS"),
        (("--network", "bandwidth=0"), "above 0, found 0"),
        (("--mode", "fusd"), "did you mean 'fused'?"),
        (("--measured", "none.json"), "none.json: cannot be read"),
        (("--plot", "simulated.gif"), "simulated.gif"),
        (("--models", "none.json"), "none.json"),
        (("--cluster", "none.yaml"), "none.yaml: cannot be read"),
    ],
)
def test_bad_input_is_one_line(penstock: Penstock, plan: Path, words: tuple[str, ...], expected: str) -> None:
    outcome = penstock("simulate", plan, *words)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert expected in outcome.err


def test_a_trace_with_a_gap_is_refused_by_its_line(penstock: Penstock, plan: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("time,rate\n0,5\n1,5\n2,5\n9,5\n10,5\n")
    outcome = penstock("simulate", plan, "--load", f"trace:{trace}")
    assert outcome.code == 2
    assert "trace.csv: line 5: a gap from 2 to 9 s" in outcome.err
    trace.write_text("time,rate\n0,5\n1,-5\n")
    assert "line 3: rate: expected at least 0" in penstock("simulate", plan, "--load", f"trace:{trace}").err


def test_what_is_not_a_plan(penstock: Penstock) -> None:
    outcome = penstock("simulate", "linear")
    assert outcome.code == 2
    assert "not a plan of one: make one" in outcome.err
