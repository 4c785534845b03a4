"""A run of a project whose process is killed goes on from any folder, whether a pipeline or a plan was run."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from processes import command, environment_for, flowed

PIPELINE = """
name: p
operators:
  load: {kind: source}
  same: {run: "ops:same", schema: "value bigint", threads: 2, cpu: 0.1, memory_mb: 10}
  store: {kind: sink, format: parquet, options: {path: out}}
streams: [{from: load, to: same}, {from: same, to: store}]
"""
CODE = "def same(row):\n    return row\n"


@pytest.mark.long("two sessions of Spark take most of a minute, and test_deaths.py kills and resumes too")
@pytest.mark.parametrize("given", ["plan.json", "p.yaml"])
def test_what_was_killed_goes_on_from_another_folder(tmp_path: Path, given: str) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project, elsewhere):
        folder.mkdir()
    (project / "p.yaml").write_text(PIPELINE)
    (project / "ops.py").write_text(CODE)
    environment = environment_for(tmp_path)
    with command(environment, "plan", "p.yaml", "--rate", "1000", "-o", "plan.json", folder=project) as planning:
        assert planning.wait(60) == 0
    words = ["run", given, "--rate", "1000", "--slots", "2", "--folder", "run"]
    with command(environment, *words, folder=project) as first:
        flowed(first, project / "out", 1)
        first.kill()
    with command(environment, "runs", "resume", "../project/run", "--json", folder=elsewhere) as second:
        flowed(second, project / "out", 2)
        second.send_signal(signal.SIGTERM)
        printed, complained = second.communicate(timeout=180)
        assert second.returncode == 130, complained
    report = json.loads(printed)
    assert (report["lost"], report["duplicated"]) == (0, 0)
    # by reading the sink: every tuple once
    assert sorted(pq.read_table(project / "out")["value"].to_pylist()) == list(range(report["emitted"]))
    assert not list(elsewhere.iterdir())
