"""What the Master's page, the processes and the state file say about a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInputError, ClusterError
from penstock.spark.cluster_state import (
    ClusterNode,
    Process,
    RunningCluster,
    locked,
    read_state,
    state_folder,
    write_secret,
    write_state,
)
from penstock.spark.daemons import (
    resource_name,
)
from penstock.spark.master_page import parse_page
from penstock.spark.processes import Daemon
from penstock.spark.standalone import (
    describe,
    shortfalls_on,
)


def worker_on_page(node: str, state: str, heartbeat: int, used: list[str]) -> dict[str, Any]:
    name = resource_name(node)
    return {
        "state": state,
        "lastheartbeat": heartbeat,
        "resources": {name: {"name": name, "addresses": ["0", "1"]}},
        "resourcesused": {name: {"name": name, "addresses": used}},
    }


def page_of(*workers: dict[str, Any], url: str = "spark://127.0.0.1:1") -> str:
    applications = [{"id": "app-1", "name": "mine", "state": "RUNNING", "cores": 3}]
    return json.dumps({"url": url, "status": "ALIVE", "workers": workers, "activeapps": applications})


def a_state(folder: Path) -> RunningCluster:
    nodes = [
        ClusterNode(name=name, rack="r1", slots=2, memory_mb=1024, worker=Process(pid=pid, started=5))
        for name, pid in (("n1", 11), ("n2", 12), ("n3", 13))
    ]
    return RunningCluster(
        id="x",
        folder=folder,
        master_url="spark://127.0.0.1:1",
        web_url="http://127.0.0.1:2",
        master=Process(pid=10, started=5),
        nodes=tuple(nodes),
    )


RUNNING = [Daemon(pid, 5) for pid in (10, 11, 12, 13)]


def test_a_status_joins_the_page_and_the_processes(tmp_path: Path) -> None:
    page = parse_page(
        page_of(
            worker_on_page("n1", "DEAD", 9, ["0", "1"]),  # died before; the next one is its successor
            worker_on_page("n1", "ALIVE", 7, ["1"]),
            worker_on_page("n2", "DEAD", 7, ["0"]),
        )
    )
    found = describe(a_state(tmp_path), page, RUNNING)
    assert [(node.name, node.state, node.used, node.free) for node in found.nodes] == [
        ("n1", "ALIVE", 1, 1),
        ("n2", "DEAD", 0, 0),
        ("n3", "DEAD", 0, 0),
    ]
    assert found.dead == ("n2", "n3")
    assert found.master_alive
    assert not found.healthy
    assert found.document()["applications"] == [{"id": "app-1", "name": "mine", "state": "RUNNING"}]


def test_a_worker_whose_process_is_gone_is_dead_before_the_master_notices(tmp_path: Path) -> None:
    page = parse_page(page_of(*(worker_on_page(name, "ALIVE", 1, []) for name in ("n1", "n2", "n3"))))
    assert describe(a_state(tmp_path), page, RUNNING).healthy
    assert describe(a_state(tmp_path), page, RUNNING[:-1]).dead == ("n3",)


@pytest.mark.parametrize("page", [None, parse_page(page_of(url="spark://127.0.0.1:999"))])
def test_no_master_or_somebody_elses_is_a_dead_one(tmp_path: Path, page: Any) -> None:
    found = describe(a_state(tmp_path), page, RUNNING)
    assert not found.master_alive
    assert {node.state for node in found.nodes} == {"UNKNOWN"}


def test_promises_beyond_the_machine_are_noted(tmp_path: Path) -> None:
    # 3 nodes of 2 slots of 1024 MB: 6 slots, 6144 MB.
    assert shortfalls_on(a_state(tmp_path), 6, 6144) == []
    assert len(shortfalls_on(a_state(tmp_path), 5, 6143)) == 2


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = a_state(tmp_path)
    write_state(state)
    assert read_state(tmp_path) == state
    assert [daemon.pid for daemon in state.daemons] == [11, 12, 13, 10]
    with pytest.raises(BadInputError, match="unknown node 'n9'"):
        state.node("n9")


def test_sessions_get_the_secret_and_nobody_else(tmp_path: Path) -> None:
    write_secret(tmp_path, "s" * 64)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    state = a_state(tmp_path).model_copy(update={"authenticate": True})
    assert state.session_settings()["spark.authenticate.secret"] == "s" * 64
    assert "ssss" not in state.model_dump_json()
    assert a_state(tmp_path).session_settings() == {"spark.master": "spark://127.0.0.1:1"}


def test_the_folder_is_the_one_given_or_told_or_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_STATE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert state_folder(None) == tmp_path / "penstock" / "cluster"
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "told"))
    assert state_folder(None) == tmp_path / "told"
    assert state_folder(tmp_path / "given") == tmp_path / "given"


def test_one_command_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(ClusterError, match="another command"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
