"""One Spark session for all tests that need one; it ends with them.

`./run test` runs the tests that start Spark in processes of their own beside those that share the session: either kind
mostly waits. Tests that measure come after them, alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.session.embedded import end_session, start_session

PROCESSES = frozenset(
    {
        "test_cluster_processes",
        "test_controller",
        "test_deaths",
        "test_kafka_exactly_once",
        "test_kafka_log",
        "test_namespaces",
        "test_other_users",
        "test_placed",
        "test_standalone",
    }
)
MEASURED = frozenset({"test_on_cluster", "test_simulation"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in PROCESSES:
            item.add_marker(pytest.mark.processes)
        elif item.path.stem in MEASURED:
            item.add_marker(pytest.mark.measured)


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
