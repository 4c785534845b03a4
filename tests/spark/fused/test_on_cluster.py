"""A fused run on a cluster: slots come and go, and an executor dies, while its query goes on. How much more they do is
up to the machine: `bench/fused_chaos.py` measures that."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from processes import command, environment_for, flowed

import penstock
from penstock.spark.clusters.local.lifecycle import running_cluster

PIPELINE = """
import time
import penstock

def wait(row):
    time.sleep(0.005)
    return row

pipeline = penstock.pipeline("slow").source("load").then("wait", logic=wait, schema="value bigint")
pipeline.sink("store", format="parquet", options={{"path": "{out}"}})
"""
"""A slot makes at most 200 calls a second, however fast its core is: there is always more to do."""


def executors_below(folder: Path) -> list[psutil.Process]:
    """Java processes of executors that a Worker in `folder` started."""
    return [
        process
        for process in psutil.process_iter(["name", "cmdline", "cwd"])
        if "CoarseGrainedExecutorBackend" in " ".join(process.info["cmdline"] or ())
        and str(process.info["cwd"]).startswith(str(folder))
    ]


def test_slots_come_and_go_and_an_executor_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = environment_for(tmp_path)
    for name in ("PENSTOCK_RUNS", "PENSTOCK_STATE"):
        monkeypatch.setenv(name, environment[name])
    out, folder = tmp_path / "out", tmp_path / "run"
    (tmp_path / "slow.py").write_text(PIPELINE.format(out=out))
    words = ["--rate", "2000", "--master", "cluster", "--slots", "1", "--folder", str(folder), "--json"]
    with running_cluster(2, 2, folder=tmp_path / "state"), command(environment, "run", "slow:pipeline", *words) as run:
        flowed(run, out, 1)
        assert len(executors_below(tmp_path)) == 1
        assert penstock.rescale(folder, 4) < 60
        assert len(executors_below(tmp_path)) == 4
        flowed(run, out, 2)
        with command(environment, "rescale", str(folder), "--slots", "2") as asked:
            assert asked.wait() == 0, asked.communicate()[1]
        flowed(run, out, 1)
        executors = executors_below(tmp_path)
        assert len(executors) == 2
        executors[0].kill()
        flowed(run, out, 3)
        penstock.drain(folder)
        printed, complained = run.communicate()
    report = json.loads(printed)
    assert (report["lost"], report["duplicated"]) == (0, 0), complained
    assert sorted(pq.read_table(out)["value"].to_pylist()) == list(range(report["emitted"]))
    assert {f"{slot['node']}/{slot['slot']}" for slot in report["slots"]} == {"n1/0", "n1/1", "n2/0", "n2/1"}
    told = " ".join(report["notes"])
    assert re.search(r"from 1 to 4 slots in .*from 4 to 2 slots in ", told)
    assert "started again" not in told
