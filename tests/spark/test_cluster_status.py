"""What the Master's page, the processes and the state file say about a cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import BadInputError, ClusterError
from penstock.base.process_identity import ProcessIdentity
from penstock.base.state_folder import locked, state_folder
from penstock.cluster.contract import ClusterManager, open_cluster
from penstock.cluster.slot_resources import resource_name
from penstock.spark.clusters.local.cluster import LocalCluster
from penstock.spark.clusters.local.lifecycle import describe, shortfalls_on
from penstock.spark.clusters.local.state import (
    ClusterNode,
    RunningCluster,
    read_state,
    write_secret,
    write_session_settings,
    write_state,
)
from penstock.spark.clusters.standalone.cluster import StandaloneCluster
from penstock.spark.clusters.standalone.master_page import fetch_page, parse_page


def worker_on_page(node: str, state: str, heartbeat: int, used: list[str]) -> dict[str, Any]:
    name = resource_name(node)
    return {
        "state": state,
        "lastheartbeat": heartbeat,
        "resources": {each: {"name": each, "addresses": ["0", "1"]} for each in (name, "slot")},
        "resourcesused": {"slot": {"name": "slot", "addresses": used}},  # executors of fused runs ask for no node
    }


def page_of(*workers: dict[str, Any], url: str = "spark://127.0.0.1:1") -> str:
    applications = [{"id": "app-1", "name": "mine", "state": "RUNNING", "cores": 3}]
    return json.dumps({"url": url, "status": "ALIVE", "workers": workers, "activeapps": applications})


def a_state(folder: Path) -> RunningCluster:
    nodes = [
        ClusterNode(name=name, rack="r1", slots=2, memory_mb=1024, worker=ProcessIdentity(pid=pid, started=5))
        for name, pid in (("n1", 11), ("n2", 12), ("n3", 13))
    ]
    return RunningCluster(
        id="x",
        folder=folder,
        master_url="spark://127.0.0.1:1",
        web_url="http://127.0.0.1:2",
        master=ProcessIdentity(pid=10, started=5),
        nodes=tuple(nodes),
    )


RUNNING = [ProcessIdentity(pid=pid, started=5) for pid in (10, 11, 12, 13)]


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
    assert state.secret() == "s" * 64
    assert "ssss" not in state.model_dump_json() + repr(state.environment) + repr(
        StandaloneCluster("spark://h:1", state.secret())
    )
    state.conf_folder.mkdir()
    write_session_settings(state)
    file, token = sorted(state.conf_folder.iterdir())
    assert (token.name, token.stat().st_mode & 0o777) == ("web-token", 0o600)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().splitlines() == [
        "spark.master=spark://127.0.0.1:1",
        "spark.authenticate=true",
        f"spark.authenticate.secret={'s' * 64}",
        "spark.network.crypto.enabled=true",
    ]
    write_session_settings(a_state(tmp_path))
    assert file.read_text() == "spark.master=spark://127.0.0.1:1\n"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"id": "x"}', '{"id": "\\ud800"}'])
def test_a_state_that_is_none_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(BadInputError, match=r"^[^\n]*state\.json: [^\n]+$"):
        read_state(tmp_path)


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'{"url": 5}', b"\xff\xfe", page_of().encode()[:-9]])
def test_another_program_at_the_masters_port_is_no_master(answer: bytes) -> None:
    with listening(answer) as url:
        assert fetch_page(url) is None
    with listening(page_of().encode()) as url:
        page = fetch_page(url)
    assert page is not None
    assert page.status == "ALIVE"


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """A web server that answers everybody the same."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name http.server gives it
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_cluster_is_found_with_its_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    own = a_state(tmp_path).model_copy(update={"authenticate": True})
    write_secret(tmp_path, "s" * 64)
    write_state(own)
    file = tmp_path / "other"
    file.write_text("o" * 20)

    def opened(master: str | None, secret_file: Path | None) -> tuple[type[ClusterManager], str, str | None]:
        found = open_cluster(master, secret_file=secret_file)
        assert isinstance(found, StandaloneCluster)
        return type(found), found.master, found._secret

    assert opened(None, None) == (LocalCluster, own.master_url, "s" * 64)
    assert opened(own.master_url, file) == (LocalCluster, own.master_url, "o" * 20)
    assert opened("spark://h:1", file) == (StandaloneCluster, "spark://h:1", "o" * 20)
    assert opened("spark://h:1", None) == (StandaloneCluster, "spark://h:1", None)
    (tmp_path / "state.json").unlink()
    assert opened("spark://h:1", file) == (StandaloneCluster, "spark://h:1", "o" * 20)
    with pytest.raises(ClusterError, match="no cluster runs"):
        open_cluster(None, secret_file=file)


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
