"""What each token opens, what health says to whom, and what a request may not do whatever its shape."""

from __future__ import annotations

import http.server
import json
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from service_builders import APPLICATION, READER, TOKEN, WRITER, Served, serve
from starlette.requests import Request

import penstock
from penstock.api.applications import TOKEN_FILE, _link
from penstock.base.clock import Stopwatch, pause
from penstock.cli.controller_access import warn_of_trouble
from penstock.control.health import ControllerHealth
from penstock.service.http import MAX_WRONG_TOKENS, paged
from penstock.service.routes.cluster import is_live

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOBODY = {"Authorization": ""}
WRONG = {"Authorization": "Bearer wrong"}
FULL = ControllerHealth(False, "store: /secret/store.db is full", 9.0, (("audit", "held twice"),))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = serve(tmp_path)
    found.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear", "desired": 2}, 201)
    yield found
    found.close()


class TestTheTokenOfApplications:
    REPORT = {"held": 0, "wanted": 2, "why": "2 are needed"}  # noqa: RUF012 - nobody changes it

    def test_registers_reports_reads_its_own_and_leaves(self, served: Served) -> None:
        ask = served.http.request
        assert ask("POST", "/v1/attached", json={"name": "shop"}, headers=APPLICATION).status_code == 201
        reports = "/v1/attached/shop/reports"
        assert ask("POST", reports, json=self.REPORT, headers=APPLICATION).status_code == 200
        served.run(2)
        assert ask("POST", reports, json=self.REPORT, headers=APPLICATION).json()["admitted"] == 2
        assert ask("GET", "/v1/attached/shop", headers=APPLICATION).json()["assigned"] == 2
        assert ask("GET", "/v1/attached/shop/advice", headers=APPLICATION).status_code == 200
        assert ask("DELETE", "/v1/attached/shop", headers=APPLICATION).json()["state"] == "ending"

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/v1/pipelines"),
            ("GET", "/v1/pipelines/a"),
            ("PATCH", "/v1/pipelines/a"),
            ("DELETE", "/v1/pipelines/a"),
            ("POST", "/v1/pipelines"),
            ("POST", "/v1/pipelines/a/triggers"),
            ("POST", "/v1/nodes"),
            ("PUT", "/v1/policy"),
            ("POST", "/v1/login-codes"),
            ("GET", "/v1/watch"),
            ("GET", "/v1/views/start"),
            ("GET", "/metrics"),
            ("GET", "/"),
        ],
    )
    def test_opens_nothing_else(self, served: Served, method: str, path: str) -> None:
        assert served.http.request(method, path, json={}, headers=APPLICATION).status_code == 403

    def test_touches_no_pipeline_and_is_told_of_none(self, served: Served) -> None:
        for method, path in (("DELETE", ""), ("GET", ""), ("POST", "/reports")):
            answer = served.http.request(method, f"/v1/attached/a{path}", json=self.REPORT, headers=APPLICATION)
            assert answer.json()["error"] == "pipeline 'a' is no attached application"
        error = served.http.get("/v1/attached/b", headers=APPLICATION).json()["error"]
        assert error == "no attached application 'b'; it has to register first"
        assert served.http.post("/v1/attached", json={"name": "a"}, headers=APPLICATION).status_code == 409

    def test_logs_no_browser_in(self, served: Served) -> None:
        assert served.http.post("/login", json={"token": "may-attach"}, headers=NOBODY).status_code == 403

    def test_registers_a_bounded_number(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.service.routes.pipelines.MAX_APPLICATIONS", 2)
        statuses = [
            served.http.post("/v1/attached", json={"name": name}, headers=APPLICATION).status_code for name in "xyzx"
        ]
        assert statuses == [201, 201, 429, 201]

    def test_is_read_from_the_file_the_environment_names(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "attach-token").write_text("for-applications\n", "utf-8")
        monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "attach-token"))
        link = _link("http://127.0.0.1:9", None, "shop", None, 1, None)  # type: ignore[arg-type]
        assert link._client.token == "for-applications"  # noqa: S105 - a test's
        link.close()


