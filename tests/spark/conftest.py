"""One Spark session for all tests that need one; it ends with them.

`./run test` runs them in three lanes beside each other, each a process of its own: those that share the session
(`--lane shared`), most of those that start clusters (`--lane clusters`), and those of the contracts of runs and of
clusters, which start sessions of their own (`--lane contracts`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.session.embedded import end_session, start_session

LANES = {
    "clusters": frozenset(
        {
            "test_cluster_processes",
            "test_controller",
            "test_deaths",
            "test_kafka_bad_input",
            "test_kafka_exactly_once",
            "test_kafka_fused",
            "test_kafka_log",
            "test_namespaces",
            "test_on_cluster",
            "test_online_plans",
            "test_ordered_plans",
            "test_other_users",
            "test_placed",
            "test_resumed_elsewhere",
            "test_silent_master",
            "test_standalone",
        }
    ),
    "contracts": frozenset(
        {"test_cluster_contract", "test_placed_rankings", "test_plain_workers", "test_run_contract"}
    ),
}
"""Modules by lane; all others are in `shared`. Each lane takes about as long as the others."""

# Java's second compiler pays off after minutes. No process of a test lives that long, executors of a cluster least of
# all: every Java there takes these, and says so in its own log.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules of other lanes: importing them takes seconds."""
    lane = config.getoption("--lane")
    is_module = collection_path.is_file() and collection_path.name.startswith("test_")
    own = next((name for name, modules in LANES.items() if collection_path.stem in modules), "shared")
    wanted = lane is None or lane == own
    return True if is_module and not wanted else None


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    started = start_session(2, tmp_path_factory.mktemp("spark") / "java.log")
    yield started
    end_session(started)


@pytest.fixture
def own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of tests are listed among themselves, not among the user's."""
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"
