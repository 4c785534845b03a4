"""A short siege of a real controller: `./run bench siege` is the long one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "siege.py"
SHORT = "--seconds=6 --requests=300 --clients=4 --kills=1 --half-open=300 --what-ifs=8 --door-seconds=2"
ZEROS = [
    "five_hundreds",
    "silenced",
    "health_lied",
    "died",
    "failed_starts",
    "lost_decisions",
    "lost_changes",
    "double_held",
]


@pytest.mark.long("a hundred seconds on a busy machine")
def test_a_controller_under_siege_keeps_deciding_and_loses_nothing() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH), "--json", *SHORT.split()], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["requests"] >= 100
    assert found["kills"] == 1
    assert found["half_open_held"] == 300
    assert {name: found[name] for name in ZEROS} == dict.fromkeys(ZEROS, 0), done.stderr
