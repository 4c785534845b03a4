"""Fused and placed runs on real Spark meet the contract of runs; simulated ones do in tests/runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import penstock
from penstock.planning.files import write_plan
from penstock.runs.run import Run
from penstock.spark.clusters.local.lifecycle import running_cluster
from penstock.spark.clusters.local.state import RunningCluster
from run_contract import Plant, RunContract

RATE = 200
PIPELINE = """
name: contract
operators:
  source: {kind: source}
  same: {run: "placed_operators:same", threads: 1, cpu: 20, memory_mb: 64}
  sink: {kind: sink, parquet: OUT}
streams: [{from: source, to: same}, {from: same, to: sink}]
"""


class SparkPlant:
    """A pipeline of one operator, which numbers its rows, into Parquet files."""

    def __init__(self, folder: Path) -> None:
        self.folder: str | Path = folder / "run"
        self._out = folder / "out"
        self._pipeline = folder / "contract.yaml"
        self._pipeline.write_text(PIPELINE.replace("OUT", str(self._out)), encoding="utf-8")

    def environment(self) -> dict[str, str]:
        source = Path(penstock.__file__).parent.parent
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(Path(__file__).parent), *sys.path])}

    def rows(self) -> list[int]:
        files = [str(file) for file in self._out.glob("*.parquet")]
        if not files:
            return []
        return sorted(ds.dataset(files, format="parquet").to_table(columns=["value"])["value"].to_pylist())


class FusedPlant(SparkPlant):
    unknown_option = ("fused", {"tls": "key.pem"})

    def start(self) -> Run:
        return penstock.start(self._pipeline, RATE, slots=1, folder=self.folder)

    def command(self) -> list[str]:
        words = ["--rate", str(RATE), "--slots", "1", "--folder", str(self.folder)]
        return ["-m", "penstock", "run", str(self._pipeline), *words]

    def other_slots(self) -> int:
        return 2


class PlacedPlant(SparkPlant):
    unknown_option = ("placed", {"checkpoint": "elsewhere"})

    def __init__(self, folder: Path, cluster: RunningCluster) -> None:
        super().__init__(folder)
        self._plan = folder / "plan.json"
        made = penstock.plan(self._pipeline, RATE, cluster=cluster.folder / "cluster.yaml", placer="round-robin")
        write_plan(made, self._plan)

    def start(self) -> Run:
        return penstock.start(self._plan, engine="placed", folder=self.folder)

    def command(self) -> list[str]:
        return ["-m", "penstock", "run", str(self._plan), "--engine", "placed", "--folder", str(self.folder)]

    def other_slots(self) -> int:
        return 2


@pytest.mark.usefixtures("own_runs")
class TestFusedRuns(RunContract):
    @pytest.fixture
    def plant(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
        monkeypatch.syspath_prepend(str(Path(__file__).parent))
        return FusedPlant(tmp_path)

    def test_a_run_survives_the_death_of_its_process(self, plant: Plant) -> None:
        """The files of this run are below a URI, through the file systems of pyarrow and Hadoop; those of fused runs in
        fused/test_deaths.py are in a folder of this machine."""
        folder = Path(plant.folder)
        plant.folder = folder.as_uri()
        super().test_a_run_survives_the_death_of_its_process(plant)
        assert {"audit", "start", "log"} <= {path.name for path in (folder / "files").iterdir()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(2, 2, folder=tmp_path_factory.mktemp("cluster"), memory_mb=768) as running:
        yield running


@pytest.mark.usefixtures("own_runs")
class TestPlacedRuns(RunContract):
    @pytest.fixture
    def plant(self, tmp_path: Path, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> Plant:
        monkeypatch.setenv("PENSTOCK_STATE", str(cluster.folder))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]))
        monkeypatch.syspath_prepend(str(Path(__file__).parent))
        return PlacedPlant(tmp_path, cluster)
