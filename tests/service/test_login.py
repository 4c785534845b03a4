"""Browsers: what lets one in, what it may do then, and what a page of somebody else's cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from service_builders import READ_TOKEN, READER, TOKEN, Served, serve

from penstock.service.http import MAX_SESSIONS, Role, Sessions, Visitor
from penstock.service.pages.page_list import pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HERE = "http://127.0.0.1:8080"
NOBODY = {"Authorization": ""}
PAGES = tuple(page.path + page.example.format(pipeline="a") for page in pages())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = serve(tmp_path)
    found.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear", "desired": 2}, 201)
    yield found
    found.close()


def log_in(served: Served, **body: str) -> dict[str, str]:
    """The headers a browser sends from then on."""
    answer = served.http.post("/login", json=body, headers={**NOBODY, "Origin": HERE})
    assert answer.status_code == 200, answer.text
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    return {**NOBODY, "Origin": HERE, "Cookie": cookie.partition(";")[0]}


def test_nothing_but_a_login_form_without_a_token(served: Served) -> None:
    for path in (*PAGES, "/assets/main.js", "/v1/views/fleet", "/v1/watch"):
        assert served.http.get(path, headers=NOBODY).status_code == 401, path
    answer = served.http.get("/", headers={**NOBODY, "Accept": "text/html"})
    assert answer.status_code == 401
    assert "<form" in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert policy.count("'sha256-") == 2
    assert "unsafe" not in policy


def test_pages_with_a_token(served: Served) -> None:
    browser = log_in(served, token=READ_TOKEN)
    for path in PAGES:
        answer = served.http.get(path, headers=browser)
        assert answer.status_code == 200
        assert "script-src 'self'" in answer.headers["content-security-policy"]
    script = served.http.get("/assets/main.js", headers=browser)
    assert script.headers["content-type"].startswith("text/javascript")
    known = {**browser, "If-None-Match": script.headers["etag"]}
    assert served.http.get("/assets/main.js", headers=known).status_code == 304
    assert served.http.get("/assets/..%2ffiles.py", headers=browser).status_code == 404


def test_a_wrong_token_or_code_opens_nothing(served: Served) -> None:
    for body in ({"token": "wrong"}, {"code": "wrong"}, {}):
        assert served.http.post("/login", json=body, headers=NOBODY).status_code == 401
    assert served.http.get("/", headers={**NOBODY, "Cookie": "penstock=wrong"}).status_code == 401


def test_a_code_opens_one_session_with_the_rights_of_its_token(served: Served) -> None:
    code = served.http.post("/v1/login-codes", headers=READER).json()["code"]
    browser = log_in(served, code=code)
    assert served.http.post("/login", json={"code": code}, headers=NOBODY).status_code == 401
    assert not served.http.get("/v1/views/start", headers=browser).json()["may_act"]
    assert act(served, browser).status_code == 403


def act(served: Served, headers: dict[str, str]) -> Any:
    return served.http.request("PATCH", "/v1/pipelines/a", json={"priority": 1}, headers=headers)


def test_only_our_own_page_acts_for_a_browser(served: Served) -> None:
    browser = log_in(served, token=TOKEN, who="ann")
    elsewhere = {"no origin": None, "another port": "http://127.0.0.1:9999", "another site": "http://evil.example"}
    for what, origin in elsewhere.items():
        headers = {name: value for name, value in browser.items() if name != "Origin"}
        assert act(served, headers if origin is None else {**headers, "Origin": origin}).status_code == 403, what
    assert served.call("GET", "/v1/pipelines/a")["priority"] == 2
    assert act(served, browser).status_code == 200
    assert served.call("GET", "/v1/pipelines/a")["priority"] == 1


def test_a_log_in_from_elsewhere_is_refused(served: Served) -> None:
    headers = {**NOBODY, "Origin": "http://127.0.0.1:9999"}
    assert served.http.post("/login", json={"token": TOKEN}, headers=headers).status_code == 403


def test_what_was_asked_is_kept_with_who_asked(served: Served) -> None:
    act(served, log_in(served, token=TOKEN, who="ann\x07 lee"))
    served.http.post("/v1/pipelines/a/triggers", json={"kind": "arrival-rate", "above": 70})
    asked = [event["why"] for event in served.call("GET", "/v1/events?pipeline=a") if event["kind"] == "request"]
    assert asked == [
        "submit: desired 2; by a holder of the token",
        "amend: priority 1; by ann lee",
        "add trigger: kind arrival-rate, above 70; by a holder of the token",
    ]


def test_logging_out_ends_the_session(served: Served) -> None:
    browser = log_in(served, token=READ_TOKEN)
    assert served.http.post("/logout", headers=browser).status_code == 200
    assert served.http.get("/v1/views/start", headers=browser).status_code == 401


def test_sessions_are_bounded_and_the_least_used_gives_way() -> None:
    sessions = Sessions()
    first, second = (sessions.open(Visitor(name, Role.READ)) for name in ("a", "b"))
    assert sessions.find(first) == Visitor("a", Role.READ, first)
    for _ in range(MAX_SESSIONS - 1):
        sessions.open(Visitor("c", Role.READ))
    assert sessions.find(second) is None
    assert sessions.find(first) is not None


def test_readers_push_out_neither_sessions_nor_codes_of_writers() -> None:
    sessions = Sessions()
    session, code = (make(Visitor("ann", Role.WRITE)) for make in (sessions.open, sessions.make_code))
    for _ in range(MAX_SESSIONS + 1):
        sessions.open(Visitor("c", Role.READ))
        sessions.make_code(Visitor("c", Role.READ))
    assert sessions.find(session) is not None
    assert sessions.use_code(code) is not None
