"""How many cores there are, where a container or a binding allows fewer than the machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.base.errors import ClusterError
from penstock.cluster import cores
from penstock.cluster.cores import cores_here, cpu_limit
from penstock.engines.fused.preparation import prepare
from penstock.runs import environment
from penstock.runs.config import RunConfig
from penstock.runs.environment import is_on_this_machine


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/", {}, None),
        ("0::/", {"cpu.max": "max 100000"}, None),
        # a container: its own group is what is mounted
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/docker/4711", {"cpu.max": "200000 100000"}, 2.0),
        # a service in a slice: the tighter of both
        ("0::/a.slice/b", {"a.slice/cpu.max": "50000 100000", "a.slice/b/cpu.max": "400000 100000"}, 0.5),
        ("0::/a.slice/b", {"a.slice/cpu.max": "max 100000", "a.slice/b/cpu.max": "400000 100000"}, 4.0),
        # the first version
        ("3:cpu,cpuacct:/x", {"cpu/x/cpu.cfs_quota_us": "300000", "cpu/x/cpu.cfs_period_us": "100000"}, 3.0),
        ("3:cpu,cpuacct:/x", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1.0),
        ("3:cpu,cpuacct:/x", {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"}, None),
        ("2:cpuset:/x\n1:memory:/x", {"cpu/x/cpu.cfs_quota_us": "1", "cpu/x/cpu.cfs_period_us": "100000"}, None),
        ("", {"cpu.max": "100000 100000"}, None),
        ("what", {"cpu.max": "much"}, None),
    ],
)
def test_control_groups_limit_cores(tmp_path: Path, groups: str, files: dict[str, str], limit: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert cpu_limit(groups, tmp_path) == limit


@pytest.mark.parametrize(("quota", "expected"), [("max", 8), ("150000", 2), ("20000", 1), ("1600000", 8)])
def test_a_process_has_what_it_is_bound_to_and_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    (tmp_path / "groups").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    monkeypatch.setattr(cores, "GROUPS_OF_THIS_PROCESS", tmp_path / "groups")
    monkeypatch.setattr(cores, "GROUPS", tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert cores_here() == expected


def test_slots_elsewhere_have_a_core_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.fused.preparation.cores_here", lambda: 2)
    here = prepare("linear", RunConfig(rate=5, slots=8))
    elsewhere = prepare("linear", RunConfig(rate=5, slots=8, master="yarn"))
    assert here.setup is not None
    assert elsewhere.setup is not None
    assert (here.setup.cores, elsewhere.setup.cores) == (2, 8)
    assert "8 slots share 2 cores here" in here.notes
    assert not any("share" in note for note in elsewhere.notes)


class _Cluster:
    master = "spark://127.0.0.1:7077"


@pytest.mark.parametrize(
    ("master", "is_up", "here"),
    [
        (None, False, True),
        ("local[4]", False, True),
        ("cluster", True, True),
        ("spark://127.0.0.1:7077", True, True),
        ("spark://127.0.0.1:7077", False, False),
        ("spark://far:7077", True, False),
        ("yarn", False, False),
    ],
)
def test_the_cluster_of_this_machine_shares_its_cores(
    monkeypatch: pytest.MonkeyPatch, master: str | None, is_up: bool, here: bool
) -> None:
    def find() -> _Cluster:
        if not is_up:
            raise ClusterError("no cluster runs")
        return _Cluster()

    monkeypatch.setattr(environment, "open_cluster", find)
    assert is_on_this_machine(RunConfig(master=master)) == here
