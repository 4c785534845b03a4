"""`penstock doctor`, and the one line that a missing optional package gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from outcome import Penstock

from penstock.api import doctor as checks
from penstock.api.doctor import Health
from penstock.base import extras

MB = 1.0
GB = 1024 * MB


def test_a_healthy_machine_is_reported_with_what_to_do_next(penstock: Penstock) -> None:
    outcome = penstock("doctor", "--json")
    found = {check["name"]: check for check in json.loads(outcome.out)["checks"]}
    assert found["Python"]["health"] == "ok"
    assert found["ports"]["found"] == "127.0.0.1 can be listened on and reached"
    assert outcome.code == (0 if all(check["health"] != "problem" for check in found.values()) else 1)


@pytest.mark.parametrize(
    ("finding", "health", "text"),
    [
        (checks.check_python((3, 10), "3.10.4"), Health.PROBLEM, "install Python 3.11 or newer"),
        (checks.check_python((3, 13), "3.13.0"), Health.OK, ""),
        (checks.check_memory(0.5 * GB, 2), Health.PROBLEM, "Spark needs 2 GB"),
        (checks.check_memory(8 * GB, 2), Health.OK, ""),
        (checks.check_memory(None, 2), Health.NOTE, ""),
        # installed two days after what the clock says, then one second before it
        (checks.check_clock(1_000_000.0, 1_000_000.0 + 2 * 86_400), Health.PROBLEM, "set the clock"),
        (checks.check_clock(1_000_000.0, 999_999.0), Health.OK, ""),
        (checks._check_spark_versions("3.5.1", "2.2.0"), Health.PROBLEM, "needs pyspark 4"),
        (checks._check_spark_versions("4.1.0", "3.0.1"), Health.PROBLEM, "pandas below 3"),
    ],
)
def test_a_problem_names_its_remedy(finding: checks.Finding, health: Health, text: str) -> None:
    assert finding.health is health
    assert text in finding.remedy
    assert (health is Health.PROBLEM) <= bool(finding.remedy)


def test_no_java_is_a_problem_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    finding = checks.check_java()
    assert (finding.health, finding.value) == (Health.PROBLEM, "no Java found")
    assert "apt-get install openjdk-17-jre-headless" in finding.remedy


def test_a_folder_that_cannot_be_written_is_a_problem(tmp_path: Path, penstock: Penstock) -> None:
    finding = checks.check_folder("this folder", tmp_path / "none")
    assert (finding.health, finding.value) == (
        Health.PROBLEM,
        f"{tmp_path / 'none'}: cannot be written: No such file or directory",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("pyspark.sql", "spark"),
        ("confluent_kafka", "kafka"),
        ("uvicorn", "control"),
        ("psutil", "control"),
        ("os", None),
    ],
)
def test_the_extra_of_a_module_comes_from_the_metadata(module: str, extra: str | None) -> None:
    assert extras.find_extra(module) == extra


WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from penstock.cli.main import run
sys.exit(run({words!r}))
"""


@pytest.mark.parametrize(
    ("missing", "words", "expected"),
    [
        (["pyarrow", "pyspark"], ["run", "linear", "--rate", "10"], "this needs pyarrow; {install}'penstock[spark]'"),
        (
            ["uvicorn"],
            ["controller", "up", "--simulated"],
            "the controller needs uvicorn; {install}'penstock[control]'",
        ),
        (["httpx"], ["pipelines", "list"], "this needs httpx; {install}'penstock[control]'"),
        (["psutil"], ["controller", "up", "--simulated"], "the controller needs psutil; {install}'penstock[control]'"),
        (
            ["matplotlib"],
            ["plan", "linear", "--rate", "10", "--plot", "x.png"],
            "drawing needs matplotlib; {install}'penstock[plot]'",
        ),
    ],
)
def test_a_missing_extra_is_one_line(missing: list[str], words: list[str], expected: str, tmp_path: Path) -> None:
    code = WITHOUT.format(missing=missing, words=words)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False
    )
    assert (done.stderr, done.returncode) == (f"error: {expected.format(install='install it with: pip install ')}\n", 2)
    assert list(tmp_path.iterdir()) == []