class TestHealth:
    def test_without_a_token_it_says_nothing_but_whether(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        assert served.http.get("/health", headers=NOBODY).json() == {"status": "ok"}
        monkeypatch.setattr(type(served.controller), "health", lambda _: FULL)
        for headers in (NOBODY, WRONG, APPLICATION):
            answer = served.http.get("/health", headers=headers)
            assert (answer.status_code, answer.json()) == (503, {"status": "trouble"})
        answer = served.http.get("/health", headers=READER)
        assert answer.status_code == 503
        assert answer.json()["trouble"] == FULL.trouble
        assert answer.json()["quarantined"] == [{"subject": "audit", "why": "held twice"}]
        assert served.call("GET", "/v1/views/health", None, 200)["trouble"] == FULL.trouble

    @pytest.mark.parametrize("path", ["/health", "/health/ready", "/health/live"])
    def test_can_be_asked_for_its_head(self, served: Served, path: str) -> None:
        answer = served.http.request("HEAD", path, headers=NOBODY)
        assert (answer.status_code, answer.text) == (200, "")

    def test_not_ready_is_alive_as_long_as_a_restart_would_not_help(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(served.controller), "health", lambda _: FULL)
        assert served.http.get("/health/ready", headers=NOBODY).status_code == 503
        assert served.http.get("/health/live", headers=NOBODY).status_code == 200
        monkeypatch.setattr(type(served.controller), "health", lambda _: replace(FULL, loop_alive=False))
        assert served.http.get("/health/live", headers=NOBODY).status_code == 503

    def test_a_loop_that_hangs_for_long_is_not_alive(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        assert is_live(served.controller.health())
        hang = threading.Event()
        monkeypatch.setattr(served.nodes, "observe", lambda _: [hang.wait(60)][:0])
        served.controller.start()
        try:
            watch = Stopwatch()
            while served.controller.health().ok:
                assert watch.seconds() < 20, "it should be late by now"
                pause(0.1)
            assert served.http.get("/health/ready", headers=NOBODY).status_code == 503
            assert served.http.get("/health/live", headers=NOBODY).status_code == 200, "it may still come back"
            monkeypatch.setattr("penstock.service.routes.cluster.STUCK_SECONDS", 0.5)
            assert served.http.get("/health/live", headers=NOBODY).status_code == 503
        finally:
            hang.set()
        assert is_live(replace(FULL, last_step_seconds=1e6)), "it turns, and reports why"

    def test_the_shell_warns(self, capsys: pytest.CaptureFixture[str]) -> None:
        class Troubled:
            def health(self) -> dict[str, Any]:
                return {"trouble": "disk is full", "quarantined": [{"subject": "audit", "why": "held twice"}]}

        warn_of_trouble(Troubled())  # type: ignore[arg-type]
        assert capsys.readouterr().err.splitlines() == [
            "warning: the controller is in trouble, nothing new is decided: disk is full",
            "warning: set aside: audit: held twice",
        ]


class TestTokens:
    def test_wrong_ones_are_counted_and_right_ones_always_let_in(
        self, served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            statuses = [served.http.get("/v1/nodes", headers=WRONG).status_code for _ in range(MAX_WRONG_TOKENS + 1)]
        assert statuses == [401] * MAX_WRONG_TOKENS + [429]
        assert "a token or code from 127.0.0.1 opens nothing" in caplog.text
        assert served.http.post("/login", json={"token": "x"}, headers=NOBODY).status_code == 429
        assert served.http.post("/login", json={"token": TOKEN}, headers=NOBODY).status_code == 200
        assert served.http.get("/v1/nodes").status_code == 200

    def test_a_login_is_short(self, served: Served) -> None:
        body = json.dumps({"token": "x" * 5000})
        assert served.http.post("/login", content=body, headers=NOBODY).status_code == 413
        pieces = iter([body.encode()])

        async def chunked() -> Any:
            for piece in pieces:
                yield piece

        assert served.http.post("/login", content=chunked(), headers=NOBODY).status_code == 400


class TestRequests:
    def test_pages_of_the_schema_load_nothing_from_elsewhere(self, served: Served) -> None:
        for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
            assert served.http.get(path).status_code == 404

    @pytest.mark.parametrize("name", [".", ".."])
    def test_a_name_that_means_a_folder_is_refused(self, served: Served, name: str) -> None:
        error = served.call("POST", "/v1/pipelines", {"name": name, "pipeline": "linear"}, 400)
        assert error["field"] == "name"
        assert served.call("POST", "/v1/attached", {"name": name}, 400)["field"] == "name"
        served.call("POST", "/v1/pipelines", {"name": "é" * 200, "pipeline": "linear", "desired": 1}, 201)

    @pytest.mark.parametrize("veto", [".x:y", "json", "json:nothing", ":", "no_such_module:x", "json:loads:x"])
    def test_a_veto_that_is_no_code_is_named(self, served: Served, veto: str) -> None:
        body = {"name": "b", "pipeline": "linear", "elastic": {"veto": veto}}
        assert served.call("POST", "/v1/pipelines", body, 400)["field"] == "elastic.veto"
        assert served.call("PATCH", "/v1/pipelines/a", {"elastic": {"veto": veto}}, 400)["field"] == "elastic.veto"

    def test_a_load_is_at_most_ten_kilobytes(self, served: Served) -> None:
        load = "steps:" + ",".join(["1x2"] * 5000)
        for method, path, body in (
            ("POST", "/v1/pipelines", {"name": "b", "pipeline": "linear"}),
            ("PATCH", "/v1/pipelines/a", {}),
        ):
            error = served.call(method, path, {**body, "load": load}, 400)
            assert error == {"error": "load: expected at most 10240 bytes; use fewer steps", "field": "load"}

    def test_an_unexpected_error_is_logged_once_and_tells_nothing(
        self, served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def breaks(*_: object) -> None:
            raise RuntimeError("/secret/path")

        monkeypatch.setattr("penstock.service.routes.cluster.documents.nodes", breaks)
        answer = served.http.get("/v1/nodes")
        assert answer.status_code == 500
        assert "secret" not in answer.text
        number = answer.json()["error"].rpartition(" ")[2]
        logged = [record for record in caplog.records if number in record.getMessage()]
        assert len(logged) == len([record for record in caplog.records if record.exc_info]) == 1
        assert served.http.get("/v1/pipelines", headers=WRITER).status_code == 200


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers every list with a next page at another address."""

    asked: list[tuple[str, str | None]]
    elsewhere = ""

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        self.send_response(200)
        if len(self.asked) < 2:
            self.send_header("Link", f'<{self.elsewhere}/stolen?offset=1&limit=1>; rel="next"')
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[http.server.HTTPServer]:
    Stranger.asked = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class TestTheClient:
    def test_a_local_token_is_sent_nowhere_else(
        self, tmp_path: Path, stranger: http.server.HTTPServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
        penstock.up(simulated=True, nodes=1)
        try:
            with pytest.raises(penstock.BadInputError, match="token: give that of the controller at http"):
                penstock.connect(f"http://127.0.0.1:{stranger.server_port}")
        finally:
            penstock.down()
        assert Stranger.asked == []

    def test_the_next_page_is_of_the_same_address_and_path(self, stranger: http.server.HTTPServer) -> None:
        Stranger.elsewhere = f"http://localhost:{stranger.server_port}"
        with penstock.connect(f"http://127.0.0.1:{stranger.server_port}", "its-own") as client:
            client.list()
        assert [path for path, _ in Stranger.asked] == ["/v1/pipelines", "/v1/pipelines?offset=1&limit=1"]


def test_the_next_page_of_a_name_of_any_script_is_a_header() -> None:
    query = "pipeline=\u0437\u0430\u043a\u0430\u0437&limit=1"
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "path": "/v1/statistics/\u0437\u0430\u043a\u0430\u0437",
        "query_string": query.encode(),
        "headers": [],
    }
    link = paged(Request(scope), [{}], more=True).headers["Link"]
    assert link.isascii()
    assert "limit=1" in link
